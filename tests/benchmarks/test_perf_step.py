"""Both trainers are given the same work, and the table says what was measured; how fast they are is not tested."""

import json
import sys

import pytest

pytest.importorskip("typer")

from typer import Typer
from typer.testing import CliRunner

from benchmarks.perf import step
from benchmarks.perf.step import Process, install, make_work, measure, report
from benchmarks.perf.trainers import Script
from sesa_env.errors import BackendUnavailable, InvalidInput

TINY = ("--questions", "2", "--attempts", "2", "--searches", "1", "--written", "3", "--repeats", "1", "--no-warm")


def command(*arguments):
    app = Typer()
    app.command()(step.main)
    return CliRunner().invoke(app, arguments)


def took(seconds, *, written=64, read=100, peak=2**30):
    figures = {"seconds": seconds, "writing": seconds / 4, "processor": seconds / 2, "processor_writing": seconds / 8}
    return {**figures, "prompt": 50, "written": written, "read": read, "peak_bytes": peak}


class Timed:
    def __init__(self, name, asked, **figures):
        self.name, self.asked, self.figures = name, asked, figures

    def step(self):
        self.asked.append(self.name)
        return took(**self.figures)


def test_every_attempt_searches_for_its_own_and_every_second_one_is_right():
    script = Script({"questions": ["a", "b"], "attempts": 2, "turns": 3})
    for turn in range(2):
        searched = [script.next() for _ in range(4)]
        assert searched == [("search", f"{question} {own} {turn}") for question in range(2) for own in range(2)]
    answered = [("answer", "no"), ("answer", "yes")] * 2
    assert [script.next() for _ in range(4)] == answered
    script.restart()
    assert script.next() == ("search", "0 0 0")


def test_the_work_holds_a_result_for_every_search_and_what_the_environment_would_show(tmp_path):
    made = make_work(tmp_path, model="small", questions=2, attempts=3, turns=4, written=5, train="full")
    work = json.loads(made.read_text(encoding="utf-8"))
    assert len(work["found"]) == 2 * 3 * 3
    texts = [result["text"] for result in work["found"].values()]
    assert len(set(texts)) == len(texts)
    assert all(title in result["text"] for result in work["found"].values() for _, title, *_ in result["passages"])
    assert work["prompts"][0][0]["role"] == "system"
    assert work["questions"][1] in work["prompts"][1][-1]["content"]


def test_the_trainers_take_turns_after_a_step_that_does_not_count():
    asked = []
    processes = {"ours": Timed("ours", asked, seconds=2.0), "trl": Timed("trl", asked, seconds=9.0, peak=3 * 2**30)}
    rows = measure(processes, repeats=2, warm=True)
    assert asked == ["ours", "trl", "ours", "trl", "trl", "ours"]
    assert [(row["contender"], row["repeat"]) for row in rows] == [("ours", 0), ("trl", 0), ("trl", 1), ("ours", 1)]
    ours, theirs = report(rows).splitlines()[1:]
    assert ours.split()[:4] == ["ours", "2.0", "(2.0", "to"]
    assert theirs.split()[-6:] == ["4.50", "(4.50", "to", "4.50)", "3.00", "3.00"]
    asked.clear()
    measure(processes, repeats=1, warm=False)
    assert asked == ["ours", "trl"]


@pytest.mark.parametrize(("other", "says"), [({"written": 63}, "63 to 64 written"), ({"read": 90}, "90 to 100 read")])
def test_trainers_that_do_not_do_the_same_work_are_not_compared(other, says):
    processes = {"ours": Timed("ours", [], seconds=2.0), "trl": Timed("trl", [], seconds=9.0, **other)}
    with pytest.raises(InvalidInput, match=says):
        measure(processes, repeats=1, warm=False)
    nearly = {**processes, "trl": Timed("trl", [], seconds=9.0, read=99)}
    assert len(measure(nearly, repeats=1, warm=False)) == 2


@pytest.mark.parametrize("train", ["full", "lora"])
def test_the_command_takes_a_whole_step_of_ours(tmp_path, train):
    out = tmp_path / "rows.jsonl"
    done = command(*TINY, "--no-peer", "--dtype", "float32", "--train", train, "--out", str(out))
    assert done.exit_code == 0, done.output
    (row,) = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert (row["contender"], row["written"], row["train"]) == ("ours", 2 * 2 * 2 * 3, train)
    assert 0.0 < row["writing"] < row["seconds"]
    assert 0.0 < row["processor_writing"] < row["processor"]
    assert row["peak_bytes"] > 1e8
    assert row["read"] > 0 < row["prompt"]


def test_a_trainer_that_does_not_run_is_told(tmp_path):
    work = make_work(tmp_path, model="small", questions=1, attempts=2, turns=2, written=2)
    process = Process("trl", sys.executable, work)
    try:
        with pytest.raises(BackendUnavailable, match="trl does not run: ModuleNotFoundError"):
            process.step()
    finally:
        process.close()


def test_a_trainer_that_cannot_be_installed_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "TRL", str(tmp_path / "no-such-package"))
    with pytest.raises(BackendUnavailable, match="cannot be installed: "):
        install(tmp_path)
