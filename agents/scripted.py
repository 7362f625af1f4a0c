"""Deterministic agents that need no model: they prove the plumbing and set the ends of the scale.

Oracle(questions, queries)    searches for what it is told to and gives the gold answer: 100 % by construction
TemplateChallenger()          searches its target's name and poses a question from the passage it finds
RandomAgent(seed)             writes random actions, most of them valid, some not
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sesa_env.envs.opponents import TemplateChallenger as TemplateChallenger
from sesa_env.errors import InvalidInput
from sesa_env.text import neutralise
from sesa_env.types import CHALLENGER, Question, View


class Oracle:
    """Solves questions it knows: one search per given query, then the gold answer.

    Args:
        answers: gold answer by question text.
        queries: queries to send first, by question text; gold titles, say.
    """

    def __init__(self, answers: Mapping[str, str], queries: Mapping[str, Sequence[str]]) -> None:
        self._answers = answers
        self._queries = queries

    @classmethod
    def knowing(cls, questions: Sequence[Question], queries: Callable[[Question], Sequence[str]]) -> Oracle:
        """Return one that knows these questions, as they are shown, by the first of their answers."""
        shown = {neutralise(question.text): question for question in questions}
        return cls(
            {text: question.answers[0] for text, question in shown.items()},
            {text: queries(question) for text, question in shown.items()},
        )

    def act(self, views: Sequence[View]) -> list[str]:
        """Return the next query while some are left and there is a turn to spare, then the answer.

        Raises:
            InvalidInput: a view shows a question the oracle was not told about.
        """
        return [self._text(view) for view in views]

    def _text(self, view: View) -> str:
        if view.question not in self._answers:
            raise InvalidInput(f"question must be one the oracle knows, got {view.question!r}")
        queries = self._queries.get(view.question, ())
        if view.turn < len(queries) and view.turns_left > 1:
            return f"<search>{queries[view.turn]}</search>"
        return f"<answer>{self._answers[view.question]}</answer>"


class RandomAgent:
    """Writes random actions from its own random stream; one in ten is no action at all.

    Args:
        seed: of the random stream.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def act(self, views: Sequence[View]) -> list[str]:
        """Draw one action per view from the words it has been shown."""
        return [self._text(view) for view in views]

    def _text(self, view: View) -> str:
        words = re.findall(r"\w+", f"{view.question} {view.target} {view.observation}") or ["nothing"]
        phrase = " ".join(self._rng.choice(words, size=3))
        last = "question" if view.role == CHALLENGER else "answer"
        kind = self._rng.choice(["search", last, "none"], p=[0.5, 0.4, 0.1])
        return phrase if kind == "none" else f"<{kind}>{phrase}</{kind}>"
