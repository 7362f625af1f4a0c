"""Past questions, kept to fill the place of a proposal that was refused.

    pool = ReplayPool(capacity=512, max_solve_rate=0.5, reset_every=10, seed=0)
    pool.add(round.question, solve_rate=round.solve_rate)
    pool.draw(3)          # three kept questions, or fewer when the pool has fewer; never a made-up one
    pool.end_step()       # every tenth step empties the pool, so that old questions do not pile up

A replayed question goes to the solvers only: the challenger whose place it fills is paid for its refused proposal.
Source: SSP, replay buffer with periodic reset; there a question can be in the pool twice, and an empty pool gives a
dummy question.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sesa_env.errors import CorpusError, InvalidInput
from sesa_env.text import normalise_answer
from sesa_env.types import Question

SCHEMA = 1  # raised whenever the state changes meaning; `set_state` refuses what it does not know


@dataclass(frozen=True, slots=True)
class Kept:
    """A question of the pool with the solve rate of its latest round."""

    question: Question
    solve_rate: float


class ReplayPool:
    """Questions with their solve rates, each once, drawn uniformly.

    Args:
        capacity: how many are kept; beyond that the one that was added longest ago leaves.
        max_solve_rate: only questions whose stored solve rate is at most this are drawn, in [0, 1].
        reset_every: after so many steps the pool is emptied; 0 is never.
        seed: of the drawing.

    Raises:
        InvalidInput: a value is out of range.
    """

    def __init__(
        self, *, capacity: int = 1024, max_solve_rate: float = 1.0, reset_every: int = 10, seed: int = 0
    ) -> None:
        for name, value, least in [("capacity", capacity, 1), ("reset_every", reset_every, 0)]:
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(f"{name} must be a whole number, at least {least}, got {value!r}")
        _check_rate(max_solve_rate=max_solve_rate)
        self.capacity = capacity
        self.max_solve_rate = max_solve_rate
        self.reset_every = reset_every
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
        if len(self._kept) > self.capacity:
            del self._kept[next(iter(self._kept))]

    def draw(self, number: int) -> list[Question]:
        """Return up to `number` different questions, each set of them equally likely, in random order; they stay kept.

        Raises:
            InvalidInput: `number` is negative.
        """
        if number < 0:
            raise InvalidInput(f"number must be at least 0, got {number!r}")
        fit = [kept.question for kept in self._kept.values() if kept.solve_rate <= self.max_solve_rate]
        return [fit[index] for index in self._rng.permutation(len(fit))[:number]]

    def end_step(self) -> bool:
        """Count a training step, and empty the pool when it is the last before a reset.

        Returns:
            Whether the pool was emptied.
        """
        self._steps += 1
        emptied = self.reset_every > 0 and self._steps % self.reset_every == 0
        if emptied:
            self._kept.clear()
        return emptied

    def get_state(self) -> dict[str, Any]:
        """Return questions, steps and the state of the drawing as JSON data; the arguments are not part of it."""
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
        if len(kept) > self.capacity:
            raise InvalidInput(f"state must have at most {self.capacity} questions, got {len(kept)}")
        self._steps, self._rng = steps, rng
        self._kept = {normalise_answer(item.question.text): item for item in kept}

    def save(self, path: Path) -> None:
        """Write the state as JSON, all or nothing: a killed process leaves the old file whole."""
        draft = path.with_name(path.name + ".tmp")
        draft.write_text(json.dumps(self.get_state()), encoding="utf-8")
        os.replace(draft, path)

    def load(self, path: Path) -> None:
        """Go on from a file that `save` wrote.

        Raises:
            CorpusError: the file is missing or no JSON.
            InvalidInput: as `set_state`.
        """
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CorpusError(f"{path} is no saved replay pool: {error}") from error
        self.set_state(state)


def _read(data: Mapping[str, Any]) -> Kept:
    question = data["question"]
    answers, titles = tuple(question["answers"]), tuple(question["supporting_titles"])
    _check_rate(solve_rate=data["solve_rate"])
    return Kept(Question(**{**question, "answers": answers, "supporting_titles": titles}), data["solve_rate"])


def _check_rate(**values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value <= 1.0:
            raise InvalidInput(f"{name} must lie in [0, 1], got {value!r}")
