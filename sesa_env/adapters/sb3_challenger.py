"""A challenger's seat for reinforcement learning without language: which entity to ask about, how far, along what.

An episode is one round.  The challenger is offered some entities of an Atlas and picks one, a number of hops and a
first relation; the question is written from that choice, checked, put to G frozen solvers, and paid as in any round.

    env = ChoiceActions(solver, corpus="atlas:0")
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=256).learn(10_000)

A solver here is a function `(view, posed, rng) -> text`.  A scripted one may look at `posed`, the way to the answer; a
policy has no business there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from sesa_env.corpora import is_atlas, load_atlas
from sesa_env.corpora.atlas import RELATIONS, Atlas, Entity, Fact
from sesa_env.corpora.atlas.prose import qualified
from sesa_env.corpora.atlas.relations import KINDS
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput, OutOfTurn, SearchUnavailable
from sesa_env.game import CHALLENGER_SEAT, Game, GameSettings, Move, advance
from sesa_env.judge import ExactMatchJudge
from sesa_env.types import Round, Target, View

OFFERS, MAX_HOPS, WAYS = 4, 5, 3
"""Entities offered, most hops, and first relations to choose among: 60 actions."""

_BUCKETS = 16
"""Places of a hashed relation."""
_PER_OFFER = len(KINDS) + 2 + WAYS * _BUCKETS

Observation = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Posed:
    """A question with the way to its answer: for each hop a query, and the name or value that it should bring."""

    text: str
    target: Target
    queries: tuple[str, ...]
    stops: tuple[str, ...]


Solver = Callable[[View, Posed, np.random.Generator], str]


class Composer:
    """Writes questions by walking the facts of a fictional world forward, from subject to object.

    Args:
        atlas: the world.
    """

    def __init__(self, atlas: Atlas) -> None:
        self._entities = {entity.title: entity for entity in atlas.entities}
        self._facts: dict[str, list[Fact]] = defaultdict(list)
        for fact in atlas.facts:
            self._facts[fact.subject].append(fact)

    def facts(self, entity: Entity) -> list[Fact]:
        """Return what the page of an entity states."""
        return self._facts[entity.title]

    def compose(self, entity: Entity, *, hops: int, way: int) -> Posed | None:
        """Return the question that so many facts in a row answer, or None when the walk comes to a dead end.

        Args:
            entity: where the walk begins.
            hops: how many facts, at least 1.
            way: which of the fitting facts to take at each stop, modulo how many there are.
        """
        chain = self._walk(entity, hops, way)
        if chain is None:
            return None
        text = _mention(entity)
        for fact in chain[:-1]:
            text = RELATIONS[fact.relation].noun.format(text)
        last = self._entities.get(chain[-1].object)
        return Posed(
            text=RELATIONS[chain[-1].relation].ask[0].format(text),
            target=Target(self._name(chain[-1].object), hops=hops, aliases=last.aliases if last else ()),
            queries=tuple(f"{self._name(fact.subject)} {RELATIONS[fact.relation].cue}" for fact in chain),
            stops=tuple(self._name(fact.object) for fact in chain),
        )

    def _walk(self, entity: Entity, hops: int, way: int) -> list[Fact] | None:
        here, chain = entity.title, list[Fact]()
        passed = {entity.title}
        while len(chain) < hops:
            ways = [fact for fact in self._facts[here] if self._leads_on(fact, passed, last=len(chain) == hops - 1)]
            if not ways:
                return None
            chain.append(ways[way % len(ways)])
            here = chain[-1].object
            passed.add(here)
        return chain

    def _leads_on(self, fact: Fact, passed: set[str], *, last: bool) -> bool:
        return fact.object not in passed and (last or fact.object in self._entities)

    def _name(self, title: str) -> str:
        return self._entities[title].name if title in self._entities else title


class ChoiceActions(gymnasium.Env[Observation, np.int64]):
    """One round per episode, in which the challenger chooses what to ask instead of writing it.

    The action is a number below 60, `(offer * MAX_HOPS + hops - 1) * WAYS + way`.  The observation has for each offered
    entity its kind, whether its page is reworded, its number of facts, and the hashed relations that it can begin with.
    The reward is the challenger's: `CHALLENGER_REWARDS` of the solve rate.  A choice that leads nowhere is a refused
    proposal.  Each episode terminates after its one step.

    Info has `solve_rate` (None when the question was refused), `rejection`, `hops` and `question`.

    Args:
        solver: what plays every solver's seat.
        corpus: "atlas" or "atlas:SEED".
        retriever: a name in `RETRIEVERS`.
        settings: fields of `GameSettings` to change; `challenger_reward` says what is learned.

    Raises:
        InvalidInput: the corpus is no Atlas, or a setting is out of range; the challenger needs two turns.
        SettingsError: a setting is unknown.
    """

    def __init__(
        self,
        solver: Solver,
        *,
        corpus: str = "atlas",
        retriever: str = "bm25",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not is_atlas(corpus):
            raise InvalidInput(f"corpus must be an Atlas, since questions are written from its facts, got {corpus!r}")
        self.settings = GameSettings.from_mapping(settings or {})
        if self.settings.challenger_turns < 2:
            turns = self.settings.challenger_turns
            raise InvalidInput(f"challenger_turns must be at least 2, one search and the question, got {turns!r}")
        self.choices = OFFERS * MAX_HOPS * WAYS
        self.action_space = Discrete(self.choices)
        self.observation_space = Box(0.0, 1.0, shape=(OFFERS * _PER_OFFER,), dtype=np.float32)
        self._solver = solver
        self._atlas = load_atlas(corpus)
        self._composer = Composer(self._atlas)
        self._retriever = open_retriever(corpus, retriever=retriever, pages=bool(self.settings.tools))
        self._offers: list[Entity] = []
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Offer entities for a new round; there are no options."""
        super().reset(seed=seed)
        drawn = self.np_random.choice(len(self._atlas.entities), size=OFFERS, replace=False)
        self._offers = [self._atlas.entities[int(place)] for place in drawn]
        self._over = False
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play the whole round that the choice makes.

        Raises:
            InvalidInput: the action is not in the action space.
            OutOfTurn: the round is over, or was never begun.
            SearchUnavailable: the search tool failed; there is no reward to learn from.
        """
        if self._over:
            raise OutOfTurn("the round is over, call reset for a new one")
        if not self.action_space.contains(action):
            raise InvalidInput(f"action must be a whole number in [0, {self.choices}), got {action!r}")
        self._over = True
        rest, way = divmod(int(action), WAYS)
        offer, hops = divmod(rest, MAX_HOPS)
        posed = self._composer.compose(self._offers[offer], hops=hops + 1, way=way)
        info = {"hops": hops + 1, "question": posed.text if posed else "", "solve_rate": None, "rejection": "dead_end"}
        if posed is None:
            return self._observe(), self.settings.rejection_reward, True, False, info
        result = self._play(posed)
        info.update(solve_rate=result.solve_rate, rejection=result.rejection)
        return self._observe(), result.rewards[CHALLENGER_SEAT], True, False, info

    def _play(self, posed: Posed) -> Round:
        game = Game(self.settings, judge=ExactMatchJudge())
        game.pose(posed.target)
        for text in (f"<search>{posed.queries[0]}</search>", f"<question>{posed.text}</question>"):
            if CHALLENGER_SEAT in game.active:
                advance([Move(game, CHALLENGER_SEAT, text)], self._retriever)
        while game.phase != "settled":
            texts = [(seat, self._solver(game.view(seat), posed, self.np_random)) for seat in game.active]
            advance([Move(game, seat, text) for seat, text in texts], self._retriever)
        if CHALLENGER_SEAT not in game.result.rewards:
            raise SearchUnavailable(
                f"the search tool failed, so the question {posed.text!r} earns nothing to learn from"
            )
        return game.result

    def _observe(self) -> Observation:
        return np.concatenate([self._offer(entity) for entity in self._offers])

    def _offer(self, entity: Entity) -> Observation:
        facts = self._composer.facts(entity)
        relation_WB = np.zeros((WAYS, _BUCKETS), dtype=np.float32)
        for way in range(min(WAYS, len(facts))):
            relation_WB[way, crc32(facts[way].relation.encode()) % _BUCKETS] = 1.0
        kind = [float(entity.kind == name) for name in KINDS]
        return np.array([*kind, float(entity.reworded), min(len(facts), 10) / 10, *relation_WB.ravel()], np.float32)


def _mention(entity: Entity) -> str:
    return qualified(entity, entity.name) if entity.qualifier else entity.name
