"""Intervals for what the benchmarks report: a proportion, a mean, a difference paired by question.

A single question, or questions that all came out alike, say nothing about their own spread.  They get no interval
instead of one of width zero, which would read as certainty.

    proportion(41, 120)                                            # Wilson
    mean([0.5, 1.0, 0.0], rng=np.random.default_rng(0))            # bootstrap over questions
    paired_difference(on, off, rng=np.random.default_rng(0))       # {question id: score} for each arm

Several seeds are several runs, and their attempts at the same question are not independent: `mean_over_seeds` draws
seeds and questions anew, each as a whole, and nothing else pools them.  Where each run has scores for other questions,
`mean_difference` does the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np

from sesa_env.errors import InvalidInput, MissingDependency

RESAMPLES = 9_999
"""Bootstrap resamples; at this many, the ends of a 95 % interval move by about 1 % of its width between seeds."""

BATCH = 256
"""Resamples drawn at once: 256 x 10,000 questions are 20 MB."""

LEAST_SCORES = 20
"""Scores that each run must have where runs have them for other questions each."""


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A number from `n` questions and its interval, or the reason in `why_none` for there being none."""

    value: float
    interval: Interval | None
    n: int
    why_none: str = ""

    @property
    def excludes_zero(self) -> bool:
        """Whether there is an interval and zero lies outside it."""
        return self.interval is not None and not self.interval.low <= 0.0 <= self.interval.high

    def bounds(self, sign: str = "") -> str:
        """Return the interval in per cent, such as "[1.0, 2.5]", with `sign` before positive numbers; or why none."""
        if self.interval is None:
            return f"none: {self.why_none}"
        return f"[{100 * self.interval.low:{sign}.1f}, {100 * self.interval.high:{sign}.1f}]"


class Difference(NamedTuple):
    """How the first arm differs from the second on the same questions.

    `estimate` is the mean of first minus second; `better` and `worse` count the questions on which the first arm
    scored higher and lower.
    """

    estimate: Estimate
    better: int
    worse: int


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval for a proportion.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).

    Args:
        successes: how many of `n` succeeded.
        n: how many were tried, at least 1.
        confidence: share of intervals that are meant to contain the truth, between 0 and 1.

    Raises:
        InvalidInput: an argument breaks its rule.
    """
    _check_confidence(confidence)
    if not 0 <= successes <= n or n < 1:
        raise InvalidInput(f"successes and n must satisfy 0 <= successes <= n and n >= 1, got {successes!r} and {n!r}")
    interval = _scipy_stats().binomtest(successes, n).proportion_ci(confidence_level=confidence, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def proportion(successes: int, n: int, *, confidence: float = 0.95) -> Estimate:
    """Return the share of successes with Wilson's interval; no interval for one trial.

    Unlike the bootstrap, Wilson's interval is informative when all trials came out alike, so those keep theirs.

    Raises:
        InvalidInput: an argument breaks its rule (see `wilson`).
    """
    interval = wilson(successes, n, confidence=confidence)
    if n == 1:
        return Estimate(float(successes), None, 1, why_none="n=1")
    return Estimate(successes / n, interval, n)


def mean(values: Sequence[float], *, rng: np.random.Generator, confidence: float = 0.95) -> Estimate:
    """Return the mean with a percentile bootstrap interval over the values.

    One value, or values that are all equal, have no interval: every resample would give the same mean.  Below about
    50 values the interval is too narrow: at 20, simulated 95 % intervals held the truth 88 to 92 times in 100.
    Source: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.

    Args:
        values: one number per question.
        rng: where the resamples come from; the same state gives the same interval.
        confidence: share of intervals that are meant to contain the truth, between 0 and 1.

    Raises:
        InvalidInput: no values, a value that is not finite, or a confidence outside (0, 1).
    """
    _check_confidence(confidence)
    value_Q = np.asarray(values, dtype=np.float64)
    if value_Q.ndim != 1 or value_Q.size == 0 or not np.isfinite(value_Q).all():
        raise InvalidInput(f"values must be a non-empty flat sequence of finite numbers, got {values!r}")
    n = value_Q.size
    if (value_Q == value_Q[0]).all():
        return Estimate(float(value_Q[0]), None, n, why_none="n=1" if n == 1 else "all alike")
    return Estimate(math.fsum(value_Q) / n, _bootstrap(value_Q, rng=rng, confidence=confidence), n)


def paired_difference(
    first: Mapping[str, float], second: Mapping[str, float], *, rng: np.random.Generator, confidence: float = 0.95
) -> Difference:
    """Compare two arms question by question: mean of first minus second, with a bootstrap interval over questions.

    Args:
        first: score by question id, such as the arm with the memory on.
        second: score by question id, over the same questions.
        rng: where the resamples come from; the same state gives the same interval.
        confidence: share of intervals that are meant to contain the truth, between 0 and 1.

    Raises:
        InvalidInput: the arms answered different questions, or `mean` refuses the differences.
    """
    if unpaired := sorted(first.keys() ^ second.keys()):
        raise InvalidInput(
            f"first and second must score the same questions, got {len(unpaired)} in one arm only, as {unpaired[0]!r}"
        )
    differences = [first[question] - second[question] for question in sorted(first)]
    return Difference(
        mean(differences, rng=rng, confidence=confidence),
        better=sum(difference > 0 for difference in differences),
        worse=sum(difference < 0 for difference in differences),
    )


def two_sample_difference(
    first: Sequence[float], second: Sequence[float], *, rng: np.random.Generator, confidence: float = 0.95
) -> Estimate:
    """Return the mean of `first` minus that of `second`, which are not paired, with a percentile bootstrap interval.

    Args:
        first: numbers of any count.
        second: likewise.
        rng: where the resamples come from; the same state gives the same interval.
        confidence: share of intervals that are meant to contain the truth, between 0 and 1.

    Raises:
        InvalidInput: one of them is empty, a value is not finite, or confidence lies outside (0, 1).
    """
    _check_confidence(confidence)
    samples = [np.asarray(values, dtype=np.float64) for values in (first, second)]
    for name, sample in zip(("first", "second"), samples, strict=True):
        if sample.ndim != 1 or sample.size == 0 or not np.isfinite(sample).all():
            raise InvalidInput(f"{name} must be a non-empty flat sequence of finite numbers, got {sample!r}")
    value, n = float(samples[0].mean() - samples[1].mean()), sum(sample.size for sample in samples)
    if all((sample == sample[0]).all() for sample in samples):
        return Estimate(value, None, n, why_none="all alike")
    result = _scipy_stats().bootstrap(
        samples,
        lambda one, other, axis: one.mean(axis=axis) - other.mean(axis=axis),
        n_resamples=RESAMPLES,
        batch=BATCH,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        rng=rng,
    )
    return Estimate(value, Interval(*map(float, result.confidence_interval)), n)


def mean_over_seeds(
    scores: Sequence[Mapping[str, float]], *, rng: np.random.Generator, confidence: float = 0.95
) -> Estimate:
    """Return the mean over seeds and questions; each resample draws seeds, and questions that are the same for all.

    A handful of seeds says little about all seeds: with three, the interval is too narrow for that part.  One seed
    alone gives the interval over questions.

    Args:
        scores: for each seed, score by question id; scores of a difference may be negative.
        rng: where the resamples come from; the same state gives the same interval.
        confidence: share of intervals that are meant to contain the truth, between 0 and 1.

    Raises:
        InvalidInput: no seeds, seeds with different questions, or what `mean` refuses.
    """
    if not scores:
        raise InvalidInput("scores must hold at least one seed, got none")
    for one in scores[1:]:
        if unlike := sorted(one.keys() ^ scores[0].keys()):
            raise InvalidInput(f"all seeds must score the same questions, got {unlike[0]!r} in some only")
    order = sorted(scores[0])
    value_SQ = np.array([[one[question] for question in order] for one in scores], dtype=np.float64)
    over_questions = mean(value_SQ.mean(axis=0).tolist(), rng=rng, confidence=confidence)
    if len(scores) == 1 or over_questions.interval is None:
        return over_questions
    resampled = _scipy_stats().bootstrap(
        tuple(np.arange(size) for size in value_SQ.shape),
        lambda seed_S, question_Q: value_SQ[np.ix_(seed_S, question_Q)].mean(),
        n_resamples=RESAMPLES,
        vectorized=False,
        confidence_level=confidence,
        method="percentile",
        rng=rng,
    )
    low, high = resampled.confidence_interval
    return over_questions._replace(interval=Interval(float(low), float(high)))


def mean_difference(
    first: Sequence[Mapping[str, float]],
    second: Sequence[Mapping[str, float]],
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> Estimate:
    """Return the mean score of `first` minus that of `second`, where each run may have scores for other questions.

    Each resample draws seeds on both sides, and questions with whatever scores the drawn runs have for them: runs that
    scored a question alike do not count as so many questions.

    Args:
        first: for each seed, score by question id.
        second: likewise.
        rng: where the resamples come from; the same state gives the same interval.
        confidence: share of intervals that are meant to contain the truth, between 0 and 1.

    Raises:
        InvalidInput: a side has no scores, one is not finite, or confidence lies outside (0, 1).
    """
    _check_confidence(confidence)
    order = sorted({question for run in (*first, *second) for question in run})
    tables, counts = [], []
    for name, side in (("first", first), ("second", second)):
        scores = [score for run in side for score in run.values()]
        if not scores or not np.isfinite(scores).all():
            raise InvalidInput(f"{name} must hold scores, all of them finite, got {scores!r:.80}")
        tables.append(np.array([[run.get(question, 0.0) for question in order] for run in side]))
        counts.append(np.array([[question in run for question in order] for run in side]))

    def gap(*drawn: np.ndarray) -> float:
        question_Q = drawn[2]
        one, other = (
            score_SQ[np.ix_(seed_S, question_Q)].sum() / count_SQ[np.ix_(seed_S, question_Q)].sum()
            for score_SQ, count_SQ, seed_S in zip(tables, counts, drawn, strict=False)
        )
        return float(one - other)

    everything = [*(np.arange(len(table)) for table in tables), np.arange(len(order))]
    value = gap(*everything)
    if all(len({score for run in side for score in run.values()}) == 1 for side in (first, second)):
        return Estimate(value, None, len(order), why_none="all alike")
    if min(len(run) for run in (*first, *second)) < LEAST_SCORES:  # or a resample could be without any
        return Estimate(value, None, len(order), why_none=f"fewer than {LEAST_SCORES} in a run")
    everything[:2] = [seed_S if len(seed_S) > 1 else np.zeros(2, dtype=int) for seed_S in everything[:2]]
    result = _scipy_stats().bootstrap(
        everything,
        gap,
        n_resamples=RESAMPLES,
        vectorized=False,
        confidence_level=confidence,
        method="percentile",
        rng=rng,
    )
    return Estimate(value, Interval(*map(float, result.confidence_interval)), len(order))


def _bootstrap(value_Q: np.ndarray, *, rng: np.random.Generator, confidence: float) -> Interval:
    result = _scipy_stats().bootstrap(
        (value_Q,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=BATCH,
        confidence_level=confidence,
        method="percentile",
        rng=rng,
    )
    return Interval(float(result.confidence_interval.low), float(result.confidence_interval.high))


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence!r}")


def _scipy_stats() -> ModuleType:
    try:
        import scipy.stats
    except ImportError as error:
        raise MissingDependency(
            "benchmarks.statistics needs the extra `cli` (scipy): pip install 'sesa-env[cli]'"
        ) from error
    return scipy.stats
