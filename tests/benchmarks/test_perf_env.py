"""The contenders are given the same work, and the tables say what was measured; how fast they are is not tested."""

import json
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("typer")

from typer import Typer
from typer.testing import CliRunner

from benchmarks.perf import env, vector
from benchmarks.perf.contenders import made, play
from benchmarks.perf.env import Cost, Process, install, make_work, measure, report
from sesa_env.errors import BackendUnavailable, InvalidInput


def command(main):
    app = Typer()
    app.command()(main)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_a_contender_plays_whole_episodes_with_the_documents_it_was_given(tmp_path):
    work = json.loads(make_work(tmp_path).read_text(encoding="utf-8"))
    contender, steps = made(work), []
    contender.found.choose("seen")

    def start():
        step = contender.start()

        def taken(text):
            steps.append(step(text))
            return steps[-1]

        return taken

    seconds = play(start, work["turns"], episodes=2, name="a")
    assert seconds["steps"] > 0.0 < seconds["starts"]
    assert [step[1] for step in steps] == [0.0, 0.0, 0.0, 1.0] * 2
    assert [step[2] for step in steps] == [False, False, False, True] * 2
    titles = [document.partition("\n")[0] for document in work["documents"]["seen"][0]]
    assert all(title in step[0]["observation"] for step in steps[:3] for title in titles)
    assert "NUMBER" not in steps[3][0]["transcript"] != steps[7][0]["transcript"]


def test_new_documents_are_more_than_a_cache_keeps_and_none_comes_twice(tmp_path):
    from sesa_env.text import _rendered

    documents = json.loads(make_work(tmp_path).read_text(encoding="utf-8"))["documents"]
    new = [text for result in documents["new"] for text in result]
    assert len(set(new)) == len(new)
    assert len(documents["new"]) > _rendered.cache_parameters()["maxsize"]
    assert {len(result) for result in documents["new"]} == {3}
    assert documents["seen"] == documents["new"][:1]


def test_the_contenders_take_turns_and_every_repeat_is_counted():
    asked = []

    class Timed:
        def __init__(self, name, step_s):
            self.name, self.step_s = name, step_s

        def play(self, documents, *, episodes):
            asked.append((documents, self.name))
            return {"steps": 4 * episodes * self.step_s, "starts": episodes * 1e-5}

    costs = measure({"made": Timed("made", 2e-5), "peer": Timed("peer", 5e-5)}, episodes=10, repeats=2)
    assert asked[:2] == [("new", "made"), ("new", "peer")]
    assert asked[4:6] == [("new", "peer"), ("new", "made")]
    assert len(costs) == 8
    assert costs[0] == Cost("made", "new", 0, pytest.approx(20.0), pytest.approx(10.0))
    heading, *rows = report(costs).splitlines()
    assert heading.split() == ["documents", "contender", "us", "a", "step", "us", "a", "start", "times", "`made`"]
    assert [row.split()[:2] for row in rows] == [["new", "made"], ["new", "peer"], ["seen", "made"], ["seen", "peer"]]
    figures = ["50.0", "(50.0", "to", "50.0)", "10.0", "(10.0", "to", "10.0)", "2.50", "(2.50", "to", "2.50)"]
    assert rows[1].split() == ["new", "peer", *figures]


def test_the_command_measures_both_faces_in_processes_of_their_own(tmp_path):
    out = tmp_path / "rows.jsonl"
    done = command(env.main)("--episodes", "3", "--repeats", "2", "--out", str(out))
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert {(row["contender"], row["documents"]) for row in rows} == {
        (name, kind) for name in ("raw", "made") for kind in ("new", "seen")
    }
    assert len(rows) == 8
    assert all(row["step_us"] > 0.0 < row["start_us"] for row in rows)


def test_a_contender_that_does_not_run_is_told(tmp_path):
    with pytest.raises(BackendUnavailable, match="gem-llm does not run: ModuleNotFoundError"):
        Process("gem-llm", sys.executable, make_work(tmp_path))


def test_a_peer_that_cannot_be_installed_is_told_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setitem(env.PEERS, "gem-llm", (str(tmp_path / "no-such-package"),))
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="gem-llm cannot be installed: "):
            install("gem-llm", tmp_path)


def test_the_vector_benchmark_asks_all_ways_for_as_much(tmp_path):
    out = tmp_path / "rows.jsonl"
    arguments = ("--slots", "4", "--alike", "2", "--rounds", "1", "--repeats", "2", "--out", str(out))
    done = command(vector.main)(*arguments)
    assert done.exit_code == 0, done.output
    heading, *lines = done.output.strip().splitlines()
    assert heading == "backend bm25, corpus atlas, slots 4, alike 2"
    assert [line.partition("  ")[0] for line in lines[:3]] == ["vector", "single", "tool at once"]
    assert [line.partition(":")[0] for line in lines[4:]] == ["vector / single", "tool at once / tool one by one"]
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 2 * len(vector.WAYS)
    assert all(row["searches_per_s"] > 0.0 for row in rows)


def test_all_ways_search_for_the_same_questions_and_none_is_asked_again():
    asked = {way: [] for way in vector.WAYS}

    def timed(way):
        return lambda ticks: asked[way].append(ticks) or 1.0

    ways = SimpleNamespace(timed={way: timed(way) for way in vector.WAYS})
    rates = vector.measure(ways, [f"question {n}?" for n in range(40)], slots=6, alike=3, rounds=2, repeats=2)
    assert [rate.searches_per_s for rate in rates] == [2 * vector.TICKS * 6 / 2.0] * 8
    questions = [
        [[query.rpartition(" ")[0] for queries in ticks for query in queries] for ticks in asked[way][1:]]
        for way in vector.WAYS
    ]
    assert questions[0] == questions[1] == questions[2] == questions[3]
    queries = [query for ways in asked.values() for ticks in ways for queries in ticks for query in queries]
    assert len(queries) == 3 * len(set(queries))  # alike slots share theirs


def test_slots_that_cannot_be_filled_are_refused():
    for slots, alike in ((6, 4), (6, 1)):
        with pytest.raises(InvalidInput, match="alike must divide 6 slots"):
            vector.measure(None, ["a?", "b?"], slots=slots, alike=alike, rounds=1, repeats=1)
