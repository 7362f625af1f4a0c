"""A challenger before and after its training, at the same targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.config import resolve
from benchmarks.bench import POSED_FILE, Plan, bench
from benchmarks.methods import method
from benchmarks.posing import AFTER, BEFORE, PosingRow, pose, posing_table, read_posings, write_posings
from benchmarks.train import train

SMALL = (
    *("policy=mini", "model.dtype=float32", "corpus=atlas:2", "steps=1", "rounds=8", "game.attempts=2", "game.top_k=1"),
    *(
        "game.challenger_turns=6",
        "game.solver_turns=3",
        "game.validators=[format]",
        "memory.kind=none",
        "solver.lr=0",
        "game.invalid_reward=-1",
    ),
)


def posed(run: str, when: str, shares: list[bool], frontier: int = 0) -> list[PosingRow]:
    """Rows of which the first so many are at the frontier."""
    return [PosingRow(run, when, n, f"Talby {n}", valid, frontier=n < frontier) for n, valid in enumerate(shares)]


@pytest.mark.parametrize("lr", [0.0, 0.05])
def test_the_same_targets_are_posed_for_and_only_training_makes_a_difference(tmp_path: Path, lr: float) -> None:
    settings = resolve(method("sesa"), [*SMALL, f"challenger.lr={lr}"])
    rows = pose(train(settings, tmp_path / "frontier-0"), targets=6, corpus="atlas:1")
    before, after = ([row for row in rows if row.when == when] for when in (BEFORE, AFTER))
    assert [row.answer for row in before] == [row.answer for row in after]
    assert len({row.answer for row in before}) == 6
    assert {row.run for row in rows} == {"frontier-0"}
    assert any(row.valid for row in before)
    same = [(row.valid, row.frontier) for row in before] == [(row.valid, row.frontier) for row in after]
    assert same == (lr == 0.0)
    write_posings(rows, tmp_path / "posed.jsonl")
    assert read_posings(tmp_path / "posed.jsonl") == rows


def test_a_bench_lets_every_challenger_pose_if_its_plan_says_so(tmp_path: Path) -> None:
    plan = Plan({"a": ("method=sesa", "challenger.lr=0")}, ("atlas:1",), settings=SMALL, limit=2, targets=3)
    bench(plan, tmp_path / "bench", seeds=1)
    rows = read_posings(tmp_path / "bench" / "a-0" / POSED_FILE)
    assert [(row.run, row.when, row.target) for row in rows] == [
        ("a-0", w, n) for w in (BEFORE, AFTER) for n in range(3)
    ]


def test_shares_are_compared_target_by_target() -> None:
    rows = []
    for seed in range(2):
        rows += posed(f"one-{seed}", BEFORE, [n < 20 for n in range(100)])
        rows += posed(f"one-{seed}", AFTER, [n < 50 for n in range(100)])
    head, valid, frontier, of_valid = posing_table(rows).splitlines()
    assert head.split() == ["arm", "same", "targets", "seeds", "n", "before", "after", "change", "95", "%", "interval"]
    assert valid.split()[:7] == ["one", "valid", "2", "100", "20.0", "50.0", "+30.0"]
    low, high = map(float, valid.partition("[")[2].rstrip("]").split(","))
    assert 30 - 11 < low < 30 - 7  # 30 of 100 differ: a standard error of 4.6
    assert 30 + 7 < high < 30 + 11
    assert frontier.endswith("none: all alike")
    assert of_valid.endswith("none: all alike")


def test_arms_are_compared_after_their_training() -> None:
    rows = []
    for arm, last, frontier in (("one", 60, 45), ("two", 40, 20)):
        for seed in range(2):
            rows += posed(f"{arm}-{seed}", BEFORE, [n < 30 for n in range(100)], 15)
            rows += posed(f"{arm}-{seed}", AFTER, [n < last for n in range(100)], frontier)
    lines = posing_table(rows).splitlines()
    assert lines[3].split()[:8] == ["one", "frontier", "of", "valid", "2", "60", "50.0", "75.0"]
    assert lines[3].split()[8] == "+25.0"
    assert lines[-5] == ""
    head, *compared = lines[-4:]
    assert head.split() == ["after", "training", "same", "targets", "n", "95", "%", "interval"]
    values = [line.partition("  [")[0].split() for line in compared]
    assert [value[-1] for value in values] == ["+20.0", "+25.0", "+25.0"]
    assert [value[-2] for value in values] == ["100", "100", "60"]
    bounds = [[float(end) for end in line.partition("[")[2].rstrip("]").split(",")] for line in compared]
    # Of 60 and 40 valid ones, 75 and 50 %: a standard error of 9.7 points, were they other targets each.
    assert all(0 < low < high < 50 for low, high in bounds)


def test_a_challenger_that_poses_nothing_valid_is_reported_and_no_error() -> None:
    rows = posed("one-0", BEFORE, [True] * 30, 10) + posed("one-0", AFTER, [False] * 30)
    assert posing_table(rows).splitlines()[3].endswith("none: no valid question")
    unchanged = []
    for seed in range(2):  # the same valid targets before and after, others in each run
        for when in (BEFORE, AFTER):
            unchanged += posed(f"one-{seed}", when, [(n + seed) % 3 > 0 for n in range(60)], 20 + seed)
    assert posing_table(unchanged).splitlines()[3].split()[8] == "+0.0"
