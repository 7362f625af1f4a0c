"""Scripted players for an Atlas: a challenger who poses its questions, and a solver who searches in a question's words.

They need no model, so what a memory does can be watched within minutes, in the real loop.  The solver knows the way
(which name leads to which) but not how pages are worded.  It follows the skills it is shown; where its words find
nothing it sometimes has the wits to search for the bare name; and now and then it slips: it passes over the skills, or
does not see what it has read.

    cast = Cast(atlas, questions)
    cast.challenger.act(views)
    cast.solver(memory, wits=0.5, slips=0.1, seed=0).act(views)

Not for: saying what a language model would make of a skill.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agents.tokens import TokenTrajectory
from sesa_env.corpora.atlas import Atlas
from sesa_env.errors import InvalidInput
from sesa_env.text import question_key
from sesa_env.types import Question, View
from skill_memory.base import SkillMemory
from skill_memory.skill import Skill
from skill_memory.triggers import akin, is_about

_SLOT = re.compile(r"\{[^}]*\}")
_TITLE = re.compile(r"Doc \d+\(Title: ([^()]+)(?: \([^()]*\))?\)")


class Hop(NamedTuple):
    """One step: the name it starts from, the question's words for what is sought, and the page that has it."""

    name: str
    words: str
    page: str

    def queries(self, skills: Sequence[Skill]) -> list[str]:
        """Return what to search for, best first: as skills about this hop say, then in the question's words."""
        said = [fill(query, self.name) for skill in skills if self._concerns(skill) for query in skill.queries]
        return list(dict.fromkeys([*said, f"{self.name} {self.words}"]))

    def _concerns(self, skill: Skill) -> bool:
        relations = [trigger.split()[-1] for trigger in skill.triggers]  # before it may stand what is asked for
        return any(akin(word, other) for word in relations for other in self.words.split())


def fill(template: str, name: str) -> str:
    """Return a query template with a name in its slots."""
    return _SLOT.sub(lambda _: name, template)


class Cast:
    """Players who share a world and its questions.

    Args:
        atlas: the world.
        questions: those that are posed, from this world.

    Raises:
        InvalidInput: two of the questions have one answer, by which the challenger knows them.
    """

    def __init__(self, atlas: Atlas, questions: Sequence[Question]) -> None:
        self.posed = {question.answers[0]: question.text for question in questions}
        if len(self.posed) < len(questions):
            raise InvalidInput("questions must have different answers")
        self.ways = {question.text: way(atlas, question) for question in questions}
        self.answers = {question.text: question.answers[0] for question in questions}
        self.challenger = Challenger(self.posed)

    def solver(self, memory: SkillMemory, *, wits: float, slips: float, seed: int) -> Solver:
        """Return a solver who is shown the skills of a memory.

        Args:
            memory: where its skills come from.
            wits: probability of searching for the bare name when the words have found nothing.
            slips: probability of a slip, in each turn.
            seed: of the draws.
        """
        return Solver(self, memory, wits=wits, slips=slips, seed=seed)


def way(atlas: Atlas, question: Question) -> tuple[Hop, ...]:
    """Return the hops of a question in the words of the question."""
    hops = []
    for fact, query in zip(atlas.chain(question.id), atlas.natural_queries(question.id), strict=True):
        relation = atlas.relations[fact.relation]
        ends = (relation.query_words(back=back, reworded=False) for back in (True, False))
        words = next(end for end in ends if query.endswith(f" {end}"))
        hops.append(Hop(query.removesuffix(f" {words}"), words, fact.subject))
    return tuple(hops)


class Challenger:
    """Looks its target up, then poses the question that it was given for it."""

    def __init__(self, posed: dict[str, str]) -> None:
        self._posed = posed

    def act(self, views: Sequence[View]) -> list[str]:
        """Search first, then pose."""
        return [
            f"<question>{self._posed[view.target]}</question>" if view.turn else f"<search>{view.target}</search>"
            for view in views
        ]

    def drain(self) -> dict[str, TokenTrajectory]:
        """Return nothing: no token was written."""
        return {}


@dataclass(slots=True)
class _Attempt:
    """Where an attempt is: its hops, the skills it goes by, the hop it is at, and the queries left to try there."""

    hops: tuple[Hop, ...]
    skills: tuple[Skill, ...]
    at: int = 0
    queries: list[str] | None = None


class Solver:
    """Goes from name to name by searching; made by `Cast.solver`."""

    def __init__(self, cast: Cast, memory: SkillMemory, *, wits: float, slips: float, seed: int) -> None:
        self._cast = cast
        self._memory = memory
        self._wits, self._slips = wits, slips
        self._rng = np.random.default_rng(seed)
        self._attempts: dict[str, _Attempt] = {}
        self._shown: dict[str, TokenTrajectory] = {}

    def act(self, views: Sequence[View]) -> list[str]:
        """Return one turn per view, in order."""
        self._open([view for view in views if view.turn == 0])
        return [self._turn(view, self._attempts[view.episode]) for view in views]

    def drain(self) -> dict[str, TokenTrajectory]:
        """Return which skills each attempt was shown; no token was written."""
        shown, self._shown = self._shown, {}
        self._attempts.clear()
        return shown

    def _open(self, views: Sequence[View]) -> None:
        questions = list(dict.fromkeys(view.question for view in views))
        keys = [question_key(question) for question in questions]
        found = dict(zip(questions, self._memory.retrieve(questions, exclude_source=keys), strict=True))
        for view in views:
            skills = found[view.question]
            self._shown[view.episode] = TokenTrajectory(
                view.episode, (), (), (), 0, tuple(skill.id for skill in skills), self._memory.snapshot_id
            )
            fitting = (
                () if self._draw(self._slips) else tuple(skill for skill in skills if is_about(skill, view.question))
            )
            self._attempts[view.episode] = _Attempt(self._cast.ways[view.question], fitting)

    def _turn(self, view: View, attempt: _Attempt) -> str:
        titles = _TITLE.findall(view.observation)
        if view.turn and self._draw(self._slips):
            return self._guess(view, titles)
        if f"(Title: {attempt.hops[attempt.at].page})" in view.observation:
            attempt.at, attempt.queries = attempt.at + 1, None
        if attempt.at == len(attempt.hops):
            return f"<answer>{self._cast.answers[view.question]}</answer>"
        if attempt.queries is None:
            hop = attempt.hops[attempt.at]
            attempt.queries = [*hop.queries(attempt.skills), *([hop.name] if self._draw(self._wits) else ())]
        if not attempt.queries or view.turns_left < 2:
            return self._guess(view, titles)
        return f"<search>{attempt.queries.pop(0)}</search>"

    def _guess(self, view: View, titles: Sequence[str]) -> str:
        """Answer with the first title read that is wrong."""
        wrong = (title for title in titles if title != self._cast.answers[view.question])
        return f"<answer>{next(wrong, 'unknown')}</answer>"

    def _draw(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)
