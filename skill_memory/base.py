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

from sesa_env.errors import InvalidInput
from sesa_env.types import Passage, Trajectory
from skill_memory.skill import Skill


@dataclass(frozen=True, slots=True)
class Use:
    """One question's use of the skills it was shown; `solve_rate` is over its scored, well-formed attempts.

    `step` is the training step it happened in; a memory that keeps a history dates its counters by it.  `question` is
    its text, for a memory that keeps account of kinds of questions.
    """

    question_id: str
    skill_ids: tuple[str, ...]
    solve_rate: float
    step: int = 0
    question: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """One unsolved attempt at a question, as the distiller needs it.

    `trajectory` holds queries, passages and the wrong answer; `skill_ids` are the skills its prompt showed.
    `evidence` are passages with an accepted answer that this attempt did not read, and that others did: attempts at the
    same question, or its challenger.  No solver is shown them, and no skill may name or copy what is in them.
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
    evidence: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What one consolidation did: ids that came and went, and how many candidates each gate refused."""

    step: int
    drained: int = 0
    """Failures taken out of the queue."""
    admitted: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    refused: dict[str, int] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    """Failures by what caused them, if that was asked; only those of a gap teach."""
    postponed: int = 0
    """Failures for which the distiller got no reply; they go on waiting."""
    trial_attempts: int = 0
    """Attempts played to put candidates to the test."""

    @property
    def numbers(self) -> dict[str, float]:
        """Figures for the log."""
        return {
            "memory/drained": self.drained,
            "memory/admitted": len(self.admitted),
            "memory/evicted": len(self.evicted),
            "memory/postponed": self.postponed,
            "memory/trial_attempts": self.trial_attempts,
            **{f"memory/refused/{gate}": count for gate, count in self.refused.items()},
            **{f"memory/cause/{cause}": count for cause, count in self.causes.items()},
        }


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


def check_questions(questions: Sequence[str], exclude_source: Sequence[str]) -> None:
    """Refuse arguments of `retrieve` that would be misread.

    Raises:
        InvalidInput: a bare string where a sequence belongs, or another number of ids than of questions.
    """
    for name, texts in (("questions", questions), ("exclude_source", exclude_source)):
        if isinstance(texts, str):
            raise InvalidInput(f"{name} must be a sequence of strings, not one string, got {texts!r}")
    if exclude_source and len(exclude_source) != len(questions):
        raise InvalidInput(f"exclude_source must have {len(questions)} ids, one per question, got {exclude_source!r}")
