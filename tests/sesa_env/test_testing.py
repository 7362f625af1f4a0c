import itertools
import math

import gymnasium as gym
import numpy as np
import pytest

from sesa_env.envs.opponents import FirstPassageSolver
from sesa_env.envs.search import SearchEnv
from sesa_env.errors import InvalidInput
from sesa_env.registry import RETRIEVERS
from sesa_env.testing import check_env, check_retriever
from sesa_env.types import Passage, Target

PAGES = [Passage("1", "Nile", "a river in Egypt"), Passage("2", "Rhine", "a river in Europe")]


class Sound:
    """Counts the words that a query shares with a page."""

    fingerprint = "f1"

    def search(self, queries, k):
        if isinstance(queries, str) or k < 1:
            raise InvalidInput("no")
        return [self.one(set(query.lower().split()), k) for query in queries]

    def one(self, words, k):
        found = [Passage(p.id, p.title, p.text, len(words & {*p.text.lower().split(), p.title.lower()})) for p in PAGES]
        return sorted((p for p in found if p.score), key=lambda p: -p.score)[:k]

    def close(self):
        pass


class NoClose:
    fingerprint = "f1"

    def search(self, queries, k):
        return []


class NoFingerprint(Sound):
    fingerprint = ""


class WorstFirst(Sound):
    def one(self, words, k):
        return super().one(words, k)[::-1]


class TooMany(Sound):
    def one(self, words, k):
        return super().one(words, 9)


class Twice(Sound):
    def one(self, words, k):
        return (super().one(words, k)[:1] * 2)[:k]


class Shuffled(Sound):
    def search(self, queries, k):
        return super().search(queries, k)[::-1] if len(queries) < 3 else super().search(sorted(queries), k)


class Shared(Sound):
    kept = {}  # noqa: RUF012

    def one(self, words, k):
        return self.kept.setdefault((frozenset(words), k), super().one(words, k))


class AlwaysFinds(Sound):
    def one(self, words, k):
        return super().one(words, k) or PAGES[:k]


class TakesBareStrings(Sound):
    def search(self, queries, k):
        return super().search([queries] if isinstance(queries, str) else queries, k)


class TakesAnyK(Sound):
    def search(self, queries, k):
        return super().search(queries, max(k, 1))


class Fragile(Sound):
    def search(self, queries, k):
        if any(len(query) > 10_000 for query in queries):
            return [[] for _ in queries] * 2
        return super().search(queries, k)


def test_a_sound_retriever_passes():
    check_retriever(Sound(), finds="nile river", other="rhine")


def test_the_built_in_one_passes(world):
    check_retriever(RETRIEVERS.make("bm25", corpus=world["corpus"]), finds="river Egypt", other="Limmat")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (NoClose, "lacks a part of the protocol"),
        (NoFingerprint, "fingerprint must be text"),
        (WorstFirst, "best passage must come first"),
        (TooMany, "k=1 must give the first"),
        (Twice, "no passage may come twice"),
        (Shuffled, "each query what it gives alone"),
        (Shared, "changing a result"),
        (AlwaysFinds, "no searchable term"),
        (TakesBareStrings, "bare string"),
        (TakesAnyK, "k=0 must be refused"),
        (Fragile, "a list of one list"),
    ],
)
def test_each_broken_promise_is_found(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_retriever(broken(), finds="nile river", other="rhine")


# Environments


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("SESA-Search-v0", {}),
        ("SESA-Search-v0", {"role": "solver"}),
        ("SESA-Search-v0", {"role": "challenger"}),
        ("SESA-Search-v0", {"role": "challenger", "opponent": FirstPassageSolver()}),
        ("SESA-Search-v0", {"role": "solver", "opponent": "sesa_env.envs.opponents:TemplateChallenger"}),
        ("SESA-Search-v0", {"settings": {"validators": ["format"], "top_k": 1, "attempts": 3}}),
        ("SESA-Search-v0", {"corpus": "atlas:1", "role": "solver"}),
        ("SESA-Solve-v0", {}),
        ("SESA-Solve-v0", {"settings": {"solver_turns": 2}}),
        ("sesa_env:SESA-Solve-v0", {}),
    ],
)
def test_our_environments_pass(world, env_id, arguments):
    files = world if "Solve" in env_id else {"corpus": world["corpus"]}
    check_env(env_id, **{**files, "settings": {"attempts": 2}, **arguments})


@pytest.mark.parametrize(("env_id", "role"), [("SESA-Search-v0", None), ("SESA-Search-v0", "solver")])
def test_the_embedded_world_passes(env_id, role):
    check_env(env_id, role=role)


def test_the_environment_over_lucene_passes(corpus_file):
    pytest.importorskip("pyserini")
    check_env("SESA-Search-v0", corpus=str(corpus_file), retriever="lucene", role="solver")


class TellsTheAnswer(SearchEnv):
    def _describe(self, trajectory):
        target = self.game.get_state()["target"]
        return {**super()._describe(trajectory), "hint": target["answer"]}


class ShowsTheTarget(SearchEnv):
    def _observe(self, view):
        return {**super()._observe(view), "target": self._answer}

    def _begin(self, game, options):
        super()._begin(game, options)
        self._answer = game.get_state()["target"]["answer"]


class DrawsFromElsewhere(SearchEnv):
    rounds = itertools.count()

    def _draw(self):
        if self.np_random.integers(2):
            return super()._draw()
        return Target(f"name {next(self.rounds)}", hops=1)


class GivesNoReason(SearchEnv):
    def _describe(self, trajectory):
        return {**super()._describe(trajectory), "reason": ""}


class NeverOver(SearchEnv):
    def step(self, action):
        if self.game.phase == "settled":
            return self.outcome(self._seat)
        return super().step(action)


class EndsTwice(SearchEnv):
    def _truncates(self, trajectory):
        return self.game.phase == "settled"

    def outcome(self, seat):
        observation, reward, _, truncated, info = super().outcome(seat)
        return observation, reward, truncated, truncated, info


class PaysNothingKnown(SearchEnv):
    def outcome(self, seat):
        observation, reward, terminated, truncated, info = super().outcome(seat)
        return observation, math.nan if terminated else reward, terminated, truncated, info


class TellsNoOutcome(SearchEnv):
    def _describe(self, trajectory):
        return {key: value for key, value in super()._describe(trajectory).items() if key != "rejection"}


class Silent(SearchEnv):
    def show(self):
        pass


class Forgets(SearchEnv):
    def get_state(self):
        return {**super().get_state(), "random": np.random.default_rng(0).bit_generator.state}


class HoldsArrays(SearchEnv):
    def get_state(self):
        return {**super().get_state(), "seat": ("challenger_0",)}


class Unpicklable(SearchEnv):
    def __setstate__(self, state):
        self.__dict__.update(state)
        self._np_random = np.random.default_rng(0)


class Warns(SearchEnv):
    metadata = {"render_modes": ["ansi", "human"]}  # noqa: RUF012


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (TellsTheAnswer, "info must tell no accepted answer"),
        (ShowsTheTarget, "must observe target as its view has it"),
        (DrawsFromElsewhere, "equal seeds and texts|not deterministic|not equivalent"),
        (GivesNoReason, "a text without action must be told as such"),
        (NeverOver, "a step after the end must be refused"),
        (EndsTwice, "must end in one way"),
        (PaysNothingKnown, "rewards must be finite"),
        (TellsNoOutcome, "the last info must tell the outcome"),
        (Silent, "'human' must print"),
        (Forgets, "a restored environment must go on"),
        (HoldsArrays, "get_state must return JSON data"),
        (Unpicklable, "a pickled environment must go on"),
        (Warns, "Gymnasium's checker must have nothing to warn of"),
    ],
)
def test_each_broken_promise_of_an_environment_is_found(world, broken, message):
    gym.register(f"Broken{broken.__name__}-v0", entry_point=broken)
    with pytest.raises(AssertionError, match=message):
        check_env(f"Broken{broken.__name__}-v0", corpus=world["corpus"], settings={"attempts": 2})


def test_an_environment_of_another_kind_is_refused():
    with pytest.raises(AssertionError, match="must be built on RoundEnv"):
        check_env("CartPole-v1")
