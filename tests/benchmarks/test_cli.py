"""The `sesa` command: a user's mistake is one line on stderr and exit code 2, and nothing is left half-written."""

import json
import os
import sys

import pytest

TINY = [
    "rounds=2",
    "steps=1",
    "game.attempts=2",
    "model.dtype=float32",
    "model.max_context=6000",
    "model.max_new_tokens=2",
    "model.lora_rank=2",
]


@pytest.fixture
def questions_file(tmp_path):
    path = tmp_path / "roads.jsonl"
    rows = [
        {
            "id": "q1",
            "question": "Who wrote The Salt Road?",
            "answers": ["Orla Venn"],
            "supporting_titles": ["The Salt Road"],
        },
        {"id": "q2", "question": "Where is Tarrow?", "answers": ["Neland"], "supporting_titles": ["Tarrow"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_from_corpus_to_table(sesa, corpus_file, chat_model_folder, questions_file, tmp_path):
    index, run = tmp_path / "index", tmp_path / "run"
    code, out, _ = sesa("index", "--corpus", corpus_file, "--out", index, "--backend", "bm25")
    assert (code, "6 passages indexed" in out) == (0, True)
    settings = [f"corpus={corpus_file}", f"index={index}", f"policy={chat_model_folder}", "memory.token_budget=4000"]
    code, _, err = sesa("train", "method=sesa", *settings, *TINY, "--out", run)
    assert code == 0, err
    code, out, err = sesa("eval", run, "--data", questions_file, "--memory", "on,off")
    assert code == 0, err
    assert "roads" in out
    assert "Memory on minus memory off" in out
    assert len((run / "eval.jsonl").read_text().splitlines()) == 4
    code, out, _ = sesa("retrieval", "--corpus", corpus_file, "--data", questions_file, "--index", index)
    assert code == 0
    assert "roads" in out


def test_a_run_can_be_gone_on_with(sesa, corpus_file, chat_model_folder, tmp_path):
    run = tmp_path / "run"
    assert (
        sesa("train", "method=ssp", f"corpus={corpus_file}", f"policy={chat_model_folder}", *TINY, "--out", run)[0] == 0
    )
    text = (run / "settings.yaml").read_text()
    (run / "settings.yaml").write_text(text.replace("steps: 1", "steps: 2"))
    assert sesa("train", "--resume", run)[0] == 0
    assert [json.loads(line)["step"] for line in (run / "events.jsonl").read_text().splitlines()] == [1, 2]


def test_the_oracle_scores_a_hundred_per_cent(sesa, corpus_file, questions_file):
    code, out, _ = sesa("oracle", "--data", questions_file, "--corpus", corpus_file)
    assert code == 0
    assert "100.0" in out


def test_the_demo_plays_both_methods_and_says_what_it_is(sesa, chat_model_folder, tmp_path, monkeypatch):
    import benchmarks.demo

    small = ["memory.token_budget=4000", "model.max_context=9000", "model.max_new_tokens=2", "model.dtype=float32"]
    plan = {"arms": {"base": ["method=base"], "sesa": ["method=sesa"]}, "data": ["atlas:1"]}
    plan |= {"settings": ["steps=5", "rounds=2", "game.attempts=2", *small], "compare": ["sesa/on - sesa/off"]}
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))  # JSON is YAML
    monkeypatch.setattr(benchmarks.demo, "PLAN", str(tmp_path / "plan.yaml"))
    code, out, err = sesa("demo", "--policy", chat_model_folder, "--questions", 2, "--out", tmp_path / "demo")
    assert code == 0, err
    assert "Each arm was asked the same 2 questions about a world that it had never seen" in out
    assert "is made up, so a right answer was found by searching" in out
    assert "sesa/on - sesa/off: +0.0 points; they answered alike" in out
    assert "Of the questions that sesa's challenger posed, 0% were valid in the first fifth" in out
    assert len((tmp_path / "demo" / "rows.jsonl").read_text().splitlines()) == 8
    assert (tmp_path / "demo" / "learning.png").exists()


def bad(*arguments, says):
    return pytest.param(arguments, says, id=" ".join(map(str, arguments))[:60])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        bad("train", "method=sasa", says="known: base, search_r1, sesa, sesa_v, skillrl, ssp"),
        bad("train", "stepz=3", says="unknown setting 'stepz'; known: method, seed, steps"),
        bad("train", "steps", says="key=value"),
        bad("train", "steps=[1", says="YAML"),
        bad("train", "policy=~nouser/x", says="no model at"),
        bad("train", "game.attempts=1", says="at least 2"),
        bad("train", "policy=gpt-17", says="known: mini, mini-start, smollm2"),
        bad("train", "policy=./no/model", says="no model at"),
        bad("train", "corpus=missing.jsonl", says="missing.jsonl"),
        bad("train", "retriever=google", says="known: bm25"),
        bad("train", "memory.kind=diary", says="known: bank, none"),
        bad("train", "memory.encoder=magic", says="hashing"),
        bad("train", "--resume", "nowhere", says="nowhere"),
        bad("eval", "nowhere", "--data", "atlas:1", says="nowhere"),
        bad("eval", "nowhere", "--data", "missing.jsonl", says="missing.jsonl"),
        bad("eval", "nowhere", "--data", "atlas:x", says="atlas:x"),
        bad("oracle", "--data", "atlas:9999", says="9999"),
        bad("index", "--corpus", "missing.jsonl", "--out", "index", says="missing.jsonl"),
        bad("retrieval", "--corpus", "c.jsonl", "--data", "d.jsonl", "--index", "nowhere", says="nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(sesa, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = sesa(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("sesa: ")
    assert len(err.strip().splitlines()) == 1
    assert [path for path in tmp_path.rglob("*") if path.name != "runs"] == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "empty"),
        ('{"id": "a", "title": "A", "contents": "x"}\nnot json\n', "line 2"),
        ('{"id": "a", "title": "A", "contents": "x"}\n{"id": "a", "title": "B", "contents": "y"}\n', "line 2"),
    ],
)
def test_a_broken_corpus_is_named_with_its_line(sesa, tmp_path, content, says):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(content)
    code, _, err = sesa("index", "--corpus", corpus, "--out", tmp_path / "index", "--backend", "bm25")
    assert code == 2
    assert says in err
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_an_index_of_another_corpus_is_refused(sesa, corpus_file, chat_model_folder, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "a", "title": "A", "contents": "\\"A\\"\\nSome other text."}\n')
    assert sesa("index", "--corpus", other, "--out", tmp_path / "index", "--backend", "bm25")[0] == 0
    code, _, err = sesa("train", f"corpus={corpus_file}", f"index={tmp_path / 'index'}", f"policy={chat_model_folder}")
    assert code == 2
    assert "corpus" in err
    assert "sesa index" in err


def test_a_folder_in_use_is_refused_and_kept(sesa, corpus_file, chat_model_folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    code, _, err = sesa("train", f"corpus={corpus_file}", f"policy={chat_model_folder}", "--out", tmp_path / "run")
    assert code == 2
    assert "new or empty" in err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "command",
    [
        ("train", "--out"),
        ("demo", "--out"),
        ("oracle", "--data", "atlas:1", "--out"),
        ("index", "--corpus", "CORPUS", "--backend", "bm25", "--out"),
    ],
)
@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_cannot_be_written_is_named(sesa, corpus_file, tmp_path, command, place):
    (tmp_path / "file").write_text("mine")
    code, _, err = sesa(*(str(corpus_file) if word == "CORPUS" else word for word in command), tmp_path / place)
    assert code == 2
    assert str(tmp_path / "file") in err
    assert (tmp_path / "file").read_text() == "mine"


def test_rows_are_never_written_over(sesa, questions_file, corpus_file, tmp_path):
    out = tmp_path / "rows.jsonl"
    assert sesa("oracle", "--data", questions_file, "--corpus", corpus_file, "--out", out)[0] == 0
    before = out.read_text()
    code, _, err = sesa("oracle", "--data", questions_file, "--corpus", corpus_file, "--out", out)
    assert (code, "must be a new file" in err) == (2, True)
    assert out.read_text() == before


def test_a_missing_extra_is_named(sesa, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "transformers.utils", None)
    code, _, err = sesa("train", "method=ssp")
    assert code == 2
    assert "sesa-env[train]" in err


def test_a_bug_keeps_its_traceback(sesa, monkeypatch):
    monkeypatch.setattr("benchmarks.datasets.load_dataset", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sesa("oracle", "--data", "atlas:1")


@pytest.mark.parametrize(("before", "after"), [(None, "1000"), ("7", "7")])
def test_threads_give_way_while_they_wait_unless_the_user_says_otherwise(sesa, tmp_path, monkeypatch, before, after):
    if before is None:
        monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    else:
        monkeypatch.setenv("GOMP_SPINCOUNT", before)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    sesa("skills", "list", tmp_path / "nowhere")
    assert os.environ["GOMP_SPINCOUNT"] == after
