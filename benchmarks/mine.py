"""Mine skills from the failures of a run that has been played, through the distiller and the gates.

    mined = mine(Path("runs/bootstrap"), Path("mined.jsonl"), limit=142)

The failures go to a new bank that starts from the hand-written skills, so that what is mined differs from those and
from itself; the run is only read.  Source: SESA starts from 15 hand-written skills and 142 that were mined so; theirs
are not published.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from agents.checkpoint import latest_checkpoint, load_weights
from agents.config import Settings, load_settings, resolve
from agents.seats import load_model
from agents.trial import equip
from benchmarks.rounds import past_questions, run_failures
from benchmarks.train import CHECKPOINTS, ROUNDS_FILE, SETTINGS_FILE
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput
from sesa_env.registry import JUDGES
from skill_memory.bank import SkillBank
from skill_memory.records import write_skills
from skill_memory.skill import Skill


@dataclass(frozen=True, slots=True)
class Mined:
    """What was mined: the skills, how many failures there were, and what became of the others."""

    skills: tuple[Skill, ...]
    failures: int
    waiting: int
    """Failures that nobody replied to, or that were not needed any more."""
    refused: dict[str, int] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)


def mine(run: Path, out: Path, *, limit: int | None = None, overrides: Sequence[str] = ()) -> Mined:
    """Write the mined skills to a file of JSON lines, and return them with the counts.

    Args:
        run: a folder made by `benchmarks.train.train`.
        out: the file; it must not exist.
        limit: most skills; None for all that pass the gates.
        overrides: "memory.KEY=VALUE" over the run's settings, such as another distiller.

    Raises:
        InvalidInput: `out` exists, `limit` is below 1, or the run has no rounds.
        SettingsError: an override is none of a memory.
        SesaError: the run's distiller, and with attribution or trials its corpus and model, cannot be opened.
    """
    if out.exists():
        raise InvalidInput(f"out must be a new file, got {str(out)!r}")
    if limit is not None and limit < 1:
        raise InvalidInput(f"limit must be at least 1, got {limit!r}")
    settings = resolve(asdict(load_settings(run / SETTINGS_FILE)), overrides)
    rules = replace(settings.memory, priming=True, distil_every=1, min_waiting=1, background=False)
    lost = run_failures(run / ROUNDS_FILE)
    rules = replace(rules, queue_size=max(rules.queue_size, len(lost) + 1))
    with tempfile.TemporaryDirectory() as scratch, closing(SkillBank(rules, Path(scratch) / "bank.sqlite")) as bank:
        _equip(bank, replace(settings, memory=rules), run)
        for failure in lost:
            bank.offer(failure)
        refused, causes = Counter[str](), Counter[str]()
        step = max((failure.step for failure in lost), default=0)
        while bank.waiting and (limit is None or len(_mined(bank)) < limit):
            step += 1
            done = bank.consolidate(step=step)
            if done is None or not done.drained:  # nobody replies
                break
            refused.update(done.refused)
            causes.update(done.causes)
        skills = _mined(bank)[:limit]
        write_skills(skills, out)
        return Mined(tuple(skills), len(lost), bank.waiting, dict(refused), dict(causes))


def _mined(bank: SkillBank) -> list[Skill]:
    return [skill for skill in bank if not skill.is_seed]


def _equip(bank: SkillBank, settings: Settings, run: Path) -> None:
    """Open corpus and model, if the settings need them."""
    if not (settings.memory.attribution or settings.memory.executed):
        return
    model = load_model(settings)
    load_weights(latest_checkpoint(run / CHECKPOINTS), model)
    equip(
        bank,
        settings,
        model=model,
        retriever=open_retriever(
            settings.corpus,
            retriever=settings.retriever,
            index=settings.index,
            cache=settings.retrieval_cache,
            pages=bool(settings.game.tools),
        ),
        judge=JUDGES.make(settings.judge),
        past=lambda: past_questions(run / ROUNDS_FILE),
    )
