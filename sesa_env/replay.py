"""Past questions, kept to fill the place of a proposal that was refused.

    pool = ReplayPool(ReplaySettings(capacity=512, max_solve_rate=0.5, reset_every=10), seed=0)
    pool.add(round.question, solve_rate=round.solve_rate)
    pool.draw(3)          # three kept questions, or fewer when the pool has fewer; never a made-up one
    pool.end_step()       # every tenth step empties the pool, so that old questions do not pile up

A replayed question goes to the solvers only: the challenger whose place it fills is paid for its refused proposal.
Source: SSP, replay buffer with periodic reset; there a question can be in the pool twice, and an empty pool gives a
dummy question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sesa_env.errors import InvalidInput, SettingsError
from sesa_env.text import normalise_answer
from sesa_env.types import Question

SCHEMA = 1  # raised whenever the state changes meaning; `set_state` refuses what it does not know


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What a pool keeps, and for how long.

    Raises:
        SettingsError: a value is out of range.
    """

    capacity: int = 1024
    """Questions that are kept; beyond that the one that was added longest ago leaves.  0 keeps and replays none."""
    max_solve_rate: float = 1.0
    """Only questions whose stored solve rate is at most this are replayed, in [0, 1]."""
    reset_every: int = 10
    """Training steps after which the pool is emptied; 0 is never."""

    def __post_init__(self) -> None:
        for name in ("capacity", "reset_every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise SettingsError(f"replay.{name} must be a whole number, at least 0, got {value!r}")
        if not _is_rate(self.max_solve_rate):
            raise SettingsError(f"replay.max_solve_rate must lie in [0, 1], got {self.max_solve_rate!r}")


@dataclass(frozen=True, slots=True)
class Kept:
    """A question of the pool with the solve rate of its latest round."""

    question: Question
    solve_rate: float


class ReplayPool:
    """Questions with their solve rates, each once, drawn uniformly.

    Args:
        settings: what is kept, and for how long.
        seed: of the drawing.
    """

    def __init__(self, settings: ReplaySettings | None = None, *, seed: int = 0) -> None:
        self.settings = settings or ReplaySettings()
        self._steps = 0
        self._rng = np.random.default_rng(seed)
        self._kept: dict[str, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """All questions of the pool, the one that was added longest ago first."""
        return tuple(self._kept.values())

    def add(self, question: Question, *, solve_rate: float) -> None:
        """Keep a question, or give the kept one its fresh solve rate: texts equal after normalisation are one question.

        Raises:
            InvalidInput: the solve rate is not in [0, 1]; a round without one has nothing to replay.
        """
        _check_rate(solve_rate=solve_rate)
        key = normalise_answer(question.text)
        self._kept.pop(key, None)  # so that it counts as added now
        self._kept[key] = Kept(question, float(solve_rate))
        if len(self._kept) > self.settings.capacity:
            del self._kept[next(iter(self._kept))]

    def draw(self, number: int) -> list[Question]:
        """Return up to `number` different questions, each set of them equally likely, in random order; they stay kept.

        Raises:
            InvalidInput: `number` is negative.
        """
        if number < 0:
            raise InvalidInput(f"number must be at least 0, got {number!r}")
        fit = [kept.question for kept in self._kept.values() if kept.solve_rate <= self.settings.max_solve_rate]
        return [fit[index] for index in self._rng.permutation(len(fit))[:number]]

    def end_step(self) -> bool:
        """Count a training step, and empty the pool when it is the last before a reset.

        Returns:
            Whether the pool was emptied.
        """
        self._steps += 1
        every = self.settings.reset_every
        emptied = every > 0 and self._steps % every == 0
        if emptied:
            self._kept.clear()
        return emptied

    def get_state(self) -> dict[str, Any]:
        """Return questions, steps and the state of the drawing as JSON data; the settings are not part of it."""
        return {
            "schema": SCHEMA,
            "steps": self._steps,
            "random": self._rng.bit_generator.state,
            "kept": [asdict(kept) for kept in self._kept.values()],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned.

        Raises:
            InvalidInput: it is no such state, or has more questions than the capacity; nothing was changed.
        """
        if not isinstance(state, Mapping) or state.get("schema") != SCHEMA:
            raise InvalidInput(f"state must be what get_state returned, of schema {SCHEMA}, got {state!r:.80}")
        try:
            kept = [_read(item) for item in state["kept"]]
            steps, rng = int(state["steps"]), np.random.default_rng()
            rng.bit_generator.state = state["random"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"state must be what get_state returned, got a part that is not: {error!r}") from error
        if len(kept) > self.settings.capacity:
            raise InvalidInput(f"state must have at most {self.settings.capacity} questions, got {len(kept)}")
        self._steps, self._rng = steps, rng
        self._kept = {normalise_answer(item.question.text): item for item in kept}


def _read(data: Mapping[str, Any]) -> Kept:
    question = data["question"]
    answers, titles = tuple(question["answers"]), tuple(question["supporting_titles"])
    _check_rate(solve_rate=data["solve_rate"])
    return Kept(Question(**{**question, "answers": answers, "supporting_titles": titles}), data["solve_rate"])


def _check_rate(**values: float) -> None:
    for name, value in values.items():
        if not _is_rate(value):
            raise InvalidInput(f"{name} must lie in [0, 1], got {value!r}")


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
