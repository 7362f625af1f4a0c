"""From failures that wait to drafts of skills: which are distilled, what of the rest, and in which thread.

    batch = choose(queue.waiting(), settings, lab=lab, known=skills_by_id)
    drafts = write_drafts(distiller, batch)

Nothing here changes a bank or its queue: a batch whose drafts never come has cost its failures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from sesa_env.errors import InvalidInput, SettingsError
from skill_memory.attribution import GAP, Case, Search, attribute
from skill_memory.card import Malformed
from skill_memory.distill import Distiller, Drafts, Waiting
from skill_memory.executed import Exam, Past, Trial
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill


@dataclass(frozen=True, slots=True)
class Lab:
    """What a bank needs of the world to look into failures and to test skills; the training loop supplies it.

    `search` and `top_k` are the solvers' search tool; `trial` plays questions with and without a skill; `past` returns
    the questions of earlier steps, oldest first.
    """

    search: Search
    top_k: int
    trial: Trial
    past: Callable[[], Sequence[Past]]


class Blame(NamedTuple):
    """A failure and what caused it."""

    item: Waiting
    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The failures of one consolidation: those that teach and, if that was asked, what caused each one looked at."""

    taken: tuple[Waiting, ...]
    blames: tuple[Blame, ...] = ()

    @property
    def items(self) -> list[Waiting]:
        """All failures that were looked at, in order."""
        return [blame.item for blame in self.blames] or list(self.taken)

    @property
    def dismissed(self) -> list[Waiting]:
        """Those that teach nothing."""
        return [blame.item for blame in self.blames if blame.cause != GAP]


def require_lab(settings: MemorySettings, lab: Lab | None) -> None:
    """Refuse settings that need a search tool or a solver where there is none.

    Raises:
        SettingsError: attribution or executed is on, and nothing was given to do it with.
    """
    for name in ("attribution", "executed"):
        if getattr(settings, name) and lab is None:
            raise SettingsError(f"memory.{name} needs a search tool and a solver: call `equip` before consolidating")


def choose(
    waiting: Sequence[Waiting], settings: MemorySettings, *, lab: Lab | None, known: Mapping[str, Skill]
) -> Batch:
    """Take the failures that are to be distilled; with attribution, look into each in turn until enough teach.

    Args:
        waiting: those to choose from, in the order in which they are wanted.
        settings: how many, and whether to ask for causes.
        lab: the search tool.
        known: every skill by its id, those that were evicted included.

    Raises:
        SearchUnavailable: the search tool failed.
    """
    if not settings.attribution or lab is None:
        return Batch(tuple(waiting[: settings.max_cards]))
    taken: list[Waiting] = []
    blames: list[Blame] = []
    for item in waiting:
        if len(taken) == settings.max_cards:
            break
        shown = tuple(known[id] for id in item.failure.skill_ids if id in known)
        cause, detail = attribute(Case(item.failure, shown=shown, search=lab.search, top_k=lab.top_k))
        blames.append(Blame(item, cause, detail))
        if cause == GAP:
            taken.append(item)
    return Batch(tuple(taken), tuple(blames))


def write_drafts(distiller: Distiller, batch: Batch) -> list[Drafts]:
    """Return the distiller's drafts for each failure taken.

    Raises:
        InvalidInput: it returned something other than drafts, one for each failure.
    """
    failures = [item.failure for item in batch.taken]
    written = list(distiller.distill(failures)) if failures else []
    if len(written) != len(failures):
        raise InvalidInput(f"distill must return {len(failures)} lists, one per failure, got {len(written)}")
    for part in (part for drafts in written for part in drafts or ()):
        if not isinstance(part, Skill | Malformed):
            raise InvalidInput(f"distill must return lists of Skill, got {part!r}")
    return written


def make_exam(settings: MemorySettings, lab: Lab | None, batch: Batch) -> Exam | None:
    """Return what puts the batch's candidates to the test; None when the settings ask for none."""
    if not settings.executed or lab is None:
        return None
    seen = {item.failure.question_id for item in batch.taken}
    return Exam(lab.trial, lab.past(), size=settings.trial_questions, seen=seen)


class Background:
    """Lets a distiller work on one batch in a thread of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="distiller")
        self._work: tuple[Batch, Future[list[Drafts]]] | None = None

    def begin(self, distiller: Distiller, batch: Batch) -> None:
        """Begin with a batch; the one before must have been fetched."""
        self._work = batch, self._pool.submit(write_drafts, distiller, batch)

    def fetch(self) -> tuple[Batch, list[Drafts]] | None:
        """Wait for the batch that was begun and return it with its drafts; None when none was begun.

        Raises:
            Exception: whatever the distiller raised, as it is; the batch is then to be begun anew.
        """
        work, self._work = self._work, None
        return (work[0], work[1].result()) if work else None

    def close(self) -> None:
        """Wait until the thread is idle, which a time-out of the distiller bounds, and end it."""
        self._pool.shutdown(wait=True, cancel_futures=True)
