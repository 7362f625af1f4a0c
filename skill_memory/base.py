"""What a skill memory offers to the solver and to the training loop, and the records that pass between them.

    skills = memory.retrieve(["Who directed the film that ...?"])[0]
    memory.credit([Use(skill_ids=..., question_id="q7", solve_rate=0.4)])
    memory.offer(failure)                 # waits in the queue
    report = memory.consolidate(step=10)  # evict, distil, admit

A memory is frozen within a training step: only `credit`, `offer` and `consolidate` change it, and the loop calls them
between steps.  "No memory" is a memory too (`NoMemory`), not a branch in the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sesa_env.types import Trajectory
from skill_memory.skill import Skill


@dataclass(frozen=True, slots=True)
class Use:
    """One question's use of the skills it was shown; `solve_rate` is over its scored, well-formed attempts.

    `step` is the training step it happened in; a memory that keeps a history dates its counters by it.
    """

    question_id: str
    skill_ids: tuple[str, ...]
    solve_rate: float
    step: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """One unsolved attempt at a question, as the distiller needs it.

    `trajectory` holds queries, passages and the wrong answer; `skill_ids` are the skills its prompt showed.
    `split` must be "train": a memory never learns from evaluation.
    """

    question_id: str
    question: str
    answers: tuple[str, ...]
    trajectory: Trajectory
    solve_rate: float
    skill_ids: tuple[str, ...] = ()
    step: int = 0
    split: str = "train"


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What one consolidation did: ids that came and went, and how many candidates each gate refused."""

    step: int
    drained: int = 0
    admitted: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    refused: dict[str, int] = field(default_factory=dict)


class SkillMemory(Protocol):
    """A store of skills that a solver may read and a training loop may grow."""

    @property
    def snapshot_id(self) -> str:
        """Hash of all skill texts that `retrieve` can return; equal ids give equal prompts."""
        ...

    def __len__(self) -> int:
        """How many skills are active."""
        ...

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return the best skills for each question, best first, within the memory's own k.

        `exclude_source` are question ids (one per question, or empty): a skill distilled from it is left out.
        """
        ...

    def credit(self, uses: Iterable[Use]) -> None:
        """Count help and hurt for the skills that were shown."""
        ...

    def offer(self, failure: Failure) -> bool:
        """Queue a failure for distillation; False when the memory does not want it."""
        ...

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Turn waiting failures into skills if it is time; None when it is not."""
        ...

    def save(self, path: Path) -> None:
        """Write a complete copy (skills, counters, queue) to one file, all or nothing."""
        ...

    def close(self) -> None:
        """Free what the memory holds; closing twice is harmless."""
        ...
