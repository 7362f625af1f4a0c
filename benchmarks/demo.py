"""The main job in a few minutes: SSP and SESA side by side on the embedded encyclopedia, a table, and what it means.

    print(demo(Path("runs/demo"), tell=print))

It is the plan `demo` with one seed.  The sizes are for two CPU cores, far too small for a verdict on either method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench import Contrast, Line, bench, contrasts, lines, load_plan, table
from benchmarks.learning import Change, change_table, changes_of, plot_learning, read_ends

if TYPE_CHECKING:
    from agents.selfplay import StepReport

PLAN = "demo"


def demo(
    out: Path,
    *,
    policy: str | None = None,
    questions: int | None = None,
    tell: Callable[[str], None],
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> str:
    """Train each arm, ask it questions, and return tables and explanation; curves are drawn into `learning.png`.

    Args:
        out: folder of the bench; the same one goes on.
        policy: what plays both roles; None is the plan's.
        questions: how many questions of the test world each arm is asked; None is the plan's number.
        tell: called with a sentence about what is done.
        on_step: called with each training step's report.
    """
    plan = load_plan(PLAN)
    if policy is not None:
        plan = replace(plan, settings=(*plan.settings, f"policy={policy}"))
    if questions is not None:
        plan = replace(plan, limit=questions)
    rows = bench(plan, out, seeds=1, tell=tell, on_step=on_step)
    changes = changes_of(read_ends(out, arms=list(plan.arms), seeds=1))
    parts = [table(plan, rows)]
    if changes:
        parts.append(change_table(changes))
    plot_learning(out, arms=list(plan.arms), seeds=1, path=out / "learning.png")
    parts.append(explain(lines(rows), contrasts(plan, rows), changes))
    return "\n\n".join(parts)


def explain(scores: Sequence[Line], differences: Sequence[Contrast], changes: Sequence[Change]) -> str:
    """Say in plain words what the tables show, and what they do not."""
    said = [
        f"Each arm was asked the same {scores[0].em.n} questions about a world that it had never seen.  The "
        "encyclopedia is made up, so a right answer was found by searching: nobody can know it."
    ]
    said += [_about(line) for line in scores]
    said += [_about_change(change) for change in changes if change.measure == "valid"]
    said += [_about_difference(one) for one in differences]
    said.append("One seed and a few steps: this shows how it all works, and not which method is better.")
    return "\n".join(f"- {sentence}" for sentence in said)


def _about(line: Line) -> str:
    skills = {"on": ", its skills in front of each question,", "off": ""}.get(line.memory, f" ({line.memory})")
    return (
        f"{line.arm}{skills} answered {line.em.value:.0%} exactly right, with {line.searches:.1f} searches a question."
    )


def _about_change(change: Change) -> str:
    return (
        f"Of the questions that {change.arm}'s challenger posed, {change.first:.0%} were valid in the first fifth of "
        f"the steps and {change.last:.0%} in the last."
    )


def _about_difference(contrast: Contrast) -> str:
    points = f"{contrast.pair}: {100 * contrast.em.value:+.1f} points"
    if contrast.em.interval is None:
        return f"{points}; they answered alike."
    low, high = (100 * bound for bound in contrast.em.interval)
    verdict = "more than chance explains" if contrast.em.excludes_zero else "not to be told from chance"
    return f"{points}, 95 % interval {low:+.1f} to {high:+.1f}: {verdict}."
