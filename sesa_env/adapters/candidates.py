"""Read names and numbers out of a question and its search results: what a policy without language can point at.

A capitalised run of words is a name, a run of digits a number.  Each carries where it stood and how well the words
around it agree with the question's; nothing else is known about it, least of all whether it is right.

    candidates = find_candidates("Who founded Orla Press?", results, limit=16)
    candidates[0].name                                                     # "Orla Press"

It is a reader of plain English prose, not an entity recogniser: a name that begins a sentence in the middle of a
passage is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

_WORD = re.compile(r"\d[\d,.]*\d|\w[\w'’-]*|[^\w\s]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LINKS = frozenset({"of", "in", "for", "at", "to", "over"})
"""Words that join two capitalised ones into one name: "The House of Tarrow"."""
_PLAIN = frozenset(
    (
        *("a", "an", "and", "are", "at", "by", "did", "do", "does", "for", "from", "had", "has", "he", "her", "his"),
        *("how", "in", "into", "is", "it", "its", "of", "on", "or", "she", "that", "the", "their", "to", "was", "were"),
        *("what", "when", "where", "which", "who", "whom", "whose", "with"),
    )
)
_STEM = 4
"""Letters in which a word of the question and one of a passage must agree: "study" and "studied"."""
_RESULT = re.compile(r"^(?:<information>)?Doc \d+\(Title: (.*)$", re.MULTILINE)


class Result(NamedTuple):
    """One passage as a policy was shown it."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A name or number that was seen, with what can be told about it from outside."""

    name: str
    in_question: bool
    rank: int = -1
    """Place of the first passage that has it among the latest results; -1 when none of them does."""
    is_title: bool = False
    overlap: float = 0.0
    """Share of the question's content words that occur in its sentence, for the best sentence."""
    nearness: float = 0.0
    """1 / (1 + words since the last content word of the question in its sentence); 0 without one."""
    mentions: int = 0
    beside_focus: bool = False
    """Whether a passage that has it has the focus too, the name that was searched for last."""

    @property
    def is_number(self) -> bool:
        """Whether it begins with a digit."""
        return self.name[0].isdigit()

    @property
    def is_year(self) -> bool:
        """Whether it is a number of four digits without a comma."""
        return len(self.name) == 4 and self.name.isdigit()


def read_results(observation: str) -> list[Result]:
    """Return the passages of an observation, in the order of their rank; none when it holds no results."""
    return [_result(match[1].removesuffix("</information>")) for match in _RESULT.finditer(observation)]


def content_words(question: str) -> list[str]:
    """Return the question's words that are neither names nor grammar, in order and in lower case."""
    words = [word for sentence in _sentences(question) for word in sentence[1:]]
    return [word for word in words if word[0].islower() and word not in _PLAIN]


def find_candidates(question: str, results: Sequence[Result], *, limit: int, focus: str = "") -> list[Candidate]:
    """Return the first `limit` names and numbers: the question's first, then those of the results by rank.

    Args:
        question: as the policy was shown it.
        results: the passages to read, the most important first.
        limit: how many to return at most.
        focus: the name that was searched for; "" for none.
    """
    found = {span.name: Candidate(span.name, in_question=True) for span in _spans(question, opening=False)}
    stems = {word[:_STEM] for word in content_words(question)}
    for rank, result in enumerate(results):
        title = _without_qualifier(result.title)
        spans = list(_spans(result.text, opening=True))
        beside = focus in (title, *(span.name for span in spans))
        if title:
            found[title] = _seen(found.get(title, Candidate(title, in_question=False)), rank, beside, is_title=True)
        for span in spans:
            known = found.get(span.name, Candidate(span.name, in_question=False))
            found[span.name] = _judged(_seen(known, rank, beside, is_title=span.name == title), span, stems)
    return list(found.values())[:limit]


class _Span(NamedTuple):
    """A name in a sentence: what it is, the words before it, and all the words."""

    name: str
    before: tuple[str, ...]
    sentence: tuple[str, ...]


def _seen(known: Candidate, rank: int, beside: bool, *, is_title: bool) -> Candidate:
    return replace(
        known,
        rank=rank if known.rank < 0 else known.rank,
        is_title=known.is_title or is_title,
        mentions=known.mentions + 1,
        beside_focus=known.beside_focus or beside,
    )


def _judged(candidate: Candidate, span: _Span, stems: set[str]) -> Candidate:
    """Add what the sentence of one mention says; the best sentence counts."""
    shared = sum(any(word.startswith(stem) for word in span.sentence) for stem in stems)
    distance = next((d for d, word in enumerate(reversed(span.before)) if word[:_STEM] in stems), None)
    nearness = 0.0 if distance is None else 1.0 / (1.0 + distance)
    return replace(
        candidate,
        overlap=max(candidate.overlap, shared / max(1, len(stems))),
        nearness=max(candidate.nearness, nearness),
    )


def _spans(text: str, *, opening: bool) -> Iterator[_Span]:
    """All names and numbers; `opening` says that the text may begin with a name."""
    for number, words in enumerate(_sentences(text)):
        lowered = tuple(word.lower() for word in words)
        at = 0 if opening and number == 0 else 1
        while at < len(words):
            stop = _stop(words, at)
            if stop > at:
                name = " ".join(words[at:stop]).removesuffix("'s").removesuffix("’s")
                yield _Span(name, lowered[:at], lowered)
            at = max(stop, at + 1)


def _stop(words: Sequence[str], at: int) -> int:
    """Return where the name that begins at a word ends; the word itself when none begins there."""
    if words[at][0].isdigit():
        return at + 1
    stop = at
    while stop < len(words) and words[stop][0].isupper():
        stop += 1
        if stop + 1 < len(words) and words[stop] in _LINKS and words[stop + 1][0].isupper():
            stop += 1
    return stop


def _sentences(text: str) -> list[list[str]]:
    sentences = (_WORD.findall(sentence) for sentence in _SENTENCE_END.split(text))
    return [words for words in sentences if words]


def _result(line: str) -> Result:
    """Take "Title) text" apart; a title may have balanced brackets of its own."""
    depth = 1
    for place, character in enumerate(line):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return Result(line[:place], line[place + 1 :].strip())
    return Result("", line)


def _without_qualifier(title: str) -> str:
    return re.sub(r"\s*\([^()]*\)$", "", title) or title
