"""Deadlines and retries: a search that fails says so, in bounded time, and never as an empty result."""

import pickle
import threading
import time

import pytest

from sesa_env.errors import InvalidInput, SearchTimeout, SearchUnavailable
from sesa_env.game import Game, GameSettings, Move, advance
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.base import Retriever
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.retrieval.guard import GuardedRetriever
from sesa_env.testing import check_retriever
from sesa_env.types import Passage, Question

PASSAGES = [
    Passage("a", "Nile", "A river of Egypt."),
    Passage("b", "Rhine", "A river past Basel."),
    Passage("c", "Aswan", "A city of Egypt by the river."),
]
FOUND = [[PASSAGES[0]]]


class Scripted:
    """Does one thing after the other: raises an exception, calls a function, or returns a value."""

    fingerprint = "scripted"

    def __init__(self, *script):
        self.script, self.calls, self.closed = list(script), 0, 0

    def search(self, queries, k):
        step = self.script[min(self.calls, len(self.script) - 1)]
        self.calls += 1
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else step

    def close(self):
        self.closed += 1


@pytest.fixture
def sleep():
    """A search that hangs until the test is over."""
    over = threading.Event()

    def hang():
        over.wait(60)
        return FOUND

    yield hang
    over.set()


def guarded(*script, **options):
    inner = Scripted(*script)
    return GuardedRetriever(inner, **{"deadline_s": 5.0, "pause_s": 0.001, **options}), inner


def test_what_is_found_in_time_passes_unchanged():
    guard = GuardedRetriever(Bm25Retriever.from_passages(PASSAGES, "c"))
    assert isinstance(guard, Retriever)
    assert guard.fingerprint == Bm25Retriever.from_passages(PASSAGES, "c").fingerprint
    check_retriever(guard, finds="Egypt river", other="Basel")


def test_nothing_found_is_no_failure():
    guard, inner = guarded([[]])
    assert guard.search(["q"], 3) == [[]]
    assert inner.calls == 1


def test_a_search_that_hangs_is_a_time_out_within_the_tries(sleep):
    guard, inner = guarded(sleep, deadline_s=0.1, retries=2)
    start = time.monotonic()
    with pytest.raises(SearchTimeout, match=r"more than 0\.1 s"):
        guard.search(["q"], 3)
    assert inner.calls == 3
    assert 0.3 <= time.monotonic() - start < 5


def test_the_budget_bounds_all_tries_together(sleep):
    guard, inner = guarded(sleep, deadline_s=0.2, retries=1000, budget_s=0.5, max_abandoned=1000)
    start = time.monotonic()
    with pytest.raises(SearchTimeout):
        guard.search(["q"], 3)
    assert 2 <= inner.calls <= 3
    assert time.monotonic() - start < 5


def test_no_pause_is_begun_that_the_budget_cannot_hold():
    guard, inner = guarded(SearchUnavailable("down"), budget_s=1.0, pause_s=60.0, retries=5)
    start = time.monotonic()
    with pytest.raises(SearchUnavailable, match="down"):
        guard.search(["q"], 3)
    assert inner.calls == 1
    assert time.monotonic() - start < 5


def test_pauses_double(monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    guard, _ = guarded(SearchUnavailable("down"), pause_s=0.5, retries=3)
    with pytest.raises(SearchUnavailable):
        guard.search(["q"], 3)
    assert pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("outage", [SearchUnavailable("down"), ConnectionResetError("reset"), SearchTimeout("slow")])
def test_an_outage_that_passes_is_forgotten(outage):
    guard, inner = guarded(outage, outage, FOUND)
    assert guard.search(["q"], 3) == FOUND
    assert inner.calls == 3


@pytest.mark.parametrize(
    ("outage", "kind"),
    [
        (SearchUnavailable("down"), SearchUnavailable),
        (SearchTimeout("slow"), SearchTimeout),
        (TimeoutError("socket"), SearchTimeout),
        (ConnectionRefusedError("refused"), SearchUnavailable),
    ],
)
def test_an_outage_that_stays_is_raised_with_its_cause(outage, kind):
    guard, inner = guarded(outage, retries=2)
    with pytest.raises(kind) as caught:
        guard.search(["q"], 3)
    assert type(caught.value) is kind
    assert outage in (caught.value, caught.value.__cause__)
    assert inner.calls == 3


@pytest.mark.parametrize("bug", [ValueError("bug"), InvalidInput("k"), KeyboardInterrupt()])
def test_a_bug_is_not_tried_again(bug):
    guard, inner = guarded(bug, FOUND)
    with pytest.raises(type(bug)):
        guard.search(["q"], 3)
    assert inner.calls == 1


@pytest.mark.parametrize("half", [[], None, [[], []]])
def test_an_answer_of_another_length_is_an_outage(half):
    guard, _ = guarded(half, retries=0)
    with pytest.raises(SearchUnavailable, match="1 lists"):
        guard.search(["q"], 3)


def test_searches_left_behind_are_bounded_and_counted_down(sleep):
    release = threading.Event()
    guard, inner = guarded(lambda: release.wait(60) and FOUND, deadline_s=0.02, retries=0, max_abandoned=2)
    for _ in range(2):
        with pytest.raises(SearchTimeout):
            guard.search(["q"], 3)
    with pytest.raises(SearchUnavailable, match="2 searches past their deadline") as caught:
        guard.search(["q"], 3)
    assert not isinstance(caught.value, SearchTimeout)
    assert inner.calls == 2
    release.set()
    for thread in list(guard._abandoned):
        thread.join(5)
    guard._deadline_s = 5.0
    assert guard.search(["q"], 3) == FOUND


def test_bad_arguments_are_refused_and_not_searched():
    guard, inner = guarded(FOUND)
    for queries, k in (("q", 1), (["q"], 0)):
        with pytest.raises(InvalidInput):
            guard.search(queries, k)
    assert inner.calls == 0


@pytest.mark.parametrize(
    "options",
    [{"deadline_s": 0}, {"budget_s": -1}, {"retries": -1}, {"pause_s": -0.1}, {"max_abandoned": 0}],
)
def test_numbers_out_of_range_are_refused_by_name(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        guarded(FOUND, **options)


def test_a_pickled_copy_searches_and_closing_closes():
    guard = pickle.loads(pickle.dumps(GuardedRetriever(Scripted(FOUND))))
    assert guard.search(["q"], 1) == FOUND
    guard.close()
    assert guard._retriever.closed == 1


def test_a_game_masks_the_attempt_that_met_a_time_out(sleep):
    guard, _ = guarded(sleep, deadline_s=0.05, retries=0)
    game = Game(GameSettings(attempts=2), judge=ExactMatchJudge(), id="r")
    game.ask(Question("q", "Which river floods Egypt?", ("Nile",)))
    advance([Move(game, "solver_0", "<search>river</search>"), Move(game, "solver_1", "<answer>Nile</answer>")], guard)
    masked, scored = game.result.solvers
    assert (masked.usable, masked.end_reason) == (False, "search_unavailable")
    assert (scored.usable, scored.reward, game.result.solve_rate) == (True, 1.0, 1.0)
