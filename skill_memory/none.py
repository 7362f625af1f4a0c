"""No skill memory, as a memory: nothing is shown, nothing is kept.

SSP, Search-R1 and SESA without memory run with it through the very code that the others run through.

    memory = NoMemory()
    memory.retrieve(["Who wrote it?"])    # [[]]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from skill_memory.base import Consolidation, Failure, Use, check_questions
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill


class NoMemory:
    """A memory without skills; its arguments are those of every memory and are not looked at."""

    snapshot_id = "none"

    def __init__(self, settings: MemorySettings | None = None, path: Path | None = None) -> None:
        """Hold nothing; no file is opened."""

    def __len__(self) -> int:
        """Return 0."""
        return 0

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return an empty list for each question."""
        check_questions(questions, exclude_source)
        return [[] for _ in questions]

    def credit(self, uses: Iterable[Use]) -> None:
        """Count nothing: no skill was shown."""

    def offer(self, failure: Failure) -> bool:
        """Return False: no failure is wanted."""
        return False

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Return None: there is never anything to learn."""
        return None

    def save(self, path: Path) -> None:
        """Write an empty file, the complete copy of nothing, so that a checkpoint always has its file."""
        path.write_bytes(b"")

    def close(self) -> None:
        """Free nothing."""
