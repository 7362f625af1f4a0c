"""Read a question about an Atlas back into what it asks, whoever wrote it.

    grammar = Grammar(atlas.entities, atlas.facts)
    grammar.read("Who wrote the book behind the film Dolhusu?")     # Reading(answers={"Panma Punnetar"}, hops=2)
    grammar.read("Who wrote the river?")                            # Reading(answers=set(), hops=0)

A question is one of the wordings of `relations.RELATIONS`, around a name or, again, around one of their phrases.  So a
challenger's questions can be judged by the world itself: a question is right when its only answer is the target.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sesa_env.corpora.atlas.prose import qualified
from sesa_env.corpora.atlas.relations import RELATIONS
from sesa_env.corpora.atlas.world import Entity, Fact


class Reading(NamedTuple):
    """What the world answers, as titles, years, numbers or words, and over how many facts."""

    answers: frozenset[str]
    hops: int
    """0 where nothing fits."""


class Form(NamedTuple):
    """A wording with a place for what it is about."""

    pattern: re.Pattern[str]
    relation: str
    back: bool


class Grammar:
    """Reads questions about one world.

    Args:
        entities: those of the world.
        facts: those of the world.
    """

    def __init__(self, entities: Sequence[Entity], facts: Sequence[Fact]) -> None:
        self._named = defaultdict[str, set[str]](set)
        for entity in entities:
            for name in (entity.name, *entity.aliases):
                self._named[name].add(entity.title)
                self._named[qualified(entity, name)].add(entity.title)
                self._named[f"the {entity.kind} {name}"].add(entity.title)
        self._onward = defaultdict[tuple[str, bool], dict[str, set[str]]](lambda: defaultdict(set))
        for fact in facts:
            self._onward[fact.relation, False][fact.subject].add(fact.object)
            self._onward[fact.relation, True][fact.object].add(fact.subject)

    def read(self, text: str) -> Reading:
        """Return what a question's text asks; of several relations that fit, one that has answers."""
        return self._follow(_QUESTIONS, " ".join(text.split()), asked=True)

    def _follow(self, forms: Sequence[Form], text: str, *, asked: bool = False) -> Reading:
        titles = set() if asked else self._named.get(text, set())
        best = Reading(frozenset(titles), 0)
        for form, inner in _fitting(forms, text):
            start = self._follow(_PHRASES, inner)
            onward = self._onward[form.relation, form.back]
            answers = frozenset(answer for title in start.answers for answer in onward.get(title, ()))
            if answers and not best.answers:
                best = Reading(answers, start.hops + 1)
        return best


def _fitting(forms: Sequence[Form], text: str) -> Iterator[tuple[Form, str]]:
    for form in forms:
        found = form.pattern.fullmatch(text)
        if found:
            yield form, found[1]


def _form(template: str, relation: str, *, back: bool) -> Form:
    before, _, after = template.partition("{}")
    return Form(re.compile(f"{re.escape(before)}(.+){re.escape(after)}"), relation, back)


_QUESTIONS = tuple(
    _form(template, relation.name, back=back)
    for relation in RELATIONS.values()
    for back, templates in ((False, relation.ask), (True, relation.ask_back))
    for template in templates
)
_PHRASES = tuple(
    _form(template, relation.name, back=back)
    for relation in RELATIONS.values()
    for back, template in ((False, relation.noun), (True, relation.noun_back))
    if template
)
