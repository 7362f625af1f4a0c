"""What changed in training: measures of rounds, first steps against last, and curves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning import change_table, changes_of, gap_table, gaps_of, plot_learning, read_ends
from benchmarks.statistics import two_sample_difference
from sesa_env.errors import InvalidInput


def write_run(folder: Path, *, steps: int, valid_from: int) -> None:
    """Write a run of ten rounds a step: three in ten valid before `valid_from` and nine in ten after it."""
    folder.mkdir(parents=True)
    rounds, events = [], []
    for step in range(1, steps + 1):
        valid = 9 if step >= valid_from else 3
        for number in range(10):
            refused = "" if number < valid else "leak"
            rate = None if refused else (0.5 if number % 2 else 1.0)
            rounds.append({"step": step, "challenger": {}, "rejection": refused, "solve_rate": rate})
        rounds.append({"step": step, "challenger": None, "rejection": "", "solve_rate": 1.0})  # a replayed one
        events.append({"step": step, "valid_share": valid / 10, "memory/size": 0})
    (folder / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rounds))
    (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))


def test_the_first_fifth_is_compared_with_the_last(tmp_path: Path) -> None:
    write_run(tmp_path / "sesa-0", steps=10, valid_from=6)
    changes = {change.measure: change for change in changes_of(read_ends(tmp_path, arms=["sesa"], seeds=1))}
    valid = changes["valid"]
    assert (valid.first, valid.last, valid.difference.n) == (0.3, 0.9, 40)  # replayed rounds are nobody's proposal
    assert valid.difference.value == pytest.approx(0.6)
    assert valid.difference.interval is not None
    assert 0.25 < valid.difference.interval.low < 0.6 < valid.difference.interval.high < 0.9
    frontier = changes["at the frontier"]
    assert (frontier.first, frontier.last) == (0.1, 0.4)
    assert changes["frontier of valid"].first == pytest.approx(1 / 3)
    assert changes["frontier of valid"].last == pytest.approx(4 / 9)
    assert "valid" in change_table(list(changes.values()))
    assert "+60.0" in change_table(list(changes.values()))


def test_several_runs_are_compared_together_too(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / f"sesa-{seed}", steps=10, valid_from=6)
    changes = changes_of(read_ends(tmp_path, arms=["sesa"], seeds=2))
    one, both = (next(c.difference for c in changes if (c.seed, c.measure) == (seed, "valid")) for seed in (0, None))
    assert both.n == 2 * one.n
    assert both.value == one.value
    assert both.interval
    assert one.interval
    assert both.interval.high - both.interval.low < one.interval.high - one.interval.low
    assert " all  valid" in change_table(changes)


def test_arms_are_compared_in_the_last_fifth(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / f"early-{seed}", steps=10, valid_from=2)
        write_run(tmp_path / f"never-{seed}", steps=10, valid_from=11)
        write_run(tmp_path / f"short-{seed}", steps=4, valid_from=1)
    gaps = {gap.measure: gap for gap in gaps_of(read_ends(tmp_path, arms=["early", "never", "short"], seeds=2))}
    valid = gaps["valid"]
    assert (valid.pair, valid.first, valid.second, valid.difference.n) == ("early - never", 0.9, 0.3, 80)
    assert valid.difference.interval is not None
    assert 0.3 < valid.difference.interval.low < 0.6 < valid.difference.interval.high < 0.9
    assert "early - never valid" in gap_table(list(gaps.values()))


def test_runs_of_no_or_few_steps_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "base-0").mkdir()
    write_run(tmp_path / "ssp-0", steps=4, valid_from=2)
    assert changes_of(read_ends(tmp_path, arms=["base", "ssp"], seeds=1)) == []


def test_curves_are_drawn_for_the_figures_that_runs_have(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / f"sesa-{seed}", steps=6, valid_from=3 + seed)
    (tmp_path / "base-0").mkdir()
    plot_learning(tmp_path, arms=["base", "sesa"], seeds=2, path=tmp_path / "learning.png")
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_a_difference_of_samples_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(100):
        first, second = rng.normal(1.0, 1.0, 60), rng.normal(0.5, 2.0, 80)
        interval = two_sample_difference(first.tolist(), second.tolist(), rng=rng).interval
        held += interval is not None and interval.low <= 0.5 <= interval.high
    assert held >= 88  # 95 of 100 expected; four standard deviations below


def test_samples_that_are_all_alike_have_no_interval() -> None:
    estimate = two_sample_difference([1.0, 1.0], [0.0], rng=np.random.default_rng(0))
    assert (estimate.value, estimate.interval, estimate.why_none) == (1.0, None, "all alike")
    with pytest.raises(InvalidInput, match="second must be a non-empty"):
        two_sample_difference([1.0], [], rng=np.random.default_rng(0))


def test_a_measure_of_a_single_round_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "sesa-0", steps=5, valid_from=1)
    path = tmp_path / "sesa-0" / "rounds.jsonl"
    rounds = [json.loads(line) for line in path.read_text().splitlines()]
    scored = [one for one in rounds if one["step"] == 1 and one["solve_rate"] is not None]
    for one in scored[1:]:
        one["solve_rate"] = None
    path.write_text("".join(json.dumps(one) + "\n" for one in rounds))
    assert {change.measure for change in changes_of(read_ends(tmp_path, arms=["sesa"], seeds=1))} == {
        "valid",
        "at the frontier",
    }
