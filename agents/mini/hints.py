"""Skills for lessons: short hints that translate a word of the question into the word to search and read for.

A hint is drawn from many forms, so that what is learned is to match its trigger and to copy its query, not its wording.
Relations in `UNSEEN` never occur in a hint of a lesson: they measure whether a new family of hints is followed.

    hint = draw_hint(relation, back=True, suffix="lufebil vessel", rng=rng, question=question.text)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from sesa_env.corpora.atlas.relations import RELATIONS, Relation
from skill_memory.diagnose import Diagnosis
from skill_memory.priming import load_seeds
from skill_memory.relations import RELATIONS as NOUNS
from skill_memory.relations import read_relations
from skill_memory.rules import LESSONS, write_card
from skill_memory.skill import Skill

UNSEEN = tuple(relation.name for relation in RELATIONS.values() if relation.gap_cue)[2::5]
"""Every fifth relation with a wording of its own on reworded pages."""

SAYS = "="
"""Stands before a page's own word in a plan, a query and a note.  No skill has it, so that whoever writes it can copy
what followed it before; a search engine passes over it."""

_WORDINGS = (
    "Where a question says {trigger}, pages may say {word}.",
    "Pages about the {trigger} may say {word}.",
    "To find the {trigger}, search the name with {word}.",
    "{word} stands for the {trigger}.",
    "If the {trigger} is asked for, look for {word}.",
    "Some pages put {word} in place of {trigger}.",
    "Read off the {trigger} after the word {word}.",
)
_PLACEHOLDERS = ("{name}", "{title}", "{person}", "{place}", "{work}")
_EMPTY_WORDS = frozenset(
    [
        *("the", "a", "an", "of", "in", "by", "on", "for", "to", "at", "with", "from", "that", "as", "it", "its"),
        *("is", "are", "was", "were", "did", "do", "does", "had", "has", "have", "there"),
        *("which", "whose", "what"),
    ]
)
_KINDS_OF_QUESTION = ("who", "when", "where", "which", "what", "how_many")

_T = TypeVar("_T")


def triggers_of(relation: Relation, *, back: bool) -> tuple[str, ...]:
    """Return the ways in which a hint may name what is asked for, in the words that questions use."""
    templates = (relation.noun_back, *relation.ask_back) if back else (relation.noun, *relation.ask)
    return tuple(dict.fromkeys(filter(None, (*map(_content_words, templates), relation.cue))))


def fitting_triggers(relation: Relation, *, back: bool, question: str) -> tuple[str, ...]:
    """Return those of a relation's triggers whose words are all in a question."""
    said = frozenset(_words(question))
    return tuple(one for one in triggers_of(relation, back=back) if said.issuperset(_words(one)))


def draw_hint(
    relation: Relation, *, back: bool, suffix: str, rng: np.random.Generator, question: str, trigger: str = ""
) -> Skill:
    """Return a hint that says to search with `suffix` for what a relation asks.

    Args:
        relation: what is asked for.
        back: whether the relation is asked from its object.
        suffix: what the query adds to the name.
        rng: decides the form.
        question: what it is a hint for; the trigger is in its words, if the relation is asked in them.
        trigger: a word of the question in place of the relation's own.
    """
    own = triggers_of(relation, back=back)
    named = trigger or _one(fitting_triggers(relation, back=back, question=question) or own, rng)
    others = () if trigger or len(own) < 2 or rng.random() < 0.5 else (_one(own, rng),)
    says = _one(_WORDINGS, rng).format(trigger=named, word=suffix.split()[0])
    return Skill(
        id="",
        description=says[0].upper() + says[1:],
        triggers=tuple(dict.fromkeys((named, *others))),
        avoid=f"the word {named.split()[-1]}" if rng.random() < 0.4 else "",
        queries=(f"{_one(_PLACEHOLDERS, rng)} {suffix}",),
    )


def noted(hint: Skill) -> str:
    """Return what a player who follows a hint plans by: its first trigger and what its query adds to the name."""
    return f"{hint.triggers[0]} {SAYS} {hint.queries[0].partition('} ')[2]}"


def draw_irrelevant(avoid: Sequence[str], *, question: str, coin: Callable[[], str], rng: np.random.Generator) -> Skill:
    """Return a skill that has nothing to say about a question.

    Args:
        avoid: names of the relations that the question is about.
        question: its text, some of whose words may be in the skill all the same.
        coin: returns a new word.
        rng: decides which: a hand-written skill, a card as the rule-based distiller writes it, or a hint about another
            relation, sometimes one whose trigger shares a word with the question.
    """
    kind = rng.random()
    if kind < 0.2:
        return _one(_SEEDS, rng)
    if kind < 0.4:
        nouns = read_relations(question) if rng.random() < 0.5 else ()
        nouns = nouns or tuple(_one(NOUNS, rng) for _ in range(int(rng.integers(1, 3))))
        return write_card(Diagnosis(_one(tuple(LESSONS), rng), _one(_KINDS_OF_QUESTION, rng), nouns))
    if kind < 0.7 and (near := _near_misses(avoid, question)):
        relation, back, trigger = _one(near, rng)
    else:
        cues = {RELATIONS[name].cue for name in avoid}
        relation = _one([relation for relation in _TAUGHT if relation.cue not in cues], rng)
        back = bool(relation.ask_back) and rng.random() < 0.5
        trigger = _coined_trigger(question, coin().lower(), rng) if rng.random() < 0.3 else ""
    word = coin().lower() if rng.random() < 0.5 else _one(_GAP_CUES, rng)
    noun = relation.query_words(back=back, reworded=True).split()[1:]
    suffix = " ".join([word, *(noun if rng.random() < 0.5 else ())])
    return draw_hint(relation, back=back, suffix=suffix, rng=rng, question="", trigger=trigger)


_SEEDS = tuple(load_seeds())
_TAUGHT = tuple(relation for relation in RELATIONS.values() if relation.name not in UNSEEN)
_GAP_CUES = tuple(relation.gap_cue for relation in RELATIONS.values() if relation.gap_cue)


def _near_misses(avoid: Sequence[str], question: str) -> list[tuple[Relation, bool, str]]:
    """Return the triggers that share a word with a question about other relations, and have another word besides.

    As relation, direction and trigger.
    """
    said = frozenset(_words(question))
    return [
        (relation, back, trigger)
        for relation in _TAUGHT
        if relation.name not in avoid
        for back in (False, *[True] * bool(relation.ask_back))
        for trigger in triggers_of(relation, back=back)
        if not said.isdisjoint(_words(trigger)) and not said.issuperset(_words(trigger))
    ]


def _coined_trigger(question: str, word: str, rng: np.random.Generator) -> str:
    """Return a trigger of a word that is not in the question, sometimes behind one that is."""
    said = [one for one in _words(question) if one not in _EMPTY_WORDS]
    return f"{_one(said, rng)} {word}" if said and rng.random() < 0.5 else word


def _content_words(template: str) -> str:
    words = [word.strip("?,.").lower() for word in template.replace("{}", " ").split()]
    return " ".join(word for word in words if word and word not in _EMPTY_WORDS)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _one(items: Sequence[_T], rng: np.random.Generator) -> _T:
    return items[int(rng.integers(len(items)))]
