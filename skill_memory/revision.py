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

from skill_memory.base import Consolidation, Failure
from skill_memory.card import Malformed
from skill_memory.encode import Vectors
from skill_memory.executed import Exam
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
        exam: puts distilled candidates to the test; None lets them in untested.
    """

    def __init__(
        self,
        store: Store,
        shelf: Shelf,
        *,
        cap: int,
        max_similarity: float,
        step: int,
        exam: Exam | None = None,
    ) -> None:
        self.shelf = shelf
        self._store = store
        self._cap = cap
        self._max_similarity = max_similarity
        self.step = step
        self._exam = exam
        self._taught: set[str] = set()
        self._admitted: list[str] = []
        self._evicted: list[str] = []
        self._refused: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._postponed = 0
        self._trial_attempts = 0

    @property
    def count_admitted(self) -> int:
        """How many candidates have been let in."""
        return len(self._admitted)

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
        surroundings = Surroundings(
            shelf=self.shelf,
            tombstones=self._tombstones,
            max_similarity=self._max_similarity,
            full=full and not self._leaving,
            taught=self._taught,
            examine=self._examine if self._exam else None,
        )
        refusal = refuse(candidate, surroundings)
        if refusal:
            gate, detail = refusal
            return self._refuse(gate, detail, failure=candidate.failure, words=repr(candidate.skill))
        if full:
            self._remove(self._leaving.pop(), cause="over_cap")
        return self._add(candidate, cause=cause)

    def discard(self, draft: Malformed, failure: Failure) -> None:
        """Refuse a reply that is no card."""
        self._refuse("parsed", draft.detail, failure=failure, words=draft.reply)

    def attribute(self, failure: Failure, *, cause: str, detail: str) -> None:
        """Write down whose fault a failure was."""
        self._causes[cause] += 1
        self._store.log("attribute", step=self.step, cause=cause, question_id=failure.question_id, detail=detail)

    def postpone(self, failure: Failure) -> None:
        """Write down that nobody replied, so that the failure goes on waiting."""
        self._postponed += 1
        self._store.log("postpone", step=self.step, cause="no_reply", question_id=failure.question_id)

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
            causes=dict(self._causes),
            postponed=self._postponed,
            trial_attempts=self._trial_attempts,
        )
        self._store.log(
            "consolidate",
            step=self.step,
            cause="schedule",
            drained=drained,
            admitted=len(done.admitted),
            evicted=len(done.evicted),
            refused=done.refused,
            causes=done.causes,
            postponed=done.postponed,
            trial_attempts=done.trial_attempts,
        )
        return done

    @cached_property
    def _leaving(self) -> list[Skill]:
        """The skills that would make room, weakest last: no seeds, none of this revision, none with positive net help.

        Sorted once: while skills come and go, no counter changes.
        """
        return weakest_first([s for s in self.shelf.skills if s.usage.net <= 0 and s.id not in self._admitted])[::-1]

    def _remove(self, skill: Skill, *, cause: str) -> None:
        self._tombstones[text_key(skill)] = skill
        self._store.evict(skill, step=self.step, cause=cause)
        self._evicted.append(skill.id)
        self.shelf = self.shelf.minus({skill.id})

    def _examine(self, skill: Skill, failure: Failure) -> str:
        assert self._exam is not None
        evidence = self._exam(skill, failure)
        objection = evidence.objection
        if evidence.attempts:
            self._trial_attempts += evidence.attempts
            self._store.log(
                "trial",
                step=self.step,
                cause="failed" if objection else "passed",
                source=failure.question_id,
                figures=evidence.figures,
            )
        return objection

    def _refuse(self, gate: str, detail: str, *, failure: Failure | None, words: str) -> Admission:
        self._refused[gate] += 1
        source = failure.question_id if failure else ""
        self._store.log(
            "refuse", step=self.step, cause=gate, detail=detail, source=source, candidate=words[:_LONGEST_DETAIL]
        )
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
