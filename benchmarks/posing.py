"""Let a run's challenger pose for the same targets before and after its training, and compare target by target.

    rows = pose(Path("runs/bench/frontier-0"), targets=200, corpus="atlas:1")
    print(posing_table(rows))

Both are faced with the solver that the run began with, so that what has changed is the challenger.  Steps of training
have other targets each, and their shares move with these; here both challengers have the same ones.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from agents.checkpoint import first_checkpoint, latest_checkpoint
from agents.config import Settings, load_settings
from benchmarks.rounds import read_rounds
from benchmarks.statistics import Estimate, mean_difference, mean_over_seeds
from benchmarks.train import CHECKPOINTS, ROUNDS_FILE, SETTINGS_FILE, train
from sesa_env.replay import ReplaySettings
from skill_memory import MemorySettings

SEED = 1
"""Of the targets, which are the same for every run."""
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class PosingRow:
    """What a challenger made of a target: whether its question was valid, and whether it was at the frontier."""

    run: str
    when: str
    """"before" the training or "after"."""
    target: int
    """Its number; both challengers of all runs have the same targets."""
    answer: str
    valid: bool
    frontier: bool
    """Whether it was valid and some attempts solved it, and some did not."""


Measure = Callable[[PosingRow], bool | None]
"""None: the row does not count."""

MEASURES: dict[str, Measure] = {
    "valid": lambda row: row.valid,
    "at the frontier": lambda row: row.frontier,
    "frontier of valid": lambda row: row.frontier if row.valid else None,
}
"""Of a target: whether its question was valid; whether it was at the frontier, too; and this of valid ones alone."""


def pose(run: Path, *, targets: int, corpus: str) -> list[PosingRow]:
    """Return a row for each target, with the challenger before the training and after.

    Args:
        run: a folder made by `benchmarks.train.train`.
        targets: how many.
        corpus: what they are drawn from and searched in.

    Raises:
        SesaError: the run or the corpus cannot be opened.
    """
    settings, checkpoints = load_settings(run / SETTINGS_FILE), run / CHECKPOINTS
    before, after = first_checkpoint(checkpoints), latest_checkpoint(checkpoints)
    rows = []
    for when, place in ((BEFORE, before), (AFTER, after)):
        frozen = _frozen(settings, solver=before, challenger=place, corpus=corpus, targets=targets)
        with tempfile.TemporaryDirectory() as scratch:
            played = read_rounds(train(frozen, Path(scratch) / "run") / ROUNDS_FILE)
            for number, (_, round_, _) in enumerate(played):
                assert round_.target is not None
                rate = round_.solve_rate
                rows.append(
                    PosingRow(
                        run=run.name,
                        when=when,
                        target=number,
                        answer=round_.target.answer,
                        valid=not round_.rejection,
                        frontier=not round_.rejection and rate is not None and 0.0 < rate < 1.0,
                    )
                )
    return rows


def _frozen(settings: Settings, *, solver: Path, challenger: Path, corpus: str, targets: int) -> Settings:
    """Return a run's settings for one step in which nobody learns, from the weights of checkpoints."""
    return replace(
        settings,
        seed=SEED,
        steps=1,
        rounds=targets,
        proposals=1,
        corpus=corpus,
        index=settings.index if corpus == settings.corpus else None,
        shared_weights=False,
        memory=MemorySettings(kind="none"),
        replay=ReplaySettings(capacity=0),
        solver=replace(settings.solver, lr=0.0, start=str(solver)),
        challenger=replace(settings.challenger, lr=0.0, start=str(challenger), baseline="batch"),
    )


def posing_table(rows: Sequence[PosingRow]) -> str:
    """Return the shares before and after, and those of arms after training against each other, in per cent.

    Differences have 95 % intervals and are paired by target; where only valid questions count, these are about other
    targets each time, and a target's questions are drawn together.
    """
    arms = list(dict.fromkeys(row.run.rpartition("-")[0] for row in rows))
    width = max(len("arm"), *map(len, arms))
    lines = [f"{'arm':<{width}} {'same targets':<17} {'seeds':>5} {'n':>5} {'before':>6} {'after':>6} {'change':>7}"]
    lines[0] += "  95 % interval"
    for arm in arms:
        for name, measure in MEASURES.items():
            before, after = (_scores(rows, arm, when, measure) for when in (BEFORE, AFTER))
            change = _difference(after, before)
            lines.append(
                f"{arm:<{width}} {name:<17} {len(after):>5} {change.n:>5} {100 * _share(before):>6.1f} "
                f"{100 * _share(after):>6.1f} {100 * change.value:>+7.1f}  {change.bounds('+')}"
            )
    pairs = [(f"{one} - {other}", one, other) for one, other in combinations(arms, 2)]
    width = max([len("after training"), *(len(pair) for pair, _, _ in pairs)])
    if pairs:
        lines += ["", f"{'after training':<{width}} {'same targets':<17} {'n':>5} {'':>6}  95 % interval"]
    for pair, one, other in pairs:
        for name, measure in MEASURES.items():
            gap = _difference(_scores(rows, one, AFTER, measure), _scores(rows, other, AFTER, measure))
            lines.append(f"{pair:<{width}} {name:<17} {gap.n:>5} {100 * gap.value:>+6.1f}  {gap.bounds('+')}")
    return "\n".join(lines)


def write_posings(rows: Iterable[PosingRow], path: Path) -> None:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read_posings(path: Path) -> list[PosingRow]:
    """Read what `write_posings` wrote."""
    return [PosingRow(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _scores(rows: Sequence[PosingRow], arm: str, when: str, measure: Measure) -> list[dict[str, float]]:
    """Return what an arm's runs scored by target, one run after the other; without targets that do not count."""
    runs: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row.when == when and row.run.rpartition("-")[0] == arm:
            scores, score = runs[row.run], measure(row)
            if score is not None:
                scores[str(row.target)] = float(score)
    return list(runs.values())


def _share(runs: Sequence[Mapping[str, float]]) -> float:
    scores = [score for run in runs for score in run.values()]
    return sum(scores) / len(scores) if scores else float("nan")


def _difference(runs: Sequence[Mapping[str, float]], others: Sequence[Mapping[str, float]]) -> Estimate:
    """Return the mean of the first less that of the others; paired where all have scores for the same targets."""
    rng = np.random.default_rng(0)
    if not (any(runs) and any(others)):
        return Estimate(float("nan"), None, 0, why_none="no valid question")
    if len({frozenset(run) for run in (*runs, *others)}) > 1 or len(runs) != len(others):
        return mean_difference(runs, others, rng=rng)
    differences = [
        {target: run[target] - other[target] for target in run} for run, other in zip(runs, others, strict=True)
    ]
    return mean_over_seeds(differences, rng=rng)
