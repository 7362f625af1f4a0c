"""Guards of a run: figures that must stay within limits, or the run is warned about and at last stopped.

    guard = Guard(GuardSettings())
    warnings = guard.watch(step, report.numbers)      # raises TrainingStopped when a limit was passed for too long

A guard's state follows from the figures alone, so a resumed run shows its guard the figures of the steps before.

What never waits for a guard: a loss or gradient that is not finite takes no step at all (`agents.learner`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Literal, NamedTuple

from sesa_env.errors import SettingsError, TrainingStopped
from sesa_env.types import CHALLENGER, SOLVER


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """The limits; None switches a guard off.

    Raises:
        SettingsError: a value is out of range.
    """

    patience: int = 5
    """Steps in a row that a figure may be past its limit before the run is stopped; 0 only warns."""
    max_logp_gap: float | None = 0.1
    """Mean |sampler - learner| per written token, in nats."""
    max_kl: float | None = 2.0
    """Mean KL to the reference per written token, in nats."""
    min_entropy: float | None = 0.005
    max_entropy: float | None = 6.0
    """Bounds of the mean entropy of written tokens, in nats: below, nothing new is tried; above, it is noise."""
    max_repetition: float | None = 0.8
    """Share of 4-grams that the policy had written before in the same attempt."""
    min_valid_actions: float | None = 0.05
    """Share of turns with a valid action."""
    max_fall: float | None = 0.9
    """How much of its best mean over `patience` steps the solve rate or the share of valid questions may lose."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "max_fall" and value is not None and not 0 <= value < inf:
                raise SettingsError(f"guard.{item.name} must be finite and not negative, or None, got {value!r}")
        if self.max_fall is not None and not 0 < self.max_fall < 1:
            raise SettingsError(f"guard.max_fall must lie in (0, 1), or be None, got {self.max_fall!r}")


class _Rule(NamedTuple):
    figure: str
    side: Literal["above", "below"]
    setting: str


_BY_ROLE = (
    _Rule("logp_gap_mean", "above", "max_logp_gap"),
    _Rule("kl", "above", "max_kl"),
    _Rule("entropy", "below", "min_entropy"),
    _Rule("entropy", "above", "max_entropy"),
    _Rule("repetition", "above", "max_repetition"),
    _Rule("action/valid", "below", "min_valid_actions"),
)
_FALLING = ("solve_rate/mean", "valid_share")
MEANINGFUL = 0.1
"""A mean below this is too near the noise of a few attempts to fall from."""


class Guard:
    """Watches the figures of a run, step by step.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._since: dict[tuple[str, str], int] = {}
        self._count: dict[tuple[str, str], int] = {}
        self._recent: dict[str, deque[float]] = {}
        self._best: dict[str, float] = {}

    def watch(self, step: int, numbers: Mapping[str, float]) -> list[str]:
        """Look at a step's figures and return what passed its limit at this step and not before.

        A figure that was not measured leaves its guard as it was.

        Raises:
            TrainingStopped: a figure was past its limit for `patience` steps in a row.
        """
        begun = []
        for figure, side, limit, value in self._comparisons(_with_valid_actions(numbers)):
            key = (figure, side)
            if not (value > limit if side == "above" else value < limit):
                self._count.pop(key, None)
                continue
            count = self._count[key] = self._count.get(key, 0) + 1
            if count == 1:
                self._since[key] = step
                begun.append(f"{figure} is {value:.3g} at step {step}, {side} its limit {limit:.3g}")
            if count == self._settings.patience:
                raise TrainingStopped(
                    f"{figure} is {value:.3g} at step {step}, and was {side} its limit {limit:.3g} for {count} steps; "
                    f"the last good step is {self._since[key] - 1}: go back to a checkpoint of that step or before"
                )
        return begun

    def _comparisons(
        self, numbers: Mapping[str, float]
    ) -> Iterator[tuple[str, Literal["above", "below"], float, float]]:
        for role in (CHALLENGER, SOLVER):
            for rule in _BY_ROLE:
                limit, value = getattr(self._settings, rule.setting), numbers.get(f"{role}/{rule.figure}")
                if limit is not None and value is not None:
                    yield f"{role}/{rule.figure}", rule.side, limit, value
        for figure in _FALLING:
            if self._settings.max_fall is not None and figure in numbers:
                yield figure, "below", self._floor(figure, numbers[figure]), numbers[figure]

    def _floor(self, figure: str, value: float) -> float:
        """Return what the figure must not fall below, and take its new value into its best mean."""
        assert self._settings.max_fall is not None
        best = self._best.get(figure, 0.0)
        recent = self._recent.setdefault(figure, deque(maxlen=max(self._settings.patience, 1)))
        recent.append(value)
        if len(recent) == recent.maxlen:
            self._best[figure] = max(best, sum(recent) / len(recent))
        return (1.0 - self._settings.max_fall) * best if best >= MEANINGFUL else 0.0


def _with_valid_actions(numbers: Mapping[str, float]) -> dict[str, float]:
    """Add each role's share of valid turns; a share of invalid turns that is 0 is not among the figures."""
    acted = {role for role in (CHALLENGER, SOLVER) if any(name.startswith(f"{role}/action/") for name in numbers)}
    valid = {f"{role}/action/valid": 1.0 - numbers.get(f"{role}/action/invalid", 0.0) for role in acted}
    return {**numbers, **valid}
