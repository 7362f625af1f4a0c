"""What the benchmark of the skill memory claims to compare is what it compares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.perf.memory import time_bank
from benchmarks.perf.search import DIMENSION, K, _exact, spectral, time_search, topical, unit
from benchmarks.perf.timing import Taken, in_turns, line_of, row_of, spread


def test_works_take_turns_and_the_first_round_does_not_count():
    calls, clock = [], itertools.count()

    def work(name):
        calls.append(name)
        return Taken(float(next(clock)), 0.0)

    taken = in_turns({"a": lambda: work("a"), "b": lambda: work("b")}, repeats=2)
    assert "".join(calls) == "ababab"
    assert [one.wall for one in taken["a"]] == [2.0, 4.0]


def test_a_row_says_median_spread_and_the_processors_time():
    taken = [Taken(0.003, 0.001), Taken(0.001, 0.001), Taken(0.008, 0.002)]
    assert spread(taken) == pytest.approx([3.0, 1.0, 8.0, 1.0])
    assert line_of(row_of("x", taken)) == "x: time 3.00 ms (1.00 to 8.00; processor 1.00)"
    assert Taken(6.0, 3.0).each(3) == (2.0, 1.0)


def test_vectors_have_length_one_and_the_frequent_topics_more_of_them():
    rng = np.random.default_rng(0)
    topics = spectral(50, DIMENSION, rng=rng)
    vector_ND = topical(4000, rng=rng, topics=topics)
    assert np.allclose(np.linalg.norm(vector_ND, axis=1), 1.0, atol=1e-5)
    nearest_N = np.argmax(vector_ND @ unit(topics).T, axis=1)
    # The first five topics have 1 / rank ** 0.7, a share of 0.35; the last five 0.05.
    assert np.mean(nearest_N < 5) > 3 * np.mean(nearest_N >= 45)


def test_the_exact_neighbours_are_exact_across_blocks():
    rng = np.random.default_rng(0)
    vector_KD, vector_QD = (unit(rng.standard_normal((count, 4))) for count in (250_000, 5))
    assert _exact(vector_QD, vector_KD) == np.argsort(-(vector_QD @ vector_KD.T), axis=1)[:, :K].tolist()


def test_a_small_search_is_measured():
    pytest.importorskip("faiss")
    row = time_search(3000, distribution="topics", queries=40, repeats=3)
    assert row["recall@3"] > 0.9
    assert row["recall@3"] == pytest.approx((row["recall@3 in known topics"] + row["recall@3 in others"]) / 2, abs=1e-3)
    assert "recall@3 in others" not in time_search(500, distribution="uniform", queries=10, repeats=3)


def test_every_card_is_admitted_where_the_bank_is_timed():
    rows = time_bank(repeats=1)
    assert [row["what"].split(",")[0] for row in rows[:4]] == [
        "retrieve",
        "retrieve",
        "admit 30 cards into 800",
        "admit 30 cards into 800",
    ]
    assert all(0.0 < row["time"][1] <= row["time"][0] <= row["time"][2] for row in rows)
