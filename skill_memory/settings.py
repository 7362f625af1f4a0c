"""The settings of a skill memory: one field per decision of the method, an ablation changes exactly one.

    settings = MemorySettings(k=3, cap=800)
    no_memory = replace(settings, kind="none")

Names (`kind`, `encoder`, `distil`) are looked up in their registries when the memory is made; numbers are checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from sesa_env.errors import SettingsError


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What to remember, how to find it again, and when to learn.  The defaults are SESA's where it states them.

    Raises:
        SettingsError: a value breaks the rule of its field.
    """

    kind: str = "bank"
    """Name in MEMORIES: "bank" (SESA's) or "none" (no memory)."""
    encoder: str = "hashing"
    """Name in ENCODERS: what turns skills and questions into vectors."""
    k: int = 3
    """Skills shown per question."""
    floor: float = -1.0
    """Least cosine at which a skill is shown; -1 shows the k best whatever their cosine, as SESA does."""
    token_budget: int = 300
    """Most tokens an agent may spend on the block of skills in its prompt."""
    priming: bool = True
    """Whether a new bank starts from the hand-written skills."""
    distil: str = "rules"
    """Name in DISTILLERS: who writes skills from failures; "none" writes none."""
    distil_every: int = 10
    """Training steps between two consolidations."""
    min_waiting: int = 20
    """Failures that must be waiting for a consolidation to take place."""
    max_cards: int = 30
    """Failures distilled in one consolidation, those of highest priority."""
    queue_size: int = 300
    """Failures that can wait; the oldest is dropped on overflow."""
    frontier_only: bool = True
    """Whether only failures at questions that were sometimes solved (0 < p < 1) are wanted."""
    cap: int = 800
    """Most skills a bank holds."""
    max_similarity: float | None = None
    """Largest cosine to a known skill at which a new one is still new; None takes the encoder's own."""

    def __post_init__(self) -> None:
        for field in fields(self):
            rule, holds = _RULES[field.name]
            value = getattr(self, field.name)
            if not holds(value):
                raise SettingsError(f"{field.name} must be {rule}, got {value!r}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_cosine(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1.0 <= value <= 1.0


def _is_cosine_or_none(value: Any) -> bool:
    return value is None or _is_cosine(value)


_NAME = ("a non-blank name", _is_name)
_FLAG = ("True or False", _is_flag)
_COUNT = ("a whole number of at least 1", _is_count)

_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "kind": _NAME,
    "encoder": _NAME,
    "k": _COUNT,
    "floor": ("a cosine in [-1, 1]", _is_cosine),
    "token_budget": _COUNT,
    "priming": _FLAG,
    "distil": _NAME,
    "distil_every": _COUNT,
    "min_waiting": _COUNT,
    "max_cards": _COUNT,
    "queue_size": _COUNT,
    "frontier_only": _FLAG,
    "cap": _COUNT,
    "max_similarity": ("a cosine in [-1, 1], or None", _is_cosine_or_none),
}
