"""The main job in a few minutes: SSP and SESA side by side on the embedded encyclopedia, then one table.

    rows = demo(Path("runs/demo"), tell=print)

It trains in world 0 of Atlas and asks about world 1, in which no name of world 0 occurs.  The sizes are for two CPU
cores, far too small for a verdict on either method: the demo shows that everything works.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agents.config import resolve
from agents.selfplay import StepReport
from benchmarks.datasets import load_dataset
from benchmarks.evaluate import evaluate
from benchmarks.methods import method
from benchmarks.report import Row
from benchmarks.train import train

ARMS = {"ssp": ("off",), "sesa": ("off", "on")}
"""Method, and the memory modes it is evaluated in."""
TEST_DATA = "atlas:1"
SIZES = [
    *("steps=2", "rounds=8", "game.attempts=4", "game.solver_turns=3", "game.challenger_turns=3"),
    *("game.min_searches=1", "game.min_question_words=5"),
    "game.validators=[format,length,leak,information,searches,repeated_query]",
    *("memory.distil_every=1", "memory.min_waiting=1", "memory.frontier_only=false"),
    *("model.max_new_tokens=32", "model.solver_temperature=0.5", "solver.temperature=0.5"),
    *("model.challenger_temperature=0.5", "challenger.temperature=0.5"),
]
"""Cool sampling, since a small model writes nonsense at temperature 1; every failure may be distilled.

A question needs one search and five words instead of two and ten, and nobody verifies it ("rag"): a solver of this size
reads so badly that hardly a question would be left."""


def demo(
    out: Path,
    *,
    policy: str = "smollm2",
    questions: int = 16,
    tell: Callable[[str], None],
    on_tick: Callable[[], None] = lambda: None,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> list[Row]:
    """Train each arm, evaluate it, and return all rows.

    Args:
        out: new folder for the runs.
        policy: what plays both roles.
        questions: how many questions of the test world each arm is asked.
        tell: called with a sentence about what comes next.
        on_tick: called after every turn of all seats.
        on_step: called with each training step's report.
    """
    test = load_dataset(TEST_DATA, limit=questions)
    rows: list[Row] = []
    for name, memory_modes in ARMS.items():
        settings = resolve(method(name), [*SIZES, f"policy={policy}"])
        tell(f"{name}: {settings.steps} steps of self-play, {settings.rounds} questions each")
        run = train(settings, out / name, on_tick=on_tick, on_step=on_step)
        tell(f"{name}: {questions} questions about a world it has never seen, memory {' and '.join(memory_modes)}")
        rows += evaluate(run, test, memory_modes=memory_modes)
    return rows
