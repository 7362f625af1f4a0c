"""Write one fictional page for each entity: an opening, then one sentence for each fact, in shuffled order.

    passages = write_passages(world, rng, seed=0)

Other entities are named so that they can be found: a shared name always carries its qualifier ("the poet ...").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from sesa_env.corpora.atlas.relations import KINDS, RELATIONS, Relation
from sesa_env.corpora.atlas.world import Entity, Fact, World
from sesa_env.types import Passage

_ALIAS = (", also known as {},", ", also called {},")
_POSSESSIVE = {"he": "his", "she": "her", "it": "its"}
_NAMED_PLACES = ("city", "country")

LEAST_WORDS, MOST_WORDS = 25, 60
"""Bounds on the length of a page."""


def write_passages(
    world: World, rng: np.random.Generator, *, seed: int, relations: Mapping[str, Relation] = RELATIONS
) -> tuple[Passage, ...]:
    """Return the page of every entity, in the order of the entities, in the wording of these relations."""
    by_title = {entity.title: entity for entity in world.entities}
    facts: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in world.facts:
        facts[fact.subject].append(fact)
    return tuple(
        Passage(
            id=f"atlas{seed}-p{number:05d}",
            title=entity.title,
            text=_text(entity, facts[entity.title], by_title, relations, rng),
        )
        for number, entity in enumerate(world.entities)
    )


def reference(entity: Entity) -> str:
    """Return how a page names another entity: with its qualifier when the name is shared, else as its kind is named."""
    if entity.qualifier:
        return qualified(entity, entity.name)
    return entity.name if KINDS[entity.kind].bare else f"the {entity.kind} {entity.name}"


def qualified(entity: Entity, name: str) -> str:
    """Return a name with the words that tell its bearer from a namesake: "the river Velmora", "the city of Velmora"."""
    link = " of" if entity.kind in _NAMED_PLACES else ""
    return f"the {entity.qualifier or entity.kind}{link} {name}"


def _text(
    entity: Entity,
    facts: list[Fact],
    by_title: dict[str, Entity],
    relations: Mapping[str, Relation],
    rng: np.random.Generator,
) -> str:
    opening = _opening(entity, rng)
    variants = [_variants(entity, fact, by_title, relations[fact.relation]) for fact in facts]
    sentences = [ways[int(rng.integers(len(ways)))] for ways in variants]
    length = sum(map(_words, [opening, *sentences]))
    if not LEAST_WORDS <= length <= MOST_WORDS:
        extreme = max if length < LEAST_WORDS else min
        sentences = [extreme(ways, key=_words) for ways in variants]
    return " ".join([opening, *(sentences[i] for i in rng.permutation(len(sentences)).tolist())])


def _opening(entity: Entity, rng: np.random.Generator) -> str:
    noun = KINDS[entity.kind].noun(reworded=entity.reworded)
    what = entity.sort if entity.kind == "person" else f"{entity.sort} {noun}"
    article = "an" if what[0] in "aeiou" else "a"
    alias = _ALIAS[int(rng.integers(len(_ALIAS)))].format(*entity.aliases) if entity.aliases else ""
    being = "was" if entity.kind == "person" else "is"
    return f"{entity.name}{alias} {being} {article} {what}."


def _words(sentence: str) -> int:
    return len(sentence.split())


def _variants(entity: Entity, fact: Fact, by_title: dict[str, Entity], relation: Relation) -> list[str]:
    """All ways in which the page may state a fact."""
    templates = relation.gap_says if entity.reworded and relation.gap_says else relation.says
    target = by_title.get(fact.object)
    he = entity.pronoun
    his = _POSSESSIVE[he]
    name = reference(target) if target else fact.object
    return [template.format(o=name, he=he, He=he.capitalize(), his=his, His=his.capitalize()) for template in templates]
