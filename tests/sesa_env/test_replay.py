import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.errors import InvalidInput, SettingsError
from sesa_env.replay import Kept, ReplayPool, ReplaySettings
from sesa_env.types import Question


def question(number, *, text=None, answer="Nile"):
    return Question(f"q{number}", text or f"Which river has number {number}?", (answer,), hops=2)


def filled(rates, *, seed=0, **options):
    pool = ReplayPool(ReplaySettings(**options), seed=seed)
    for number, rate in enumerate(rates):
        pool.add(question(number), solve_rate=rate)
    return pool


def test_an_empty_pool_gives_nothing_and_makes_nothing_up():
    assert ReplayPool().draw(3) == []
    assert filled([1.0, 0.9], max_solve_rate=0.5).draw(3) == []


def test_what_is_drawn_is_different_and_stays():
    pool = filled([0.5] * 5)
    drawn = pool.draw(3)
    assert len(set(drawn)) == 3
    assert len(pool) == 5
    assert set(pool.draw(99)) == {question(number) for number in range(5)}
    assert pool.draw(0) == []


def test_the_threshold_is_on_the_stored_solve_rate_and_includes_itself():
    pool = filled([0.2, 0.5, 0.51, 1.0, 0.0], max_solve_rate=0.5)
    assert {item.id for item in pool.draw(9)} == {"q0", "q1", "q4"}
    pool.add(question(3), solve_rate=0.25)
    assert {item.id for item in pool.draw(9)} == {"q0", "q1", "q3", "q4"}


def test_a_duplicate_takes_the_fresh_solve_rate_and_the_place_of_the_newest():
    pool = filled([0.1, 0.2, 0.3], capacity=3)
    again = question(9, text="which RIVER has the number 0")
    pool.add(again, solve_rate=0.9)
    assert pool.kept == (Kept(question(1), 0.2), Kept(question(2), 0.3), Kept(again, 0.9))
    pool.add(question(5), solve_rate=0.5)
    assert [kept.question.id for kept in pool.kept] == ["q2", "q9", "q5"]


def test_draws_are_uniform():
    pool, draws = filled([0.5] * 4), 4000
    counts = Counter(pool.draw(1)[0].id for _ in range(draws))
    # The standard error of a share of 1/4 is 0.0068; four of them make the margin.
    assert all(abs(counts[f"q{number}"] / draws - 0.25) < 4 * 0.0068 for number in range(4))


def test_equal_seeds_draw_alike_and_global_randomness_plays_no_part():
    def draws(seed):
        np.random.seed(len(str(seed)))  # noqa: NPY002
        pool = filled([0.5] * 20, seed=seed)
        return [pool.draw(3) for _ in range(3)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def test_every_nth_step_empties_the_pool():
    pool = filled([0.5], reset_every=3)
    assert [(pool.end_step(), len(pool)) for _ in range(3)] == [(False, 1), (False, 1), (True, 0)]
    pool.add(question(0), solve_rate=0.5)
    assert [pool.end_step() for _ in range(3)] == [False, False, True]
    never = filled([0.5], reset_every=0)
    assert not any(never.end_step() for _ in range(50))
    assert len(never) == 1


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(0, 1)), max_size=30), st.integers(0, 5))
def test_the_pool_has_the_latest_distinct_questions(added, capacity):
    pool = ReplayPool(ReplaySettings(capacity=capacity))
    for number, rate in added:
        pool.add(question(number), solve_rate=rate)
    latest = dict.fromkeys(number for number, _ in reversed(added))  # newest first
    assert [kept.question.id for kept in pool.kept] == [f"q{number}" for number in [*latest][:capacity]][::-1]
    assert {kept.question.id: kept.solve_rate for kept in pool.kept}.items() <= {f"q{n}": r for n, r in added}.items()


def test_a_pool_that_was_put_back_goes_on_as_if_nothing_had_happened():
    pool = filled([0.1, 0.7, 0.3], seed=3, reset_every=2)
    pool.add(Question("q·", "東京はどこ？", ("日本", "Japan"), supporting_titles=("Tokyo",)), solve_rate=0.5)
    pool.draw(2)
    pool.end_step()
    other = ReplayPool(ReplaySettings(reset_every=2), seed=8)
    other.set_state(json.loads(json.dumps(pool.get_state())))
    assert other.kept == pool.kept
    assert [other.draw(2) for _ in range(5)] == [pool.draw(2) for _ in range(5)]
    assert other.end_step() is pool.end_step() is True


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"kept": 3},
        {"kept": [{"question": {}, "solve_rate": 0.5}]},
        {"random": {}},
        {"steps": "x"},
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(change):
    pool = filled([0.5])
    with pytest.raises(InvalidInput, match="state must be what get_state returned"):
        pool.set_state({**pool.get_state(), **change})
    assert len(pool) == 1


def test_a_state_with_a_bad_rate_or_too_many_questions_is_refused():
    state = filled([0.5, 0.5]).get_state()
    with pytest.raises(InvalidInput, match="at most 1 questions, got 2"):
        ReplayPool(ReplaySettings(capacity=1)).set_state(state)
    state["kept"][0]["solve_rate"] = 1.5
    with pytest.raises(InvalidInput, match=r"solve_rate must lie in \[0, 1\]"):
        ReplayPool().set_state(json.loads(json.dumps(state)))


@pytest.mark.parametrize(
    "options",
    [{"capacity": -1}, {"capacity": True}, {"max_solve_rate": 1.1}, {"reset_every": -1}, {"reset_every": 1.5}],
)
def test_limits_are_checked(options):
    with pytest.raises(SettingsError, match=f"replay.{next(iter(options))} must"):
        ReplaySettings(**options)


@pytest.mark.parametrize("rate", [None, float("nan"), -0.1, 1.1, True])
def test_a_question_without_a_solve_rate_is_not_kept(rate):
    with pytest.raises(InvalidInput, match=r"solve_rate must lie in \[0, 1\]"):
        ReplayPool().add(question(0), solve_rate=rate)


def test_a_negative_number_is_not_drawn():
    with pytest.raises(InvalidInput, match="number must be at least 0, got -1"):
        ReplayPool().draw(-1)
