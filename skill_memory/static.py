"""A frozen bank: its skills are shown, and nothing that happens changes them.

    memory = StaticMemory(MemorySettings(kind="static", source="mined.jsonl", priming=False), Path("run/bank.sqlite"))

The control arm that tells what a bank is worth from what its growing is worth.
"""

from __future__ import annotations

from collections.abc import Iterable

from skill_memory.base import Consolidation, Failure, Use
from skill_memory.stored import StoredMemory


class StaticMemory(StoredMemory):
    """The skills that the settings say to start from, for good; the arguments are those of `StoredMemory`."""

    def credit(self, uses: Iterable[Use]) -> None:
        """Count nothing: a counter would be a change."""

    def offer(self, failure: Failure) -> bool:
        """Return False: no failure is wanted."""
        return False

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Return None: there is never anything to learn."""
        return None
