"""One skill: the five-tuple of SESA (description, triggers, avoidance cues, query templates, usage record).

A skill is text that a solver may be shown.  It is untrusted: it is length-limited and cleaned where it enters a bank.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Usage:
    """How a skill has fared: retrieved for a question, and whether most attempts at it succeeded."""

    retrieved: int = 0
    helped: int = 0
    hurt: int = 0

    @property
    def net(self) -> int:
        """Help minus hurt; eviction starts with the lowest."""
        return self.helped - self.hurt


@dataclass(frozen=True, slots=True)
class Skill:
    """A search lesson (u, c, a, z, m): what to do, when, what to avoid, how to phrase the query, how it fared.

    `source` is the id of the question it was distilled from ("" for hand-written ones); `is_seed` makes it immune to
    eviction.  Source: SESA, section on the skill tuple.
    """

    id: str
    description: str
    triggers: tuple[str, ...]
    avoid: str
    queries: tuple[str, ...]
    category: str = ""
    source: str = ""
    created_step: int = 0
    is_seed: bool = False
    usage: Usage = field(default_factory=Usage)

    @property
    def text(self) -> str:
        """The text that is embedded and compared: description, triggers and avoidance cue."""
        return " ".join(part for part in (self.description, ", ".join(self.triggers), self.avoid) if part)

    def used(self, *, helped: int = 0, hurt: int = 0) -> Skill:
        """Return this skill after one more retrieval."""
        usage = self.usage
        return replace(self, usage=Usage(usage.retrieved + 1, usage.helped + helped, usage.hurt + hurt))
