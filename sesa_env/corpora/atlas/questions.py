"""Ask about a fictional world: chains of one to four facts, and comparisons, each with one right answer.

A chain walks from the entity that the question names to the answer, one page for each hop: forward from a fact's
subject to its object (the page is the entity's own), or back from the object to the subject (the page is another's,
and must be searched for), the latter only where one single subject fits.

    pool = Inquirer(world, rng, seed=0).pool(per_hop=1500)
    pool[0].question, pool[0].chain, pool[0].gold_queries

Families: "1-hop" to "4-hop" (nothing special); "alias" (the named entity goes by its second name); "ambiguous" (its
name is shared, and the question carries the qualifier); "wording-gap" (the last hop goes back, to a page that avoids
the question's words, while the known name stands on many pages); "comparison" (two are named: which came first).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from sesa_env.corpora.atlas.prose import qualified
from sesa_env.corpora.atlas.relations import KINDS, RELATIONS, Relation
from sesa_env.corpora.atlas.world import Entity, Fact, World
from sesa_env.types import Question

HOPS = (1, 2, 3, 4)
ALIAS, AMBIGUOUS, WORDING_GAP, COMPARISON = "alias", "ambiguous", "wording-gap", "comparison"
FAMILIES = (*(f"{hops}-hop" for hops in HOPS), ALIAS, AMBIGUOUS, WORDING_GAP, COMPARISON)

SHARES = {ALIAS: 0.15, AMBIGUOUS: 0.15, WORDING_GAP: 0.2}
COMPARISON_SHARE = 0.15
"""Share of each special family at every number of hops (comparisons at two only); the plain family is the rest."""

CROWD = 4
"""A name stands on many pages when this many besides the page sought name it: more than a search of three returns."""

_TRIES_PER_QUESTION = 40

_COMPARISONS = {
    "birth year": ("Who was born earlier, {} or {}?", "Of {} and {}, who was born first?"),
    "company founding year": ("Which company was founded earlier, {} or {}?",),
    "city founding year": ("Which city was founded earlier, {} or {}?", "Which is the older city, {} or {}?"),
    "publication year": ("Which book was published first, {} or {}?",),
    "film release year": ("Which film was released first, {} or {}?", "Which film came out earlier, {} or {}?"),
    "launch year": ("Which ship was launched first, {} or {}?",),
    "opening year": ("Which university opened earlier, {} or {}?",),
}

_T = TypeVar("_T")


class Hop(NamedTuple):
    """One step of a chain: a fact read forward, subject to object, or back, object to subject."""

    fact: Fact
    back: bool

    @property
    def source(self) -> str:
        """What the step starts from."""
        return self.fact.object if self.back else self.fact.subject

    @property
    def target(self) -> str:
        """What the step leads to."""
        return self.fact.subject if self.back else self.fact.object


@dataclass(frozen=True, slots=True)
class Item:
    """A question and what is behind it: its facts, and for each of them the query that finds the page.

    Gold queries use the words of the page, natural queries those of the question; they differ on reworded pages.
    """

    question: Question
    chain: tuple[Fact, ...]
    gold_queries: tuple[str, ...]
    natural_queries: tuple[str, ...]


class Inquirer:
    """Makes questions about one fictional world; equal worlds and generators make equal questions.

    Args:
        world: the entities and facts.
        rng: the source of all choices.
        seed: the world's number, for the ids of the questions.
        relations: how the world's pages are worded.
    """

    def __init__(
        self,
        world: World,
        rng: np.random.Generator,
        *,
        seed: int,
        relations: Mapping[str, Relation] = RELATIONS,
    ) -> None:
        self._rng = rng
        self._seed = seed
        self._relations = relations
        self._entities = {entity.title: entity for entity in world.entities}
        self._pages_naming = Counter(fact.object for fact in world.facts)
        hops = list(_readings(world.facts))
        self._leaving = _grouped(hops, lambda hop: hop.source)
        self._arriving = _grouped(hops, lambda hop: hop.target)
        self._gaps = [hop for hop in hops if hop.back and self._reworded(hop) and self._crowded(hop)]
        self._dated = _grouped(world.facts, lambda fact: fact.relation if fact.relation in _COMPARISONS else "")
        plain = [entity for entity in world.entities if not entity.qualifier]
        self._starts = {
            ALIAS: _by_kind([entity for entity in plain if entity.aliases]),
            AMBIGUOUS: _by_kind([entity for entity in world.entities if entity.qualifier]),
        }
        self._plain_starts = _by_kind(plain)

    def pool(self, *, per_hop: int) -> tuple[Item, ...]:
        """Return up to `per_hop` different questions for each number of hops, fewer where the world has no more."""
        items: list[Item] = []
        texts: set[str] = set()
        for hops in HOPS:
            for family, count in _quotas(hops, per_hop).items():
                wanted = len(items) + count
                for _ in range(count * _TRIES_PER_QUESTION):
                    if len(items) == wanted:
                        break
                    item = self._draw(f"atlas{self._seed}-q{len(items):05d}", family, hops)
                    if item is not None and item.question.text not in texts:
                        texts.add(item.question.text)
                        items.append(item)
        return tuple(items)

    def _draw(self, question_id: str, family: str, hops: int) -> Item | None:
        if family == COMPARISON:
            return self._comparison(question_id)
        chain = self._chain_to_a_gap(hops) if family == WORDING_GAP else self._chain_from_a_start(family, hops)
        return self._item(question_id, family, chain) if chain else None

    # Chains.

    def _chain_from_a_start(self, family: str, hops: int) -> list[Hop]:
        starts = self._starts.get(family, self._plain_starts)
        if not starts:
            return []
        chain: list[Hop] = []
        here = self._one(self._one(starts)).title
        for left in reversed(range(hops)):
            ways = [hop for hop in self._leaving[here] if self._extends(chain, hop, last=left == 0)]
            if family == ALIAS and not chain:
                # Other pages know it by its first name only, so a step back would cost a search of its own.
                ways = [hop for hop in ways if not hop.back]
            if not ways:
                return []
            chain.append(self._one(ways))
            here = chain[-1].target
        return chain

    def _extends(self, chain: list[Hop], hop: Hop, *, last: bool) -> bool:
        return (last or hop.target in self._entities) and not self._reworded(hop) and _is_new(chain, hop, hop.target)

    def _chain_to_a_gap(self, hops: int) -> list[Hop]:
        if not self._gaps:
            return []
        chain = [self._one(self._gaps)]
        while len(chain) < hops:
            ways = [hop for hop in self._arriving[chain[0].source] if _is_new(chain, hop, hop.source)]
            if not ways:
                return []
            chain.insert(0, self._one(ways))
        return [] if self._entities[chain[0].source].qualifier else chain

    def _reworded(self, hop: Hop) -> bool:
        """Whether the page states the fact in other words than a question uses."""
        return self._entities[hop.fact.subject].reworded and bool(self._relations[hop.fact.relation].gap_cue)

    def _crowded(self, hop: Hop) -> bool:
        return self._pages_naming[hop.fact.object] > CROWD

    # Questions.

    def _item(self, question_id: str, family: str, chain: list[Hop]) -> Item | None:
        start = self._entities[chain[0].source]
        question = Question(
            id=question_id,
            text=word_chain(chain, self._mention(start, family), self._one),
            answers=self._answers(chain[-1].target),
            supporting_titles=tuple(hop.fact.subject for hop in chain),
            hops=len(chain),
            family=family,
        )
        if self._gives_away(question.text, chain):
            return None
        names = [_spoken(start, family), *(self._entities[hop.source].full_name for hop in chain[1:])]
        return Item(
            question=question,
            chain=tuple(hop.fact for hop in chain),
            gold_queries=tuple(
                self._query(name, hop, reworded=self._entities[hop.fact.subject].reworded)
                for name, hop in zip(names, chain, strict=True)
            ),
            natural_queries=tuple(
                self._query(name, hop, reworded=False) for name, hop in zip(names, chain, strict=True)
            ),
        )

    def _comparison(self, question_id: str) -> Item | None:
        relation = self._one(tuple(_COMPARISONS))
        pair = (self._one(self._dated[relation]), self._one(self._dated[relation]))
        entities = [self._entities[fact.subject] for fact in pair]
        if pair[0].object == pair[1].object or any(entity.qualifier or entity.reworded for entity in entities):
            return None
        first = min(pair, key=lambda fact: int(fact.object))
        queries = tuple(self._query(fact.subject, Hop(fact, back=False), reworded=False) for fact in pair)
        question = Question(
            id=question_id,
            text=self._one(_COMPARISONS[relation]).format(*(entity.name for entity in entities)),
            answers=self._answers(first.subject),
            supporting_titles=(pair[0].subject, pair[1].subject),
            hops=2,
            family=COMPARISON,
        )
        return Item(question, pair, gold_queries=queries, natural_queries=queries)

    def _mention(self, entity: Entity, family: str) -> str:
        name = entity.aliases[0] if family == ALIAS else entity.name
        with_kind = not KINDS[entity.kind].bare and self._rng.random() < 0.5
        return qualified(entity, name) if with_kind or entity.qualifier else name

    def _answers(self, title: str) -> tuple[str, ...]:
        entity = self._entities.get(title)
        if entity is None:
            return tuple(dict.fromkeys((title, title.replace(",", ""), title.removesuffix(" km"))))
        return tuple(dict.fromkeys((entity.name, *entity.aliases, entity.title)))

    def _query(self, name: str, hop: Hop, *, reworded: bool) -> str:
        relation = self._relations[hop.fact.relation]
        return f"{name} {relation.query_words(back=hop.back, reworded=reworded)}"

    def _gives_away(self, text: str, chain: list[Hop]) -> bool:
        """Whether the text names anything that the chain is to find."""
        return any(_within(name, text) for hop in chain for name in self._answers(hop.target))

    def _one(self, items: Sequence[_T]) -> _T:
        return items[int(self._rng.integers(len(items)))]


def _quotas(hops: int, total: int) -> dict[str, int]:
    quotas = {family: round(share * total) for family, share in SHARES.items()}
    if hops == 2:
        quotas[COMPARISON] = round(COMPARISON_SHARE * total)
    return {f"{hops}-hop": total - sum(quotas.values()), **quotas}


def _readings(facts: Sequence[Fact]) -> Iterator[Hop]:
    """Every fact forward; back too where it can be asked so and one subject alone fits."""
    subjects = Counter((fact.relation, fact.object) for fact in facts)
    for fact in facts:
        yield Hop(fact, back=False)
        if RELATIONS[fact.relation].ask_back and subjects[fact.relation, fact.object] == 1:
            yield Hop(fact, back=True)


def _grouped(items: Sequence[_T], key: Callable[[_T], str]) -> defaultdict[str, list[_T]]:
    groups: defaultdict[str, list[_T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def _by_kind(entities: Sequence[Entity]) -> list[list[Entity]]:
    return list(_grouped(entities, lambda entity: entity.kind).values())


def _is_new(chain: list[Hop], hop: Hop, stop: str) -> bool:
    """Whether a hop needs a page of its own and leads to a stop that the chain has not passed."""
    return all(hop.fact.subject != other.fact.subject and stop not in (other.source, other.target) for other in chain)


def word_chain(chain: Sequence[Hop], mention: str, one: Callable[[Sequence[str]], str]) -> str:
    """Return the question that a chain answers.

    Args:
        chain: the hops in order.
        mention: what the question calls the first of them, such as "the river Velmora".
        one: picks a wording.
    """
    text = mention
    for hop in chain[:-1]:
        relation = RELATIONS[hop.fact.relation]
        text = (relation.noun_back if hop.back else relation.noun).format(text)
    relation = RELATIONS[chain[-1].fact.relation]
    return one(relation.ask_back if chain[-1].back else relation.ask).format(text)


def _spoken(entity: Entity, family: str) -> str:
    return entity.aliases[0] if family == ALIAS else entity.full_name


def _within(name: str, text: str) -> bool:
    """Whether a name occurs in a text as a run of whole words."""
    return f" {_plain(name)} " in f" {_plain(text)} "


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
