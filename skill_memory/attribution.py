"""Whose fault was a failure?  Only what the solver did not know is worth a new skill.

The first cause of CAUSES that holds is the verdict, else it is GAP, a gap of knowledge or strategy, and the failure
teaches.  Nothing here asks a model: causes are decided by searches alone, and doubt ends in GAP.

    cause, detail = attribute(Case(failure, shown=skills, search=retriever.search, top_k=3))

    unanswerable      no passage within the search tool's reach states an accepted answer, though it is asked for the
                      answer itself, alone and beside the question, and PROBE_DEPTH passages deep
    retriever_limit   some passage does, but the `top_k` passages a solver gets hold none of them even for the page's
                      own title, alone and beside the question
    not_followed      a skill was shown whose trigger is in the question, and no query has the form it recommends

Answers such as "yes" stand in any passage, so the first two are never said of them.  Source: VeriSkill's attribution of
failures (unsatisfiable, prover incapacity, non-compliance, knowledge gap), carried over to search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sesa_env.text import answer_tokens
from sesa_env.types import Passage
from skill_memory.abstraction import is_generic, states_answer
from skill_memory.base import Failure
from skill_memory.skill import Skill
from skill_memory.triggers import is_about

Search = Callable[[Sequence[str], int], list[list[Passage]]]
"""A retriever's `search`."""

GAP = "gap"
"""The cause that teaches."""
PROBE_DEPTH = 50
_MOST_ANSWERS, _MOST_PAGES = 3, 5
"""Accepted answers asked for, and pages asked for by title, in one probe."""


@dataclass(frozen=True)
class Case:
    """A failure, the skills its prompt showed, and the search tool as the solver has it."""

    failure: Failure
    shown: tuple[Skill, ...]
    search: Search
    top_k: int

    @cached_property
    def answers(self) -> list[str]:
        """The accepted answers that say something by themselves."""
        return [answer for answer in self.failure.answers if not is_generic(answer)]

    @cached_property
    def gold(self) -> list[Passage]:
        """The passages found, knowing the answer, that state it; those the attempt read come first."""
        asked = [f"{answer}{rest}" for answer in self.answers[:_MOST_ANSWERS] for rest in ("", self._question)]
        found = [passage for passages in self.search(asked, PROBE_DEPTH) for passage in passages] if asked else []
        return [passage for passage in [*self.failure.trajectory.passages, *found] if self.states_answer(passage)]

    @property
    def _question(self) -> str:
        return f" {self.failure.question}"

    def states_answer(self, passage: Passage) -> bool:
        """Whether a passage holds an accepted answer, in its title or text."""
        return states_answer(passage, self.answers)

    def is_within_reach(self) -> bool:
        """Whether a solver that knew the page's title would be shown a passage with the answer."""
        if any(map(self.states_answer, self.failure.trajectory.passages)):
            return True
        titles = list(dict.fromkeys(passage.title for passage in self.gold))[:_MOST_PAGES]
        queries = [f"{title}{rest}" for title in titles for rest in ("", self._question)]
        results = self.search(queries, self.top_k)
        return any(self.states_answer(passage) for passages in results for passage in passages)


def attribute(case: Case) -> tuple[str, str]:
    """Return the cause of a failure and what shows it; GAP when no other cause does."""
    for cause, holds in CAUSES.items():
        detail = holds(case)
        if detail:
            return cause, detail
    return GAP, ""


def unanswerable(case: Case) -> str:
    """No passage within reach states an accepted answer."""
    return "" if case.gold or not case.answers else f"no passage states {case.answers[0]!r}"


def retriever_limit(case: Case) -> str:
    """A passage states it, and the search tool does not show it even to those who ask for its page."""
    if not case.answers or case.is_within_reach():
        return ""
    return f"{case.gold[0].title!r} states it and is not found by its title"


def not_followed(case: Case) -> str:
    """A skill for this question was shown, and no query has a form that such a skill recommends."""
    fitting = [skill for skill in case.shown if is_about(skill, case.failure.question)]
    queries = case.failure.trajectory.queries
    if not fitting or any(
        fits_template(query, form) for skill in fitting for form in skill.queries for query in queries
    ):
        return ""
    return f"no query has the form of {', '.join(skill.id for skill in fitting)}"


CAUSES: dict[str, Callable[[Case], str]] = {
    "unanswerable": unanswerable,
    "retriever_limit": retriever_limit,
    "not_followed": not_followed,
}

_SLOT = re.compile(r"\{[^}]*\}")


def fits_template(query: str, template: str) -> bool:
    """Whether a query has all the plain words of a template, and a word for its slots if it has any."""
    words = set(answer_tokens(query))
    plain = set(answer_tokens(_SLOT.sub(" ", template)))
    return plain <= words and (not _SLOT.search(template) or bool(words - plain))
