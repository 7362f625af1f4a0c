"""The rules of a round as settings: what `sesa_env.game` plays by.

GameSettings(attempts=3, validators=("format", "leak"))
GameSettings.from_mapping({"attempts": 3})               # as from JSON or YAML
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sesa_env.checks import CheckSettings
from sesa_env.errors import InvalidInput, SettingsError
from sesa_env.reading import Limits
from sesa_env.registry import CHALLENGER_REWARDS, VALIDATORS
from sesa_env.validators import require_satisfiable

MIN_ATTEMPTS = 2  # with one attempt the solve rate is 0 or 1, and no question is ever at the frontier


@dataclass(frozen=True, slots=True)
class GameSettings:
    """One field per rule of the round.

    Raises:
        InvalidInput: a value is out of range.
        SettingsError: no proposal could pass the validators, or see `CheckSettings`.
        UnknownName: the challenger reward or a validator is not registered.
    """

    attempts: int = 5
    """G: how many solvers attempt each question; at least 2."""
    solver_turns: int = 5
    """Turns of a solver; a search at the last one is not executed, so this is four searches and an answer."""
    challenger_turns: int = 5
    max_invalid: int = 2
    """Turns without a valid action that a seat may have in all; the next one ends its attempt."""
    top_k: int = 3
    """Passages per search."""
    passage_chars: int = 400
    """Characters of each passage that a policy is shown."""
    max_opens: int = 0
    """Pages that a seat may open with <open>a title</open>; at 0 the tag is no action."""
    max_finds: int = 0
    """Texts that a seat may look for with <find>a text</find> in the page it opened last; at 0 the tag is no action."""
    page_chars: int = 2000
    """Characters of an opened page that a policy is shown."""
    challenger_reward: str = "frontier"
    """Name in `CHALLENGER_REWARDS`."""
    penalty: float = 0.5
    """Lambda: what a question costs its challenger that is solved always or never."""
    low: float = 0.0
    high: float = 1.0
    invalid_reward: float | None = None
    """What a refused proposal earns; None is `-penalty`."""
    validators: tuple[str, ...] = ("format", "length", "leak", "information", "searches", "repeated_query")
    """Names in `VALIDATORS`, in the order in which they run."""
    min_searches: int = 1
    min_question_words: int = 5
    max_question_chars: int = 1000
    max_question_words: int = 150
    max_clauses_per_hop: int = 3
    """Subordinate clauses of a question per hop of its target, for the validator "nested"."""
    checks: CheckSettings = field(default_factory=CheckSettings)
    """What the validators that remember, read tests or ask a model are made with."""

    def __post_init__(self) -> None:
        at_least(MIN_ATTEMPTS, attempts=self.attempts)
        at_least(1, solver_turns=self.solver_turns, challenger_turns=self.challenger_turns, top_k=self.top_k)
        at_least(1, passage_chars=self.passage_chars, max_question_chars=self.max_question_chars)
        at_least(1, page_chars=self.page_chars)
        at_least(0, max_opens=self.max_opens, max_finds=self.max_finds)
        if self.max_finds and not self.max_opens:
            raise InvalidInput(f"max_finds must be 0 where no page may be opened, got {self.max_finds!r}")
        at_least(0, max_invalid=self.max_invalid, min_searches=self.min_searches)
        at_least(0, min_question_words=self.min_question_words, max_clauses_per_hop=self.max_clauses_per_hop)
        at_least(1, max_question_words=self.max_question_words)
        finite(penalty=self.penalty, low=self.low, high=self.high, invalid_reward=self.invalid_reward or 0.0)
        if self.penalty < 0.0:
            raise InvalidInput(f"penalty must be at least 0, got {self.penalty!r}")
        if not isinstance(self.validators, tuple):
            raise InvalidInput(f"validators must be a tuple of names, got {self.validators!r}")
        CHALLENGER_REWARDS.get(self.challenger_reward)
        for name in self.validators:
            VALIDATORS.get(name)
        require_satisfiable(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> GameSettings:
        """Return the settings with these fields changed, as they come from JSON or YAML.

        Raises:
            SettingsError: a key is not a field; the message lists the fields.
        """
        known = [item.name for item in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise SettingsError(f"unknown game settings {unknown}; known: {', '.join(known)}")
        changed = dict(values)
        if isinstance(changed.get("validators"), list):
            changed["validators"] = tuple(changed["validators"])
        if isinstance(changed.get("checks"), Mapping):
            changed["checks"] = CheckSettings.from_mapping(changed["checks"])
        return cls(**changed)

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that a seat has next to search: "open" and "find", or none."""
        if not self.max_opens:
            return ()
        return ("open", "find") if self.max_finds else ("open",)

    @property
    def limits(self) -> Limits:
        """How much of a page is shown."""
        return Limits(page_chars=self.page_chars, passage_chars=self.passage_chars, matches=self.top_k)

    @property
    def rejection_reward(self) -> float:
        """What a refused proposal earns its challenger."""
        return 0.0 - self.penalty if self.invalid_reward is None else self.invalid_reward


def at_least(minimum: int, **values: int) -> None:
    """Refuse a value that is no whole number from `minimum` up.

    Raises:
        InvalidInput: it is none; the message has its name.
    """
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise InvalidInput(f"{name} must be a whole number, at least {minimum}, got {value!r}")


def finite(**values: float) -> None:
    """Refuse a value that is no finite number.

    Raises:
        InvalidInput: it is none; the message has its name.
    """
    for name, value in values.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidInput(f"{name} must be a finite number, got {value!r}")
