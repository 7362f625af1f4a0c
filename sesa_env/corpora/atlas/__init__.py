"""Atlas, the embedded fictional encyclopedia: a seeded world of people, places, works and firms, and questions on it.

Nothing in it is real or in any model's weights, so a right answer proves a search.  Since the world is generated, the
gold is known: every question has one right answer, the chain of facts behind it, and the pages that state them.

    atlas = generate(seed=TRAIN_SEED)
    question = atlas.questions(10, hops=2)[0]
    atlas.chain(question.id), atlas.gold_queries(question.id), atlas.page(question.supporting_titles[0])

Convention: even seeds are worlds to train on, odd seeds worlds to test on.  No two worlds share a name.
Not for: judging knowledge of the real world, or long documents; a page is one passage of 25 to 60 words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np

from sesa_env.corpora.atlas.names import WORLDS, Words
from sesa_env.corpora.atlas.prose import write_passages
from sesa_env.corpora.atlas.questions import FAMILIES, HOPS, Inquirer, Item
from sesa_env.corpora.atlas.relations import RELATIONS, Relation, english, with_jargon
from sesa_env.corpora.atlas.world import Entity, Fact, World, draw_world
from sesa_env.errors import InvalidInput, UnknownName
from sesa_env.types import Passage, Question, Target

__all__ = [
    "FAMILIES",
    "RELATIONS",
    "TEST_SEED",
    "TRAIN_SEED",
    "WORLDS",
    "Atlas",
    "Entity",
    "Fact",
    "generate",
]

TRAIN_SEED = 0
TEST_SEED = 1

MIN_ENTITIES, MAX_ENTITIES = 200, 10_000

_T = TypeVar("_T")


def generate(seed: int = 0, *, entities: int = 3000, jargon: bool | Literal["mixed"] = False) -> Atlas:
    """Make a fictional encyclopedia; equal arguments give equal ones, on every run and in every process.

    Args:
        seed: which world, 0 <= seed < WORLDS; even for training, odd for test.
        entities: how many pages, 200 to 10,000; about twice as many questions come with them.
        jargon: whether reworded pages use words of this world's own making, which no model can know beforehand, in
            place of unexpected English ones; "mixed" for half of them, and for the other half English ones that mean
            something else in other worlds.

    Raises:
        InvalidInput: the seed or the number of entities is out of range.
    """
    if seed not in range(WORLDS):
        raise InvalidInput(f"seed must be a whole number in [0, {WORLDS}), one for each world, got {seed!r}")
    if entities not in range(MIN_ENTITIES, MAX_ENTITIES + 1):
        raise InvalidInput(f"entities must be a whole number in [{MIN_ENTITIES}, {MAX_ENTITIES}], got {entities!r}")
    seed, entities = int(seed), int(entities)
    rng = np.random.default_rng(seed)
    words = Words(seed, rng=rng, reserved=english())
    world = draw_world(rng, words, entities=entities)
    relations = RELATIONS
    if jargon:
        relations = with_jargon(words.fresh, seed=seed if jargon == "mixed" else None)
    passages = write_passages(world, rng, seed=seed, relations=relations)
    pool = Inquirer(world, rng, seed=seed, relations=relations).pool(per_hop=entities // 2)
    return Atlas(seed=seed, world=world, passages=passages, pool=pool, relations=relations)


class Atlas:
    """A fictional encyclopedia: pages, the facts that they state, and questions whose gold is known.

    Made by `generate`.  Everything it holds is fixed; asking it changes nothing.
    """

    def __init__(
        self,
        *,
        seed: int,
        world: World,
        passages: tuple[Passage, ...],
        pool: tuple[Item, ...],
        relations: Mapping[str, Relation],
    ) -> None:
        self.seed = seed
        self.relations = relations
        self.entities: tuple[Entity, ...] = world.entities
        self.facts: tuple[Fact, ...] = world.facts
        self.passages = passages
        self.all_questions: tuple[Question, ...] = tuple(item.question for item in pool)
        self._pool = pool
        self._items = {item.question.id: item for item in pool}
        self._pages = {passage.title: passage for passage in passages}

    def __repr__(self) -> str:
        return f"<fictional Atlas, seed {self.seed}: {len(self.passages)} pages, {len(self._pool)} questions>"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all entities, facts, pages and questions, in hexadecimal."""
        parts = (self.entities, self.facts, self.passages, self._pool)
        content = json.dumps([self.seed, *([astuple(record) for record in part] for part in parts)])
        return hashlib.sha256(content.encode()).hexdigest()

    def page(self, title: str) -> Passage:
        """Return the page of that title.

        Raises:
            UnknownName: there is none.
        """
        return _known(self._pages, title, "page titled")

    def questions(
        self, n: int, *, hops: int | None = None, seed: int = 0, families: Sequence[str] | None = None
    ) -> tuple[Question, ...]:
        """Draw different questions, equally many for each number of hops (up to one), in mixed order.

        Args:
            n: how many.
            hops: 1 to 4 for questions of one length only; None for all lengths that the families have.
            seed: which draw; with the same seed, a smaller draw is the beginning of a larger one.
            families: some of `FAMILIES`; None for all.

        Raises:
            InvalidInput: an argument is out of range, or there are not so many such questions.
        """
        items = self._select(hops, families)
        return tuple(item.question for item in _balanced(items, n, seed=seed, what="questions"))

    def targets(self, n: int, *, seed: int = 0) -> tuple[Target, ...]:
        """Draw different answers for a challenger to pose questions about, equally many for each number of hops.

        Every target is the name of one entity alone, and can be asked about in that many hops.

        Raises:
            InvalidInput: `n` is below 1, or there are not so many.
        """
        alone = {entity.title: entity for entity in self.entities if not entity.qualifier}
        order = np.random.default_rng(seed).permutation(len(self._pool)).tolist()
        first: dict[str, Item] = {}
        for item in (self._pool[i] for i in order):
            if item.question.answers[0] in alone:
                first.setdefault(item.question.answers[0], item)
        drawn = (item.question for item in _balanced(list(first.values()), n, seed=seed, what="targets"))
        return tuple(Target(q.answers[0], q.hops or 1, alone[q.answers[0]].aliases) for q in drawn)

    def chain(self, question_id: str) -> tuple[Fact, ...]:
        """Return the facts that lead to the answer, one for each hop, in order.

        A hop reads its fact from the known end to the unknown one; a comparison's two facts stand side by side.

        Raises:
            UnknownName: this world has no such question.
        """
        return _known(self._items, question_id, "question with id").chain

    def gold_queries(self, question_id: str) -> tuple[str, ...]:
        """Return for each hop the query that finds its page: the known name and the page's word for the relation.

        Raises:
            UnknownName: this world has no such question.
        """
        return _known(self._items, question_id, "question with id").gold_queries

    def natural_queries(self, question_id: str) -> tuple[str, ...]:
        """Return for each hop the query in the question's words; on reworded pages it differs from the gold query.

        Raises:
            UnknownName: this world has no such question.
        """
        return _known(self._items, question_id, "question with id").natural_queries

    def _select(self, hops: int | None, families: Sequence[str] | None) -> list[Item]:
        if hops is not None and hops not in HOPS:
            raise InvalidInput(f"hops must be one of {HOPS} or None, got {hops!r}")
        chosen = FAMILIES if families is None else tuple(families)
        if isinstance(families, str) or not set(chosen) <= set(FAMILIES):
            raise InvalidInput(f"families must be some of {FAMILIES}, got {families!r}")
        return [item for item in self._pool if hops in (None, item.question.hops) and item.question.family in chosen]


def _known(table: dict[str, _T], key: str, what: str) -> _T:
    if key not in table:
        raise UnknownName(f"this fictional encyclopedia has no {what} {key!r}")
    return table[key]


def _balanced(items: Sequence[Item], n: int, *, seed: int, what: str) -> list[Item]:
    """Draw n items, equally many for each number of hops that occurs, one of each in turn."""
    lanes = [lane for hops in HOPS if (lane := [item for item in items if item.question.hops == hops])]
    most = min(map(len, lanes), default=0) * len(lanes)
    if n not in range(1, most + 1):
        raise InvalidInput(f"n must lie in [1, {most}], as many {what} as there are in equal shares, got {n!r}")
    rng = np.random.default_rng(seed)
    shuffled = [[lane[i] for i in rng.permutation(len(lane)).tolist()] for lane in lanes]
    return [shuffled[i % len(shuffled)][i // len(shuffled)] for i in range(n)]
