"""Answer a question about an Atlas from given pages alone, as an ideal reader would: without a model or the world.

    reader = AtlasReader()
    reader.answer([Reading("Who directed Dolhusu?", "Doc 1(Title: Dolhusu) Dolhusu is ... It was helmed by Jon Falk.")])
    # ["Jon Falk"]

It knows the wording that all worlds share (`relations.RELATIONS`), that of reworded pages too, and not the jargon of a
single world.  As the answerer "atlas" of the check "rag" it takes the place of the large frozen model that verifies
questions in SSP: a question passes when its answer follows from what its challenger read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from sesa_env.answerers import DOCUMENT, Reading
from sesa_env.checks import CheckSettings
from sesa_env.corpora.atlas.grammar import Grammar
from sesa_env.corpora.atlas.relations import KINDS, RELATIONS
from sesa_env.corpora.atlas.world import Entity, Fact

_OPENING = re.compile(r"(?P<name>.+?)(?:, also (?:known as|called) (?P<alias>.+?),)? (?:is|was) an? (?P<what>[^.]+)\.")
_TITLE = re.compile(r"(?P<name>.+?)(?: \((?P<qualifier>[^()]+)\))?")
_REFERENCE = re.compile(r"the (?P<kind>[a-z][a-z ]*?)(?: of)? (?P<name>[^\Wa-z].*)")
_SENTENCE = re.compile(r"(?<=\.) ")
_PERSON = "person"


class AtlasReader:
    """Answers from pages of an Atlas."""

    def fits(self, reading: Reading) -> bool:
        """Read anything."""
        return True

    def answer(self, readings: Sequence[Reading]) -> list[str]:
        """Return the name of the only answer, "" where the pages give none or several."""
        return [self._answer(*reading) for reading in readings]

    def _answer(self, question: str, materials: str) -> str:
        pages = {page["title"]: page["text"] for page in DOCUMENT.finditer(materials)}
        entities = [entity for title, text in pages.items() if (entity := _entity(title, text)) is not None]
        facts = [fact for entity in entities for fact in _facts(entity, pages[entity.title], titles=pages.keys())]
        kinds = {fact.object: RELATIONS[fact.relation].object for fact in facts if fact.object not in pages}
        entities += [Entity(name, name, kind, sort="") for name, kind in kinds.items() if kind in KINDS]
        answers = Grammar(entities, facts).read(question).answers
        found = _TITLE.fullmatch(next(iter(answers))) if len(answers) == 1 else None
        return found["name"] if found else ""


def atlas_reader(checks: CheckSettings) -> AtlasReader:
    """Return the answerer for fictional worlds."""
    return AtlasReader()


def _entity(title: str, text: str) -> Entity | None:
    """Return what a page is about; None where it does not begin as pages of an Atlas do."""
    opening, named = _OPENING.match(text), _TITLE.fullmatch(title)
    if opening is None or named is None:
        return None
    nouns = {kind.noun(reworded=reworded): kind.name for kind in KINDS.values() for reworded in (False, True)}
    kind = nouns.get(opening["what"].split()[-1], _PERSON)
    aliases = (opening["alias"],) if opening["alias"] else ()
    return Entity(title, named["name"], kind, opening["what"], named["qualifier"] or "", aliases)


def _facts(entity: Entity, text: str, *, titles: Collection[str]) -> list[Fact]:
    """Return what a page states in any of the wordings for its kind of thing."""
    facts = []
    for sentence in _SENTENCE.split(text)[1:]:
        for name, pattern in _STATED[entity.kind]:
            found = pattern.fullmatch(sentence)
            if found:
                facts.append(Fact(entity.title, name, _title(found[1], titles)))
                break
    return facts


def _title(reference: str, titles: Collection[str]) -> str:
    """Return the title of what a page calls "the river Velmora", or the bare name where no such page is at hand."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        return reference
    qualified = f"{found['name']} ({found['kind']})"
    return qualified if qualified in titles else found["name"]


def _pattern(template: str) -> re.Pattern[str]:
    words = re.escape(template).replace(r"\{o\}", "(.+)")
    for slot, forms in (("He", "He|She|It"), ("he", "he|she|it"), ("His", "His|Her|Its"), ("his", "his|her|its")):
        words = words.replace(rf"\{{{slot}\}}", f"(?:{forms})")
    return re.compile(words)


def _stated(kind: str) -> list[tuple[str, re.Pattern[str]]]:
    """Return all wordings for one kind of thing; the longest first, for "in the spring of {o}" fits "in {o}" too."""
    told = [relation for relation in RELATIONS.values() if relation.subject == kind]
    ways = [(relation.name, template) for relation in told for template in (*relation.says, *relation.gap_says)]
    return [(name, _pattern(template)) for name, template in sorted(ways, key=lambda way: -len(way[1]))]


_STATED = {kind: _stated(kind) for kind in KINDS}
