"""Is a skill about a kind of question, or about one episode?

A skill that names what was asked about, or gives the answer, or copies a passage, is a memory of one question.  Names
are taken from the episode itself: titles read, answers given and wanted, capitalised words and numbers of the question.

    leak(skill, failure)    # "" or what the skill gives away, such as "the answer"

Without a list of all names there is no certainty: a single-word name that the skill writes in lower case is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sesa_env.text import answer_tokens, contains_answer, split_words
from sesa_env.types import Passage
from skill_memory.base import Failure
from skill_memory.skill import Skill

RUN = 8
"""Words in a row that a skill may not share with the episode."""

_GENERIC = frozenset({"yes", "no", "true", "false", "both", "neither", "none"})
_NAME = re.compile(r"\b[^\W\d_a-z][^\W\d_]{3,}")
_LONG_NAME = re.compile(r"\b[^\W\d_a-z][\w'’.-]*(?: (?:of |the |de |von |and )*[^\W\d_a-z][\w'’.-]*)+")
_NO_WORD = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"\d{3,}")


def is_generic(answer: str) -> bool:
    """Whether an answer such as "yes" says nothing about its question."""
    return set(answer_tokens(answer)) <= _GENERIC


def states_answer(passage: Passage, answers: Iterable[str]) -> bool:
    """Whether a passage holds an accepted answer, in its title or text; a generic one says nothing."""
    text = f"{passage.title} {passage.text}"
    return any(contains_answer(text, answer) for answer in answers if not is_generic(answer))


def skill_words(skill: Skill) -> str:
    """Return every word of a skill: description, triggers, avoidance cue, query templates and category."""
    return " ".join([skill.description, *skill.triggers, skill.avoid, *skill.queries, skill.category])


def leak(skill: Skill, failure: Failure) -> str:
    """Return what the skill gives away of the episode it comes from; the empty string when nothing."""
    text = skill_words(skill)
    for what, phrases in _phrases(failure):
        if any(contains_answer(text, phrase) for phrase in phrases if not is_generic(phrase)):
            return what
    if _has_name(text, failure):
        return "a name"
    if set(_NUMBER.findall(text)) & set(_NUMBER.findall(" ".join([failure.question, *failure.answers]))):
        return "a number"
    return "a verbatim run" if _shares_run(text, _episode_texts(failure)) else ""


def _phrases(failure: Failure) -> Iterator[tuple[str, Iterable[str]]]:
    yield "the answer", failure.answers
    yield "the given answer", [failure.trajectory.output or ""]
    # A title of one word ("River") may be a plain word of the skill; as a name it is caught by its capital.
    yield "a title", [title for title in _titles(failure) if len(split_words(title)) > 1]
    yield "a name", _LONG_NAME.findall(_after_first_word(failure.question))


def _has_name(text: str, failure: Failure) -> bool:
    """Compare single capitalised words; at the start of a sentence only with words that are surely names."""
    titles = _titles(failure)
    names = _capitalised(failure.question, inside=True) | {title for title in titles if _NAME.fullmatch(title)}
    if names & _capitalised(text, inside=False):
        return True
    parts = set().union(*(_capitalised(words, inside=False) for words in [*titles, *failure.answers]))
    return bool(parts & _capitalised(text, inside=True))


def _capitalised(text: str, *, inside: bool) -> set[str]:
    """Return the capitalised words of at least four letters; `inside`: only those that do not open a sentence."""
    return {match[0] for match in _NAME.finditer(text) if not (inside and _opens_sentence(text, match.start()))}


def _opens_sentence(text: str, start: int) -> bool:
    before = text[:start].rstrip()
    return not before or before[-1] in ".!?"


def _after_first_word(question: str) -> str:
    return question.strip().partition(" ")[2]


def _titles(failure: Failure) -> list[str]:
    titles = {passage.title for passage in (*failure.trajectory.passages, *failure.evidence)}
    return sorted(titles | {title.partition(" (")[0] for title in titles})


def _episode_texts(failure: Failure) -> list[str]:
    trajectory = failure.trajectory
    passages = [f"{passage.title} {passage.text}" for passage in (*trajectory.passages, *failure.evidence)]
    return [failure.question, *(turn.text for turn in trajectory.turns), *passages]


def _shares_run(text: str, others: Iterable[str]) -> bool:
    runs = _runs(text)
    return bool(runs) and any(runs & _runs(other) for other in others)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = split_words(_NO_WORD.sub(" ", text.casefold()))
    return {tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}
