"""What the checks that compare, remember or ask are made with: a part of the rules of a round.

    CheckSettings(similarity=0.8, test_questions=("hotpotqa.jsonl",), answerer="title")

A field has no effect unless `GameSettings.validators` names the check that reads it, but for `test_questions`, whose
answers are also left out of a run's targets.  `Means` holds what is no setting: whom a check may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from sesa_env.errors import SettingsError
from sesa_env.registry import ANSWERERS

if TYPE_CHECKING:
    from sesa_env.answerers import Answerer
    from sesa_env.judge import Judge


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """One field per decision of a check.

    Raises:
        SettingsError: a value breaks its rule.
        UnknownName: the answerer is not registered.
    """

    similarity: float = 0.85
    """For "near_duplicate": cosine to a recent question from which on a question is a repetition, in (0, 1]."""
    recent: int = 512
    """For "near_duplicate": accepted questions that are remembered."""
    target_share: float = 0.2
    """For "target_share": largest part of the window that one target may have, in (0, 1]."""
    target_window: int = 100
    """For "target_share": proposals that the window is long."""
    test_questions: tuple[str, ...] = ()
    """Question files, or "atlas:SEED": "eval_overlap" refuses these questions, and no target is an answer of theirs."""
    answerer: str = "solver"
    """For "rag", name in `ANSWERERS`: who answers from the passages; "solver" is the policy that is being trained."""
    answerer_model: str | None = None
    """For the answerer "chat": the model's name at its endpoint."""
    answerer_url: str | None = None
    """For the answerer "chat": the endpoint, up to and with "/v1"."""
    noise: int = 4
    """For "rag": blocks of other rounds' passages that are mixed in."""
    closed_book: bool = False
    """For "rag": refuse also what is answered right without the challenger's passages."""

    def __post_init__(self) -> None:
        for name in ("similarity", "target_share"):
            _require(name, getattr(self, name), 0.0 < getattr(self, name) <= 1.0, "lie in (0, 1]")
        for name, least in (("recent", 1), ("target_window", 1), ("noise", 0)):
            _require(name, getattr(self, name), getattr(self, name) >= least, f"be at least {least}")
        share = self.target_share * self.target_window
        _require("target_share", self.target_share, share >= 1.0 - 1e-9, "be at least one question of target_window")
        _require(
            "test_questions", self.test_questions, isinstance(self.test_questions, tuple), "be a tuple of file names"
        )
        ANSWERERS.get(self.answerer)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> CheckSettings:
        """Return the defaults with these fields changed, as they come from JSON or YAML.

        Raises:
            SettingsError: a key is not a field; the message lists the fields.
        """
        known = [item.name for item in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise SettingsError(f"unknown settings of checks {unknown}; known: {', '.join(known)}")
        changed: dict[str, Any] = dict(values)
        if isinstance(changed.get("test_questions"), list):
            changed["test_questions"] = tuple(changed["test_questions"])
        return cls(**changed)


class Means(NamedTuple):
    """Whom a check may ask: the judge of the run, and the solver's policy where one is being trained."""

    judge: Judge
    solver: Answerer | None = None


def _require(name: str, value: object, holds: bool, rule: str) -> None:
    if not holds:
        raise SettingsError(f"checks.{name} must {rule}, got {value!r}")
