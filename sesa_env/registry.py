"""Names for interchangeable parts: the whole plug-in surface, on one page.

    from sesa_env.registry import RETRIEVERS
    RETRIEVERS.register("mine", MyRetriever)
    retriever = RETRIEVERS.make("mine", path="...")

A built-in is registered by a dotted path and imported when it is first made, so naming a part never loads torch or
starts Java.  A third party's part is found through the entry-point group in the registry's column below.  A name that
is taken twice, by a built-in and an installed distribution or by two of those, is refused when it is asked for.

    RETRIEVERS          sesa_env.retrievers          (corpus=..., ...)      -> sesa_env.retrieval.base.Retriever
    VALIDATORS          sesa_env.validators          (proposal, settings)   -> reason it is refused, or ""; or a class
    ANSWERERS           sesa_env.answerers           (checks)               -> sesa_env.answerers.Answerer
    JUDGES              sesa_env.judges              (**options)            -> sesa_env.judge.Judge
    TARGETS             sesa_env.targets             (source)               -> targets, in a tuple
    CHALLENGER_REWARDS  sesa_env.challenger_rewards  (solve_rate, settings) -> float
    OPPONENTS           sesa_env.opponents           (**options)            -> sesa_env.envs.opponents.Opponent
    MEMORIES            sesa_env.memories            (settings, path)       -> skill_memory.base.SkillMemory
    ENCODERS            sesa_env.encoders            ()                     -> encoder of passages, of skills, or both
    POLICIES            sesa_env.policies            ()                     -> folder of a transformers model

An encoder for a dense index is a `sesa_env.encoders.TextEncoder`, one for skills a `skill_memory.encode.Encoder`; of
the built-in ones, "minilm" and "e5-base-v2" are both, and "hashing" is for skills only.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sesa_env.errors import DuplicateName, UnknownName


class Registry:
    """A table from names to makers; unknown and doubled names raise, and the error lists what exists.

    Args:
        kind: what the parts are, for messages ("retriever").
        group: entry-point group in which other distributions declare parts of this kind.
    """

    def __init__(self, kind: str, *, group: str) -> None:
        self.kind = kind
        self.group = group
        self._makers: dict[str, Callable[..., Any] | str] = {}

    def register(self, name: str, maker: Callable[..., Any] | str) -> None:
        """Add a part: a callable, or "module:attribute" to be imported on first use.

        Raises:
            DuplicateName: the name is taken.
        """
        if name in self._makers:
            raise DuplicateName(f"{self.kind} {name!r} is already registered")
        self._makers[name] = maker

    def names(self) -> list[str]:
        """Every known name, built in or installed by another distribution, in alphabetical order."""
        return sorted({*self._makers, *self._declared})

    def get(self, name: str) -> Callable[..., Any]:
        """Return the part of that name.

        Raises:
            UnknownName: no such part; the message lists the known ones.
            DuplicateName: two parts have this name; the message says whose they are.
        """
        maker, declared = self._makers.get(name), self._declared.get(name, [])
        if len(declared) + (maker is not None) > 1:
            raise DuplicateName(self._rivals(name))
        if isinstance(maker, str):
            module, _, attribute = maker.partition(":")
            maker = self._makers[name] = getattr(importlib.import_module(module), attribute)
        if maker is not None:
            return maker
        for point in declared:
            loaded: Callable[..., Any] = point.load()
            return loaded
        raise UnknownName(f"no {self.kind} named {name!r}; known: {', '.join(self.names())}")

    def make(self, name: str, *args: Any, **options: Any) -> Any:
        """Call the part of that name with the given arguments."""
        return self.get(name)(*args, **options)

    @property
    def _declared(self) -> Mapping[str, list[EntryPoint]]:
        return _declared(self.group, tuple(sys.path))

    def _rivals(self, name: str) -> str:
        declared = [f"{point.value} of {point.dist.name if point.dist else '?'}" for point in self._declared[name]]
        owners = ["the one built in or registered here"] * (name in self._makers) + declared
        return (
            f"{self.kind} {name!r} is declared more than once: {', '.join(owners)}; "
            f"uninstall a distribution, or rename its entry point in the group {self.group}"
        )


@lru_cache(maxsize=64)
def _declared(group: str, path: tuple[str, ...]) -> Mapping[str, list[EntryPoint]]:
    """Return the entry points of a group, by name; to look for them at each use of a name would be slow."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=group):
        found[point.name].append(point)
    return dict(found)


RETRIEVERS = Registry("retriever", group="sesa_env.retrievers")
VALIDATORS = Registry("validator", group="sesa_env.validators")
ANSWERERS = Registry("answerer", group="sesa_env.answerers")
JUDGES = Registry("judge", group="sesa_env.judges")
TARGETS = Registry("target source", group="sesa_env.targets")
CHALLENGER_REWARDS = Registry("challenger reward", group="sesa_env.challenger_rewards")
OPPONENTS = Registry("opponent", group="sesa_env.opponents")
MEMORIES = Registry("memory", group="sesa_env.memories")
ENCODERS = Registry("encoder", group="sesa_env.encoders")
POLICIES = Registry("policy", group="sesa_env.policies")
