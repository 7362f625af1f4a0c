"""Checks that a proposed question must pass before anybody tries to solve it.

Each check is a function of the proposal and the settings that returns "" when the proposal passes, else why it does
not.  `GameSettings.validators` names those that run, in order; the first that refuses decides.

    check(proposal, settings)  # "" or the name of the validator that refused, such as "leak"

A refused proposal leaves the game: it has no solve rate and is never repaired or replaced.
Source: the filters of SSP, its section on question verification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sesa_env.registry import VALIDATORS
from sesa_env.text import contains_answer, split_words
from sesa_env.types import Target, Trajectory

if TYPE_CHECKING:
    from sesa_env.game import GameSettings

MIN_QUESTION_CHARS = 10


@dataclass(frozen=True, slots=True)
class Proposal:
    """A question text with the target it was made for and all that its challenger did to make it."""

    target: Target
    trajectory: Trajectory
    text: str


def check(proposal: Proposal, settings: GameSettings) -> str:
    """Return the name of the first validator of the settings that refuses the proposal, "" when all let it pass.

    Raises:
        UnknownName: the settings name a validator that is not registered.
    """
    for name in settings.validators:
        if VALIDATORS.get(name)(proposal, settings):
            return name
    return ""


def has_format(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a proposal without a question."""
    return "" if proposal.text.strip() else "there is no question"


def has_length(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question of fewer than 10 or more than `max_question_chars` characters, or of too few words."""
    characters, words = len(proposal.text), len(split_words(proposal.text))
    if not MIN_QUESTION_CHARS <= characters <= settings.max_question_chars:
        return f"{characters} characters, not {MIN_QUESTION_CHARS} to {settings.max_question_chars}"
    if words < settings.min_question_words:
        return f"{words} words, fewer than {settings.min_question_words}"
    return ""


def has_no_leak(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question that has the answer, or one of its aliases, in it as whole words."""
    for answer in (proposal.target.answer, *proposal.target.aliases):
        if contains_answer(proposal.text, answer):
            return f"the question contains {answer!r}"
    return ""


def has_information(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question whose challenger saw no passage: nothing in the corpus supports it."""
    return "" if proposal.trajectory.passages else "no search found anything"


def has_searches(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question whose challenger searched fewer than `min_searches` times."""
    searches = len(proposal.trajectory.queries)
    return "" if searches >= settings.min_searches else f"{searches} searches, fewer than {settings.min_searches}"


def has_no_repeated_query(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question whose challenger sent the same query twice, up to case and spacing."""
    queries = [" ".join(query.casefold().split()) for query in proposal.trajectory.queries]
    repeated = sorted({query for query in queries if queries.count(query) > 1})
    return f"the query {repeated[0]!r} was repeated" if repeated else ""
