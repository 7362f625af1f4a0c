"""Intervals must cover as often as they claim, be reproducible, and be absent where the data cannot carry them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.statistics import (
    Difference,
    Estimate,
    Interval,
    mean,
    mean_difference,
    paired_difference,
    proportion,
    wilson,
)
from sesa_env.errors import InvalidInput


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def wilson_by_formula(successes: int, n: int, z: float) -> tuple[float, float]:
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return centre - half, centre + half


@settings(deadline=None)  # the first example imports scipy
@given(n=st.integers(1, 5_000), data=st.data())
def test_wilson_agrees_with_its_closed_form(n, data):
    successes = data.draw(st.integers(0, n))
    assert wilson(successes, n) == pytest.approx(wilson_by_formula(successes, n, 1.959963984540054), abs=1e-9)
    assert wilson(successes, n, confidence=0.9) == pytest.approx(
        wilson_by_formula(successes, n, 1.6448536269514722), abs=1e-9
    )


def test_wilson_on_textbook_numbers():
    # 0 of 10 has the closed form [0, z^2 / (10 + z^2)].
    assert wilson(0, 10) == pytest.approx((0.0, 3.841458820694124 / 13.841458820694124))
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


def test_wilson_covers_the_truth_as_often_as_it_claims():
    truth, asked, trials = 0.3, 200, 2_000
    intervals = [wilson(int(k), asked) for k in rng().binomial(asked, truth, size=trials)]
    coverage = np.mean([low <= truth <= high for low, high in intervals])
    # The standard error of the coverage is 0.005 here; four of them make the margin.
    assert abs(coverage - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (0, 0), (1, -1)])
def test_wilson_refuses_impossible_counts(successes, n):
    with pytest.raises(InvalidInput, match="successes"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, math.nan])
def test_an_impossible_confidence_is_refused_everywhere(confidence):
    for call in (
        lambda: wilson(1, 2, confidence=confidence),
        lambda: proportion(1, 2, confidence=confidence),
        lambda: mean([1.0, 2.0], rng=rng(), confidence=confidence),
        lambda: paired_difference({"a": 1.0}, {"a": 0.0}, rng=rng(), confidence=confidence),
    ):
        with pytest.raises(InvalidInput, match="confidence"):
            call()


def test_one_trial_has_no_interval():
    assert proportion(1, 1) == Estimate(1.0, None, 1, "n=1")
    assert mean([0.25], rng=rng()) == Estimate(0.25, None, 1, "n=1")
    assert paired_difference({"a": 1.0}, {"a": 0.0}, rng=rng()).estimate == Estimate(1.0, None, 1, "n=1")


def test_a_proportion_of_equal_trials_keeps_its_interval():
    none, every = proportion(0, 50), proportion(50, 50)
    assert none.interval is not None
    assert every.interval is not None
    assert none.interval.low == pytest.approx(0.0, abs=1e-12)
    assert none.interval.high > 0.05
    assert every.interval.low < 0.95


def test_equal_values_have_a_mean_and_no_interval():
    # Ten times 0.1 sums to 0.9999999999999999: the mean of equal values is that value all the same.
    assert mean([0.1] * 10, rng=rng()) == Estimate(0.1, None, 10, "all alike")


def test_arms_that_never_differ_have_no_interval_and_no_winner():
    arm = {f"q{i}": float(i % 2) for i in range(20)}
    assert paired_difference(arm, dict(arm), rng=rng()) == Difference(Estimate(0.0, None, 20, "all alike"), 0, 0)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf, 0.0], [[1.0], [2.0]]])
def test_a_mean_of_nothing_or_of_nan_is_refused(values):
    with pytest.raises(InvalidInput, match="values"):
        mean(values, rng=rng())


def test_the_bootstrap_of_a_mean_agrees_with_the_normal_interval_on_many_values():
    values = rng(1).normal(loc=2.0, scale=3.0, size=2_000)
    estimate = mean(list(values), rng=rng())
    half = 1.959963984540054 * values.std(ddof=1) / math.sqrt(2_000)
    assert estimate.value == pytest.approx(values.mean())
    # Both ends carry resampling noise of about 1.5 % of the width at 9,999 resamples; 10 % is six of that.
    assert estimate.interval == pytest.approx((values.mean() - half, values.mean() + half), abs=0.2 * half)


def test_the_bootstrap_of_four_values_has_the_quantiles_of_the_binomial():
    # A resample of (0, 0, 0, 1) has Binomial(4, 1/4) ones: P(0) = 0.316, P(at most 2) = 0.949, P(at most 3) = 0.996.
    assert mean([0.0, 0.0, 0.0, 1.0], rng=rng()).interval == (0.0, 0.75)
    assert mean([0.0, 0.0, 0.0, 1.0], rng=rng(), confidence=0.85).interval == (0.0, 0.5)


def test_paired_intervals_cover_the_truth_as_often_as_they_claim(monkeypatch):
    monkeypatch.setattr("benchmarks.statistics.RESAMPLES", 499)
    generator, trials, questions = rng(), 600, 150
    covered = 0
    for _ in range(trials):
        changes = generator.choice([1.0, 0.0, -1.0], p=[0.15, 0.77, 0.08], size=questions)
        second = {str(i): 0.0 for i in range(questions)}
        first = {str(i): change for i, change in enumerate(changes)}
        interval = paired_difference(first, second, rng=generator).estimate.interval
        covered += interval.low <= 0.07 <= interval.high
    # Standard error 0.009; four of them, and 0.01 for the percentile interval's known shortness at 150 questions.
    assert abs(covered / trials - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials) + 0.01


def test_means_over_other_questions_each_cover_the_truth_as_often_as_they_claim(monkeypatch):
    """Three runs score each question alike, and half of the questions: only an interval over questions is honest."""
    monkeypatch.setattr("benchmarks.statistics.RESAMPLES", 499)
    generator, trials, questions = rng(), 400, 200
    covered = 0
    for _ in range(trials):
        sides = []
        for share in (0.6, 0.5):
            scores = {str(i): float(generator.random() < share) for i in range(questions) if generator.random() < 0.5}
            sides.append([scores] * 3)
        interval = mean_difference(*sides, rng=generator).interval
        covered += interval.low <= 0.1 <= interval.high
    # Standard error 0.011; four of them, and 0.01 for the percentile interval's known shortness at 100 questions.
    assert abs(covered / trials - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials) + 0.01


def test_means_over_other_questions_each_are_those_of_all_scores():
    one, other = ({str(i): float(i % 3 == 0) for i in range(start, start + 30)} for start in (0, 10))
    estimate = mean_difference([one, {**one, "99": 1.0}], [other], rng=rng())
    assert estimate.value == pytest.approx(21 / 61 - 10 / 30)
    assert estimate.n == 41
    assert estimate.interval is not None
    assert estimate.interval.low < 0 < estimate.interval.high


def test_seeds_that_differ_widen_the_interval_of_means_over_other_questions_each():
    questions = [str(i) for i in range(200)]
    alike = [{q: float(int(q) % 2) for q in questions} for _ in range(4)]
    apart = [{q: float(int(q) % 10 < share) for q in questions} for share in (2, 4, 6, 8)]
    second = [{q: float(int(q) % 2) for q in questions[:150]}]
    widths = []
    for first in (alike, apart):
        interval = mean_difference(first, second, rng=rng()).interval
        widths.append(interval.high - interval.low)
    assert widths[1] > 1.5 * widths[0]


def test_means_over_other_questions_each_need_some_scores_of_every_run():
    one = {str(i): float(i % 3 == 0) for i in range(30)}
    assert mean_difference([one, {"1": 1.0}], [one], rng=rng()).why_none == "fewer than 20 in a run"
    assert mean_difference([{"a": 1.0}], [{"b": 0.0}], rng=rng()).why_none == "all alike"
    for wrong in ([{}], [{"a": math.nan}]):
        with pytest.raises(InvalidInput, match="second must hold scores"):
            mean_difference([{"a": 1.0}], wrong, rng=rng())


def test_pairing_is_narrower_than_comparing_two_means_when_questions_differ_in_difficulty():
    generator = rng()
    ease = generator.uniform(0, 1, size=300)
    second = {str(i): value for i, value in enumerate(ease)}
    first = {str(i): value + 0.02 + generator.normal(scale=0.02) for i, value in enumerate(ease)}
    paired = paired_difference(first, second, rng=rng()).estimate
    alone = mean(list(first.values()), rng=rng())
    assert paired.excludes_zero
    assert (paired.interval.high - paired.interval.low) * 5 < alone.interval.high - alone.interval.low


def test_a_difference_counts_questions_gained_and_lost():
    on = {"a": 1.0, "b": 1.0, "c": 0.0, "d": 1.0}
    off = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 1.0}
    difference = paired_difference(on, off, rng=rng())
    assert (difference.better, difference.worse) == (2, 1)
    assert difference.estimate.value == pytest.approx(0.25)
    assert difference.estimate.n == 4


def test_arms_over_different_questions_are_refused():
    with pytest.raises(InvalidInput, match="same questions, got 2 in one arm only, as 'b'"):
        paired_difference({"a": 1.0, "b": 0.0}, {"a": 1.0, "c": 0.0}, rng=rng())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30))
def test_swapping_the_arms_mirrors_the_difference(pairs):
    first = {str(i): float(a) for i, (a, _) in enumerate(pairs)}
    second = {str(i): float(b) for i, (_, b) in enumerate(pairs)}
    there, back = paired_difference(first, second, rng=rng()), paired_difference(second, first, rng=rng())
    assert back.estimate.value == pytest.approx(-there.estimate.value)
    assert (back.better, back.worse) == (there.worse, there.better)
    if there.estimate.interval is not None:
        low, high = there.estimate.interval
        assert low <= there.estimate.value <= high
        # Same resamples, mirrored: only the interpolation between order statistics may differ.
        assert back.estimate.interval == pytest.approx((-high, -low), abs=1e-9)


def test_equal_seeds_give_equal_intervals_and_the_order_of_questions_does_not_matter():
    on = {str(i): math.sin(i) for i in range(40)}
    off = {str(i): math.cos(i) for i in range(40)}
    shuffled = dict(reversed(on.items()))
    assert paired_difference(on, off, rng=rng(7)) == paired_difference(shuffled, off, rng=rng(7))
    assert paired_difference(on, off, rng=rng(7)) != paired_difference(on, off, rng=rng(8))


@pytest.mark.parametrize(
    ("interval", "excluded"),
    [(Interval(0.1, 0.2), True), (Interval(-0.2, -0.1), True), (Interval(0.0, 0.2), False), (None, False)],
)
def test_zero_is_excluded_only_by_an_interval_without_it(interval, excluded):
    assert Estimate(0.1, interval, 10).excludes_zero is excluded


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - this test is about that generator
    mean([0.0, 1.0, 1.0], rng=rng())
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
