"""What changed while a bench trained: curves of every arm, and the first fifth of the steps against the last.

    runs = read_ends(Path("runs/bench"), arms=["sesa", "ssp"], seeds=3)
    print(change_table(changes_of(runs)))
    print(gap_table(gaps_of(runs)))
    plot_learning(Path("runs/bench"), arms=["sesa", "ssp"], seeds=3, path=Path("learning.png"))

All of it is read from the runs' own files, `rounds.jsonl` and `events.jsonl`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.recipes.curves import COLOURS, pyplot
from benchmarks.statistics import Estimate, two_sample_difference
from benchmarks.train import EVENTS_FILE, ROUNDS_FILE

PART = 5
"""The first and the last of so many parts of the steps are compared."""
SMOOTHED = 5
"""Steps in the moving average of a curve."""
PANELS = {
    "valid_share": "posed questions that are valid",
    "solve_rate/frontier_share": "valid ones that some attempts solve, and some do not",
    "solve_rate/mean": "solve rate",
    "memory/size": "skills in the memory",
}

Round = Mapping[str, Any]
Measure = Callable[[Round], float | None]


def _valid(round_: Round) -> float | None:
    return None if round_["challenger"] is None else float(not round_["rejection"])


def _frontier(round_: Round) -> float | None:
    rate = round_["solve_rate"]
    return None if round_["challenger"] is None else float(rate is not None and 0.0 < rate < 1.0)


def _frontier_of_valid(round_: Round) -> float | None:
    return _frontier(round_) if _valid(round_) and round_["solve_rate"] is not None else None


def _solve_rate(round_: Round) -> float | None:
    rate: float | None = round_["solve_rate"]
    return rate


MEASURES: dict[str, Measure] = {
    "valid": _valid,
    "at the frontier": _frontier,
    "frontier of valid": _frontier_of_valid,
    "solve rate": _solve_rate,
}
"""Of a round: whether a posed question was valid; whether it was, and 0 < p < 1; this of valid ones alone; and p."""


class Ends(NamedTuple):
    """What a run's rounds scored in the first fifth of its steps and in the last, by measure."""

    first: dict[str, list[float]]
    last: dict[str, list[float]]


Runs = Mapping[tuple[str, int], Ends]
"""By arm and seed."""


class Change(NamedTuple):
    """A measure over the first and the last steps of one run, or of all; the difference has an interval over rounds."""

    arm: str
    seed: int | None
    """None for the rounds of all runs together."""
    measure: str
    first: float
    last: float
    difference: Estimate


class ArmGap(NamedTuple):
    """A measure over the last steps of an arm's runs, less that of another arm's."""

    pair: str
    measure: str
    first: float
    second: float
    difference: Estimate


def read_ends(out: Path, *, arms: Sequence[str], seeds: int) -> Runs:
    """Read the runs of a bench; those of fewer than five steps are left out."""
    runs = {}
    for arm, seed in product(arms, range(seeds)):
        rounds = _lines(out / f"{arm}-{seed}" / ROUNDS_FILE)
        last_step = max((round_["step"] for round_ in rounds), default=0)
        if (width := last_step // PART) < 1:
            continue
        first, last = range(1, width + 1), range(last_step - width + 1, last_step + 1)
        runs[arm, seed] = Ends(
            *({name: _values(rounds, measure, steps) for name, measure in MEASURES.items()} for steps in (first, last))
        )
    return runs


def changes_of(runs: Runs) -> list[Change]:
    """Compare the first fifth of each run's steps with the last; of several runs of an arm, then of all together.

    A measure that a run does not have is left out.
    """
    changes = []
    for arm in dict.fromkeys(arm for arm, _ in runs):
        own = {seed: ends for (name, seed), ends in runs.items() if name == arm}
        for seed, ends in own.items():
            changes += [one for name in MEASURES for one in _change(arm, seed, name, ends.first[name], ends.last[name])]
        if len(own) > 1:
            every = Ends(*(_pooled(part) for part in zip(*own.values(), strict=True)))
            changes += [
                one for name in MEASURES for one in _change(arm, None, name, every.first[name], every.last[name])
            ]
    return changes


def gaps_of(runs: Runs) -> list[ArmGap]:
    """Compare arms with each other in the last fifth of their steps, all runs of an arm together.

    A measure that one of them does not have is left out.
    """
    arms = dict.fromkeys(arm for arm, _ in runs)
    last = {arm: _pooled([ends.last for (name, _), ends in runs.items() if name == arm]) for arm in arms}
    gaps = []
    for (one, other), name in product(combinations(arms, 2), MEASURES):
        first, second = last[one][name], last[other][name]
        if min(len(first), len(second)) >= 2:
            difference = two_sample_difference(first, second, rng=np.random.default_rng(0))
            gaps.append(
                ArmGap(f"{one} - {other}", name, sum(first) / len(first), sum(second) / len(second), difference)
            )
    return gaps


def _pooled(parts: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    return {name: [value for part in parts for value in part[name]] for name in MEASURES}


def _change(arm: str, seed: int | None, name: str, early: list[float], late: list[float]) -> list[Change]:
    """Return the change as a list; an empty one where a side has fewer than two rounds, which have no spread."""
    if min(len(early), len(late)) < 2:
        return []
    difference = two_sample_difference(late, early, rng=np.random.default_rng(0))
    return [Change(arm, seed, name, sum(early) / len(early), sum(late) / len(late), difference)]


def change_table(changes: Sequence[Change]) -> str:
    """Return the changes as text, in per cent, with 95 % bootstrap intervals over rounds."""
    width = max([len("arm"), *(len(change.arm) for change in changes)])
    lines = [f"{'arm':<{width}} seed  {'in training':<17} {'first':>6} {'last':>6} {'change':>7}  95 % interval"]
    for one in changes:
        seed = "all" if one.seed is None else one.seed
        lines.append(
            f"{one.arm:<{width}} {seed:>4}  {one.measure:<17} {100 * one.first:>6.1f} {100 * one.last:>6.1f} "
            f"{100 * one.difference.value:>+7.1f}  {one.difference.bounds('+')}"
        )
    return "\n".join(lines)


def gap_table(gaps: Sequence[ArmGap]) -> str:
    """Return the comparisons as text, in per cent, with 95 % bootstrap intervals over rounds."""
    width = max([len("last fifth"), *(len(gap.pair) for gap in gaps)])
    lines = [f"{'last fifth':<{width}} {'in training':<17} {'first':>6} {'second':>6} {'':>7}  95 % interval"]
    lines += [
        f"{gap.pair:<{width}} {gap.measure:<17} {100 * gap.first:>6.1f} {100 * gap.second:>6.1f} "
        f"{100 * gap.difference.value:>+7.1f}  {gap.difference.bounds('+')}"
        for gap in gaps
    ]
    return "\n".join(lines)


def plot_learning(out: Path, *, arms: Sequence[str], seeds: int, path: Path) -> None:
    """Draw a panel for each figure that the runs have: a thin line for each seed, a thick one for their mean."""
    plt = pyplot()
    runs = {arm: [_lines(out / f"{arm}-{seed}" / EVENTS_FILE) for seed in range(seeds)] for arm in arms}
    runs = {arm: events for arm, events in runs.items() if all(events)}
    names = [name for name in PANELS if any(_curve(events[0], name)[1] for events in runs.values())]
    figure, panels = plt.subplots(1, len(names), figsize=(4.2 * len(names), 3.4), layout="constrained", squeeze=False)
    for name, panel in zip(names, panels[0], strict=True):
        for colour, (arm, events) in zip(COLOURS, runs.items(), strict=False):
            curves = [_curve(one, name) for one in events]
            for steps, values in curves:
                panel.plot(steps, values, color=colour, lw=0.7, alpha=0.5)
            shared = sorted(set.intersection(*(set(steps) for steps, _ in curves)))
            if shared:
                at = [dict(zip(steps, values, strict=True)) for steps, values in curves]
                panel.plot(
                    shared, [np.mean([one[step] for one in at]) for step in shared], color=colour, lw=2, label=arm
                )
        panel.set(title=PANELS[name], xlabel="step")
        panel.title.set_fontsize(9)
        panel.set_ylim(bottom=0.0)
        panel.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _values(rounds: Sequence[Round], measure: Measure, steps: range) -> list[float]:
    found = [measure(round_) for round_ in rounds if round_["step"] in steps]
    return [value for value in found if value is not None]


def _curve(events: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return the steps that have a figure, and its moving average over the steps up to each."""
    points = [(event["step"], event[name]) for event in events if name in event]
    if not any(value for _, value in points):
        return [], []
    values = [value for _, value in points]
    smooth = [float(np.mean(values[max(0, i + 1 - SMOOTHED) : i + 1])) for i in range(len(values))]
    return [step for step, _ in points], smooth
