"""Who decides what an answer is worth.

    ExactMatchJudge().judge(question, "the Nile")  # 1.0 when "Nile" is an accepted answer

A judge that cannot decide (its model is down, say) returns None: the attempt is then neither scored nor learned from.
"""

from __future__ import annotations

from typing import Protocol

from sesa_env.rewards import exact_match
from sesa_env.types import Question


class Judge(Protocol):
    """Scores answers; a score above 0 counts as solved."""

    def judge(self, question: Question, prediction: str | None) -> float | None:
        """Return what the prediction is worth, usually 1.0 or 0.0, or None when it cannot be scored.

        `prediction` is None when the attempt ended without an answer.
        """
        ...


class ExactMatchJudge:
    """Pays 1.0 for an exact match after normalisation, else 0.0."""

    def judge(self, question: Question, prediction: str | None) -> float:
        """Return 1.0 when the prediction matches an accepted answer, else 0.0."""
        return float(exact_match(prediction, question.answers))
