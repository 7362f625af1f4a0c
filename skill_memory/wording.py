"""A page's word where the question uses another: found in a failure, and made into a skill that translates it.

A search in the question's words misses a page that says "helmed" where the question says "directed".  Whoever knows the
accepted answer can find the sentence that links it to the name that was searched for, and read the word off.

    gap = find_gap(failure)      # Gap(asked=("who", "directed"), word="helmed"), or None
    card = translate(gap)        # "Where a question says who directed, pages may say helmed."  Query: {name} helmed

Read without a model, by position: the nearest word before the name that is no name, not plain English (`_PLAIN`) and
not the question's own.  One sentence can mislead; a card from a wrong word helps nobody, and is evicted when it hurts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sesa_env.text import contains_answer
from sesa_env.types import Passage
from skill_memory.abstraction import states_answer
from skill_memory.base import Failure
from skill_memory.relations import read_relations
from skill_memory.skill import Skill
from skill_memory.triggers import akin

CATEGORY = "wording"

_MOST_ASKED = 3
"""Words of a question that one relation takes; more are no relation, but a chain of them."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_CAPITALISED = re.compile(r"[^\W\d_a-z][\w'’-]*(?: [^\W\d_a-z][\w'’-]*)*")
_APPOSITION = re.compile(r"\bthe(?: [\w-]+){1,3} $", re.IGNORECASE)
"""What can stand between a relation's word and a name: "by *the poet* Jon Falk", "in *the city of* Talby"."""
_ASKS_FOR = re.compile(r"\b(?:(?:which|what) (?P<kind>[^\W\d_]+)|(?P<asking>whom?|when|where))\b", re.IGNORECASE)

_FUNCTION = frozenset(
    re.findall(
        r"\w+",
        "a an the this that these those its his her their he she it they him them i we you who whom whose which"
        " what when where why how many much and or but not no nor so as than then there here if is are was were be"
        " been being am do does did has have had having can could will would may might must shall should of in on"
        " at to for from by with without within into onto over under after before during since until between among"
        " against about through across along near off up down out upon like both each all some any most more less"
        " very also only just even still yet again once twice one two three four five six seven eight nine ten s",
    )
)
_ARTICLES = frozenset({"a", "an", "the", "its", "his", "her", "their", "one"})
_PREPOSITIONS = frozenset(
    re.findall(r"\w+", "in on at to for from by with without within into onto over under after before during near upon")
)
_PLAIN = _FUNCTION | frozenset(
    re.findall(
        r"\w+",
        "first second third last later latest early earlier late former current main great large largest small"
        " long longest short old older oldest new young high low full own other another same several few usual"
        " common known famous popular best good major minor part parts place time times year years month months"
        " week day days night spring summer autumn winter age century life death end beginning middle top side"
        " point way name names number work works people person man woman child children family parents father"
        " mother son daughter friend home house school town city country world land sea bay river hill street"
        " square room post seat head group member members study law art history book film song songs play line"
        " area course make makes made making take takes took taken give gives gave given get got go goes went gone"
        " come comes came put puts see saw seen say says said call called keep kept hold holds held stand stands"
        " stood lie lies lay sit sits sat live lives lived stay show shows use used become became begin began open"
        " opens opened start started grow grew quickly soon often always never together today public private sound"
        " half whole",
    )
)
"""Words that stand in sentences of any kind; what is none of them is taken for the word of the relation."""


class Gap(NamedTuple):
    """The words of a question for what it asks, and the word that a page has in the place of the last of them.

    First comes what kind of thing is asked for ("who", "city"), if the question says it: "born" asks for a place or for
    a year.
    """

    asked: tuple[str, ...]
    word: str


def find_gap(failure: Failure) -> Gap | None:
    """Return the gap between the question's words and those of a page with the answer; None when none is seen.

    The page must link the answer to a name of the question, or of a query of the attempt, in a sentence that has none
    of the question's words for it; and the attempt must not have searched for the page's word.
    """
    names = _names(failure)
    searched = _words(failure.trajectory.queries)
    for passage in _pages(failure):
        for sentence in _SENTENCE_END.split(passage.text):
            for name, place in _links(sentence, passage, names, failure.answers):
                word, kind = _relation_word(sentence, place, taken=_taken(failure, names))
                asked = _asked(failure, name, names=[*names, kind], read=passage in failure.trajectory.passages)
                stated = _words([sentence.replace(kind, " ") if kind else sentence])
                if word and asked and not _have_akin(asked, stated) and not _have_akin([word], searched):
                    return Gap(tuple(dict.fromkeys([*_asked_for(failure.question), *asked])), word)
    return None


def translate(gap: Gap) -> Skill:
    """Return the card for a gap; equal gaps give equal cards."""
    asked = " ".join(gap.asked)
    return Skill(
        id="",
        description=f"Where a question says {asked}, pages may say {gap.word}.",
        triggers=(asked,),
        avoid=f"the word {gap.asked[-1]}",
        queries=(f"{{name}} {gap.word}",),
        category=CATEGORY,
    )


def _pages(failure: Failure) -> list[Passage]:
    """Return the pages that state an accepted answer, those that the attempt itself read first."""
    seen = {(passage.title, passage.text): passage for passage in (*failure.trajectory.passages, *failure.evidence)}
    return [passage for passage in seen.values() if states_answer(passage, failure.answers)]


def _base(title: str) -> str:
    return title.partition(" (")[0]


def _names(failure: Failure) -> list[str]:
    """Return what question and queries name, the longest first: titles that were seen, and capitalised words."""
    asked = [failure.question, *failure.trajectory.queries]
    titles = {_base(passage.title) for passage in (*failure.trajectory.passages, *failure.evidence)}
    found = {title for title in titles if any(contains_answer(text, title) for text in asked)}
    found |= {name for text in asked for name in _CAPITALISED.findall(text) if name.casefold() not in _FUNCTION}
    return sorted(found, key=lambda name: (-len(name), name))


def _proper(failure: Failure) -> set[str]:
    """Return the words that the pages never write without a capital: names, even where a question is in lower case."""
    pages = (*failure.trajectory.passages, *failure.evidence)
    written = {word for passage in pages for word in _WORD.findall(f"{passage.title} {passage.text}")}
    return {word.casefold() for word in written if word.casefold() not in written}


def _links(sentence: str, passage: Passage, names: Sequence[str], answers: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield the known name that a sentence links to the answer, and where in it the other end of the link stands."""
    page = _base(passage.title)
    if any(_same(page, answer) for answer in answers):
        ends = [(name, name) for name in names if not any(_same(name, answer) for answer in answers)]
    elif any(_same(page, name) for name in names):
        ends = [(page, answer) for answer in answers]
    else:
        return
    for name, end in ends:
        found = re.search(rf"(?<!\w){re.escape(end)}(?!\w)", sentence, re.IGNORECASE)
        if found:
            yield name, found.start()
            return


def _same(one: str, other: str) -> bool:
    return contains_answer(one, other) or contains_answer(other, one)


def _asked(failure: Failure, name: str, *, names: Sequence[str], read: bool) -> tuple[str, ...]:
    """Return the question's words for what it asks of a name; nothing when they cannot be told from the others.

    They are those that the attempt itself searched for with the name.  If it did not, and so missed the page, they are
    guessed: of a name in the question, all its words; else those of the last relation that is known by its words.
    """
    kinds = {match["kind"].casefold() for match in _ASKS_FOR.finditer(failure.question) if match["kind"]}
    no_words = {*_FUNCTION, *_words(names), *_proper(failure)}
    own = [word for word in _words([failure.question]) if word not in no_words]
    own = [word for word in own if word not in kinds] or own
    beside = _words(query for query in failure.trajectory.queries if contains_answer(query, name))
    asked = [word for word in own if _have_akin([word], beside)]
    if not asked and not read:
        asked = own if contains_answer(failure.question, name) else _last_relation(failure.question, own)
    asked = [word for word in asked if word not in _PLAIN] or asked
    return tuple(asked) if len(asked) <= _MOST_ASKED else ()


def _asked_for(question: str) -> list[str]:
    """Return the word for the kind of thing that a question asks for, where it has one."""
    for match in _ASKS_FOR.finditer(question):
        if match["asking"] or match["kind"].casefold() not in _FUNCTION:
            return [(match["asking"] or match["kind"]).casefold()]
    return []


def _last_relation(question: str, own: Sequence[str]) -> list[str]:
    """Return the last of a question's own words that shows the relation which is found last."""
    shown = (relation.pattern.search(question) for relation in read_relations(question)[-1:])
    return [word for word in own if word in _words(found[0] for found in shown if found)][-1:]


def _taken(failure: Failure, names: Sequence[str]) -> list[str]:
    """Return the words that cannot be a page's word for the relation: those of the question and of all names."""
    titles = [passage.title for passage in (*failure.trajectory.passages, *failure.evidence)]
    return _words([failure.question, *failure.answers, *names, *titles])


def _relation_word(sentence: str, place: int, *, taken: Sequence[str]) -> tuple[str, str]:
    """Return a sentence's word for its relation to the name at a place, and what it says of the name's kind.

    Both can be the empty string: no word is clear, or nothing is said.
    """
    before = sentence[:place]
    found = _APPOSITION.search(before)
    for kind in (found[0], "") if found else ("",):
        words = _WORD.findall(before.removesuffix(kind))
        fitting = [at for at, word in enumerate(words) if _fits(word, at, taken)]
        if fitting:
            *earlier, last = fitting
            aside = bool(earlier) and last < len(words) - 1 and _is_aside(words[:last])
            chosen = earlier[-1] if aside else last
            between = [word for at, word in enumerate(words) if at > chosen and not (aside and at == last)]
            return (words[chosen].casefold(), kind) if _PLAIN.issuperset(between) else ("", "")
    return "", ""


def _fits(word: str, at: int, taken: Sequence[str]) -> bool:
    """Whether a word can stand for a relation; one with a capital inside a sentence is a name."""
    plain = word.casefold()
    return len(word) > 2 and (at == 0 or word == plain) and plain not in _PLAIN and not _have_akin([plain], taken)


def _is_aside(before: Sequence[str]) -> bool:
    """Whether the noun after these words is in a phrase of its own, as "honours" is in "buried with honours in"."""
    while before and before[-1].casefold() in _ARTICLES:
        before = before[:-1]
    return bool(before) and before[-1].casefold() in _PREPOSITIONS


def _words(texts: Iterable[str]) -> list[str]:
    """Return the different words of texts, in lower case and in order."""
    return list(dict.fromkeys(word.casefold() for text in texts for word in _WORD.findall(text)))


def _have_akin(some: Iterable[str], others: Sequence[str]) -> bool:
    """Whether one of some words is, by its first letters, a form of one of the others."""
    return any(akin(one, other) for one in some for other in others)
