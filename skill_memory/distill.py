"""Failures wait in a queue until a distiller turns them into candidate skills.

A failure teaches most at the frontier: the question was solved sometimes, and this attempt did not.  The queue is
emptied only after the distiller has succeeded: a failure for which there is no draft keeps waiting.

    distiller = DISTILLERS.make("rules")
    drafts = distiller.distill(failures)    # one list of candidates per failure, not yet admitted

Whether a candidate enters the bank is decided by `skill_memory.gates`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sesa_env.errors import InvalidInput, SettingsError
from sesa_env.registry import Registry
from skill_memory.base import Failure
from skill_memory.card import Malformed
from skill_memory.skill import Skill
from skill_memory.store import Store

LONG_EVIDENCE = 1500
"""Characters of passages from which evidence counts as long."""

DISTILLERS = Registry("distiller", group="sesa_env.distillers")


Drafts = Sequence[Skill | Malformed] | None
"""What a distiller made of one failure: candidates and replies that are none; or None, and it is to wait for another
try, because nobody replied."""


@runtime_checkable
class Distiller(Protocol):
    """Writes candidate skills from failures."""

    def distill(self, failures: Sequence[Failure]) -> Sequence[Drafts]:
        """Return the drafts for each failure, in order; an empty list where there is nothing to learn.

        Ids, sources and usage of the candidates are not looked at.  An outage is None, or raises; it is never an empty
        list.
        """
        ...


class NoDistiller:
    """Learns nothing: the bank keeps its skills, its counters and its evictions, and gains none."""

    def distill(self, failures: Sequence[Failure]) -> list[list[Skill]]:
        """Return no candidate for any failure."""
        return [[] for _ in failures]


DISTILLERS.register("none", NoDistiller)
DISTILLERS.register("rules", "skill_memory.rules:RuleDistiller")
DISTILLERS.register("chat", "skill_memory.teacher:chat_distiller")
DISTILLERS.register("recorded", "skill_memory.teacher:recorded_distiller")


def make_distiller(name: str, options: Mapping[str, Any]) -> Distiller:
    """Make a distiller with its options.

    Raises:
        UnknownName: no distiller of that name is registered.
        SettingsError: it takes other options.
    """
    maker = DISTILLERS.get(name)
    try:
        signature(maker).bind(**options)
    except TypeError as error:
        raise SettingsError(f"distil_options must be those of distiller {name!r}: {error}") from error
    made: Distiller = maker(**options)
    return made


class Waiting(NamedTuple):
    """A failure in the queue, under its number there."""

    number: int
    priority: int
    failure: Failure


class FailureQueue:
    """The failures that wait, kept in the store: first in, first out on overflow, by priority when distilled.

    One failure is kept per question and step; further ones are counted.  `push` and `drain` are called within a
    transaction of the store.

    Args:
        store: where the failures are kept.
        size: most failures that wait.
        frontier_only: whether only questions that were sometimes solved count.
    """

    def __init__(self, store: Store, *, size: int, frontier_only: bool) -> None:
        self._store = store
        self._size = size
        self._frontier_only = frontier_only

    def __len__(self) -> int:
        """Return how many failures wait."""
        return self._store.count_failures()

    def wants(self, failure: Failure) -> bool:
        """Whether something can be learned: a usable attempt that failed, at the frontier if that is asked for."""
        failed = failure.trajectory.usable and failure.trajectory.reward <= 0.0
        return failed and (not self._frontier_only or 0.0 < failure.solve_rate < 1.0)

    def push(self, failure: Failure, *, step: int, spared: Sequence[int] = ()) -> None:
        """Add a failure; when the queue is full the oldest is dropped, but not one whose number is spared."""
        cause = "queued" if self._store.push_failure(without_skills(failure)) else "counted"
        self._store.log("offer", step=step, cause=cause, question_id=failure.question_id)
        dropped = self._store.drop_oldest_failures(keep=self._size, spared=spared)
        if dropped:
            self._store.log("drop", step=step, cause="overflow", failures=dropped)

    def waiting(self) -> list[Waiting]:
        """Return all that wait, highest priority first, the older first among equals."""
        rows = self._store.failures()
        times = Counter[str]()
        for row in rows:
            times[row.failure.question_id] += row.times
        waiting = [
            Waiting(row.number, priority(row.failure, times_failed=times[row.failure.question_id]), row.failure)
            for row in rows
        ]
        return sorted(waiting, key=lambda item: (-item.priority, item.number))

    def drain(self, waiting: Sequence[Waiting], *, step: int) -> None:
        """Take out what has been distilled or passed over; what came meanwhile stays."""
        self._store.remove_failures([item.number for item in waiting])
        self._store.log("drain", step=step, cause="consolidation", failures=len(waiting))


def priority(failure: Failure, *, times_failed: int) -> int:
    """Return how much a failure is worth distilling: 10 if skills did not help, 5 if repeated, 3 for long evidence.

    Args:
        failure: the waiting failure.
        times_failed: failures offered for its question that are waiting.

    Source: the published code of SESA, as described by readers.
    """
    evidence = sum(len(passage.text) for passage in failure.trajectory.passages)
    return 10 * bool(failure.skill_ids) + 5 * (times_failed > 1) + 3 * (evidence >= LONG_EVIDENCE)


def require_trainable(failure: Failure) -> None:
    """Refuse what a memory must not, or cannot, learn from.

    Raises:
        InvalidInput: the failure is not from training, or lacks question, answers, or a solve rate in [0, 1].
    """
    if failure.split != "train":
        raise InvalidInput(f"split of a failure must be 'train': a memory never learns from {failure.split!r}")
    if not failure.question_id or not failure.question.strip():
        raise InvalidInput(
            f"a failure must have a question and its id, got {failure.question_id!r}, {failure.question!r}"
        )
    if isinstance(failure.answers, str) or not failure.answers:
        raise InvalidInput(
            f"answers of failure {failure.question_id!r} must be a non-empty tuple, got {failure.answers!r}"
        )
    if not 0.0 <= failure.solve_rate <= 1.0:
        raise InvalidInput(f"solve_rate of {failure.question_id!r} must lie in [0, 1], got {failure.solve_rate!r}")


_SKILL_BLOCK = re.compile(r"<skills>.*?(?:</skills>|\Z)", re.DOTALL | re.IGNORECASE)


def without_skills(failure: Failure) -> Failure:
    """Return the failure with skill blocks cut out of what was written: a bank must not be fed with itself."""
    turns = tuple(
        replace(turn, text=_SKILL_BLOCK.sub("", turn.text), observation=_SKILL_BLOCK.sub("", turn.observation))
        for turn in failure.trajectory.turns
    )
    return replace(failure, trajectory=replace(failure.trajectory, turns=turns))
