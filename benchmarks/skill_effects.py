"""What the skills of a bench came to: help and hurt in training, and exact match on the questions they were shown for.

    effects = read_effects(Path("runs/bench"), arms=["base", "sesa"], rows=rows, seeds=3)
    print(effect_table(effects))

Questions are those of the evaluation for which at least one skill of a kind was shown; they are asked with the memory
on and off, so the difference is between the same questions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.report import ON, Row
from benchmarks.statistics import Estimate, mean
from skill_memory.history import BANK_FILE, read_bank
from skill_memory.skill import Skill
from skill_memory.wording import CATEGORY as WORDING

OFF = "off"
HAND_WRITTEN, OTHER = "hand-written", "other learned"
KINDS = (HAND_WRITTEN, WORDING, OTHER)


class Effect(NamedTuple):
    """Skills of one kind in the banks of one arm, over all seeds."""

    arm: str
    kind: str
    skills: int
    """In the banks at the end."""
    retrieved: int
    """Times one was shown in training, for a question."""
    helped: int
    hurt: int
    on: float
    """Exact match on the questions they were shown for."""
    off: float
    """The same questions without."""
    difference: Estimate


def kind_of(skill: Skill) -> str:
    """Return where a skill comes from: written by hand, learned about a page's wording, or learned otherwise."""
    if skill.is_seed:
        return HAND_WRITTEN
    return WORDING if skill.category == WORDING else OTHER


def read_effects(out: Path, *, arms: Sequence[str], rows: Sequence[Row], seeds: int) -> list[Effect]:
    """Return the effects of every kind of skill that was shown in an evaluation.

    Args:
        out: folder of a bench.
        arms: those to look at; arms without a bank have no effects.
        rows: of the bench.
        seeds: runs of each arm.
    """
    effects = []
    for arm in arms:
        files = [out / f"{arm}-{seed}" / BANK_FILE for seed in range(seeds)]
        banks = {path.parent.name: read_bank(path).skills for path in files if path.exists()}
        held = [skill for skills in banks.values() for skill in skills]
        kinds = {(run, skill.id): kind_of(skill) for run, skills in banks.items() for skill in skills}
        for kind in KINDS:
            on, off = _scores(rows, banks, kinds, kind)
            if on:
                used = [skill.usage for skill in held if kind_of(skill) == kind]
                effects.append(
                    Effect(
                        arm,
                        kind,
                        len(used),
                        sum(usage.retrieved for usage in used),
                        sum(usage.helped for usage in used),
                        sum(usage.hurt for usage in used),
                        float(np.mean(list(on.values()))),
                        float(np.mean(list(off.values()))),
                        mean([on[key] - off[key] for key in sorted(on)], rng=np.random.default_rng(0)),
                    )
                )
    return effects


def effect_table(effects: Sequence[Effect]) -> str:
    """Return the effects as text, exact match in per cent with 95 % bootstrap intervals over questions."""
    width = max(len("arm"), *(len(one.arm) for one in effects))
    lines = [
        f"{'arm':<{width}} {'skills':<13} {'held':>5} {'shown':>6} {'helped':>6} {'hurt':>5} "
        f"{'asked':>6} {'on':>5} {'off':>5} {'EM':>6}  95 % interval"
    ]
    for one in effects:
        on, off, more = 100 * one.on, 100 * one.off, 100 * one.difference.value
        lines.append(
            f"{one.arm:<{width}} {one.kind:<13} {one.skills:>5} {one.retrieved:>6} {one.helped:>6} {one.hurt:>5} "
            f"{one.difference.n:>6} {on:>5.1f} {off:>5.1f} {more:>+6.1f}  {one.difference.bounds('+')}"
        )
    return "\n".join(lines)


def _scores(
    rows: Iterable[Row], runs: Iterable[str], kinds: dict[tuple[str, str], str], kind: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Return exact match with memory on and off by question, the mean over the seeds in which one was shown for it."""
    known = set(runs)
    mine = [row for row in rows if row.run in known and row.scored]
    asked = {
        (row.run, row.dataset, row.question_id)
        for row in mine
        if row.memory == ON and any(kinds.get((row.run, skill)) == kind for skill in row.skill_ids)
    }
    scores: dict[str, dict[str, list[float]]] = {ON: defaultdict(list), OFF: defaultdict(list)}
    for row in mine:
        if row.memory in scores and (row.run, row.dataset, row.question_id) in asked:
            scores[row.memory][f"{row.dataset}/{row.question_id}"].append(float(bool(row.em)))
    on, off = ({key: float(np.mean(values)) for key, values in scores[mode].items()} for mode in (ON, OFF))
    return on, {key: off[key] for key in on}
