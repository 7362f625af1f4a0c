"""One revision of a bank: evictions and admissions, one by one, within one transaction.

Each candidate is judged against the skills as the last decision left them, so of two copies in one batch the first
enters and the second is refused.  Every decision is an event, refusals too.

    revision = Revision(store, shelf, cap=800, max_similarity=0.93, step=10)
    revision.evict()
    revision.admit(candidate, cause="distilled")

The caller opens the transaction, and takes over `revision.shelf` once it is committed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

from skill_memory.base import Consolidation
from skill_memory.encode import Vectors
from skill_memory.gates import EVICTION, Candidate, Surroundings, refuse, weakest_first
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill
from skill_memory.store import Store, text_key

_LONGEST_DETAIL = 500


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of one candidate: the id it was given, or the gate that refused it and what that said."""

    skill_id: str = ""
    gate: str = ""
    detail: str = ""


class Revision:
    """The work on a bank at one step, not yet committed.

    Args:
        store: the store, in a transaction.
        shelf: the skills before.
        cap: most skills after.
        max_similarity: largest cosine of two skills.
        step: the training step that the events belong to.
    """

    def __init__(self, store: Store, shelf: Shelf, *, cap: int, max_similarity: float, step: int) -> None:
        self.shelf = shelf
        self._store = store
        self._cap = cap
        self._max_similarity = max_similarity
        self.step = step
        self._taught: set[str] = set()
        self._admitted: list[str] = []
        self._evicted: list[str] = []
        self._refused: Counter[str] = Counter()

    @cached_property
    def _tombstones(self) -> dict[str, Skill]:
        return self._store.tombstones()

    def evict(self) -> None:
        """Remove what each rule of EVICTION names."""
        for cause, rule in EVICTION.items():
            for skill in rule(self.shelf.skills, self._cap):
                self._remove(skill, cause=cause)

    def admit(self, candidate: Candidate, *, cause: str) -> Admission:
        """Let a candidate in, or refuse it; at the cap the weakest older skill makes room."""
        full = len(self.shelf.skills) >= self._cap
        weakest = self._weakest() if full else None
        surroundings = Surroundings(
            shelf=self.shelf,
            tombstones=self._tombstones,
            max_similarity=self._max_similarity,
            full=full and weakest is None,
            taught=self._taught,
        )
        refusal = refuse(candidate, surroundings)
        if refusal:
            return self._refuse(candidate, *refusal)
        if weakest:
            self._remove(weakest, cause="over_cap")
        return self._add(candidate, cause=cause)

    def count(self, question_id: str, ids: list[str], *, helped: bool, step: int) -> None:
        """Count one question's use of active skills."""
        self._store.count_use(ids, helped=helped, step=step, question_id=question_id)
        self.shelf = self.shelf.counted(ids, helped=helped)

    def prime(self, seed: Skill, vector_D: Vectors) -> None:
        """Add a hand-written skill as it is: its author answers for it."""
        self.shelf = self.shelf.plus(self._store.insert(seed, vector_D, step=self.step, cause="seed"), vector_D)

    def summary(self, *, drained: int) -> Consolidation:
        """Write down and return what was done."""
        done = Consolidation(
            step=self.step,
            drained=drained,
            admitted=tuple(self._admitted),
            evicted=tuple(self._evicted),
            refused=dict(self._refused),
        )
        self._store.log(
            "consolidate",
            step=self.step,
            cause="schedule",
            drained=drained,
            admitted=len(done.admitted),
            evicted=len(done.evicted),
            refused=done.refused,
        )
        return done

    def _weakest(self) -> Skill | None:
        """The skill that would make room: not a seed, not of this revision, and without positive net help."""
        older = [skill for skill in self.shelf.skills if skill.id not in self._admitted and skill.usage.net <= 0]
        return next(iter(weakest_first(older)), None)

    def _remove(self, skill: Skill, *, cause: str) -> None:
        self._tombstones[text_key(skill)] = skill
        self._store.evict(skill, step=self.step, cause=cause)
        self._evicted.append(skill.id)
        self.shelf = self.shelf.minus({skill.id})

    def _refuse(self, candidate: Candidate, gate: str, detail: str) -> Admission:
        self._refused[gate] += 1
        source = candidate.failure.question_id if candidate.failure else ""
        words = repr(candidate.skill)[:_LONGEST_DETAIL]
        self._store.log("refuse", step=self.step, cause=gate, detail=detail, source=source, candidate=words)
        return Admission(gate=gate, detail=detail)

    def _add(self, candidate: Candidate, *, cause: str) -> Admission:
        source = candidate.failure.question_id if candidate.failure else candidate.skill.source
        skill = replace(candidate.skill, id="", source=source, created_step=self.step, is_seed=False)
        stored = self._store.insert(skill, candidate.vector_D, step=self.step, cause=cause)
        self.shelf = self.shelf.plus(stored, candidate.vector_D)
        self._admitted.append(stored.id)
        if candidate.failure:
            self._taught.add(candidate.failure.question_id)
        return Admission(skill_id=stored.id)
