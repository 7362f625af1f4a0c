"""The settings of a skill memory: one field per decision of the method, an ablation changes exactly one.

    settings = MemorySettings(k=3, cap=800)
    no_memory = replace(settings, kind="none")

Names (`kind`, `encoder`, `distil`) are looked up in their registries when the memory is made; numbers are checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from sesa_env.errors import SettingsError


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What to remember, how to find it again, and when to learn.  The defaults are SESA's where it states them.

    Raises:
        SettingsError: a value breaks the rule of its field.
    """

    kind: str = "bank"
    """Name in MEMORIES: "none", "static", "bank" (SESA's), "skillrl", "placebo" or "remote"."""
    encoder: str = "hashing"
    """Name in ENCODERS: what turns skills and questions into vectors."""
    k: int = 3
    """Skills shown per question."""
    floor: float = -1.0
    """Least cosine at which a skill is shown; -1 shows the k best whatever their cosine, as SESA does."""
    triggered: bool = False
    """Whether "bank", "static" and "placebo" show a skill only for questions that one of its triggers stands in; SESA
    asks for no such thing."""
    token_budget: int = 300
    """Most tokens an agent may spend on the block of skills in its prompt."""
    priming: bool = True
    """Whether a new bank starts from the hand-written skills."""
    distil: str = "rules"
    """Name in DISTILLERS: who writes skills from failures; "none" writes none."""
    distil_options: dict[str, Any] = field(default_factory=dict)
    """What that distiller is made with, such as model and base_url; never a key, for settings are saved with a run."""
    distil_every: int = 10
    """Training steps between two consolidations."""
    min_waiting: int = 20
    """Failures that must be waiting for a consolidation to take place."""
    max_cards: int = 30
    """Failures distilled in one consolidation, those of highest priority."""
    background: bool = False
    """Whether the distiller works while the next steps are played; its skills come one consolidation later."""
    attribution: bool = False
    """Whether a failure teaches only when neither the question, nor the search tool, nor a skill that was not followed
    is to blame."""
    executed: bool = False
    """Whether a skill is admitted only if it raises success when played (VeriSkill); it costs attempts."""
    trial_questions: int = 4
    """Most hidden and most past questions that a candidate is played on, besides the one it came from."""
    queue_size: int = 300
    """Failures that can wait; the oldest is dropped on overflow."""
    frontier_only: bool = True
    """Whether only failures at questions that were sometimes solved (0 < p < 1) are wanted."""
    cap: int = 800
    """Most skills a bank holds."""
    max_similarity: float | None = None
    """Largest cosine to a known skill at which a new one is still new; None takes the encoder's own."""
    source: str | None = None
    """What a new memory starts from besides: a file of JSON lines, a bank's file or a run's folder, as it was at a step
    with @STEP; for "remote", the address of the service."""
    lookup: str = "embedding"
    """How "skillrl" finds skills for a kind of question: by its key words ("keyword") or by cosine ("embedding")."""
    success_floor: float = 0.4
    """Success rate of a kind of question below which "skillrl" learns from its failures."""

    def __post_init__(self) -> None:
        for item in fields(self):
            rule, holds = _RULES[item.name]
            value = getattr(self, item.name)
            if not holds(value):
                raise SettingsError(f"{item.name} must be {rule}, got {value!r}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _are_options(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value) and "api_key" not in value


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
    "triggered": _FLAG,
    "token_budget": _COUNT,
    "priming": _FLAG,
    "distil": _NAME,
    "distil_options": ("a mapping from names to values, without api_key", _are_options),
    "distil_every": _COUNT,
    "min_waiting": _COUNT,
    "max_cards": _COUNT,
    "background": _FLAG,
    "attribution": _FLAG,
    "executed": _FLAG,
    "trial_questions": _COUNT,
    "queue_size": _COUNT,
    "frontier_only": _FLAG,
    "cap": _COUNT,
    "max_similarity": ("a cosine in [-1, 1], or None", _is_cosine_or_none),
    "source": ("a non-blank name, or None", lambda value: value is None or _is_name(value)),
    "lookup": ("'keyword' or 'embedding'", lambda value: value in ("keyword", "embedding")),
    "success_floor": ("a share in [0, 1]", lambda value: _is_cosine(value) and value >= 0.0),
}
