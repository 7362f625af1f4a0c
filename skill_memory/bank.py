"""SESA's skill bank: skills are found by cosine, judged by use, learned from failures, evicted when they hurt.

    bank = SkillBank(MemorySettings(), Path("run/skills.sqlite"))
    skills = bank.retrieve(["Who directed ...?"], exclude_source=["q1"])[0]
    bank.credit([Use("q1", tuple(skill.id for skill in skills), solve_rate=0.4)])
    bank.offer(failure)
    bank.consolidate(step=10)

How skills are found and counted is `skill_memory.stored`; here is what it learns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sesa_env.errors import InvalidInput, SettingsError
from skill_memory.base import Consolidation, Failure
from skill_memory.batch import Background, Batch, Lab, choose, make_exam, require_lab, write_drafts
from skill_memory.card import Malformed
from skill_memory.distill import Distiller, Drafts
from skill_memory.encode import Encoder
from skill_memory.gates import Candidate
from skill_memory.learning import LearningMemory
from skill_memory.records import numbered_skills
from skill_memory.revision import Admission, Revision
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill

_UNDERWAY = "underway"
"""Fact in the store: numbers of the failures that the distiller works on in the background, as JSON."""


class SkillBank(LearningMemory):
    """A growing bank of skills in one file; see the module's docstring.

    Args:
        settings: what to remember and when to learn.
        path: the bank's file; made, and primed with the hand-written skills, when there is none.
        encoder: in place of the one the settings name.
        distiller: in place of the one the settings name.

    Raises:
        StoreCorrupt: the file is damaged or foreign; nothing was changed.
        EncoderMismatch: its vectors are another encoder's (see `reembed`); nothing was changed.
        SettingsError: the cap leaves no room beside what a new bank starts from.
        UnknownName: no such encoder or distiller.
    """

    def __init__(
        self,
        settings: MemorySettings,
        path: Path,
        *,
        encoder: Encoder | None = None,
        distiller: Distiller | None = None,
    ) -> None:
        super().__init__(settings, path, encoder=encoder, distiller=distiller)
        self._background = Background()
        self._lab: Lab | None = None

    def check(self) -> list[str]:
        """Return every inconsistency in the file, or between the file and this object; an empty list is good news."""
        with self._lock:
            waiting, size = len(self._queue), self.settings.queue_size
            return super().check() + [f"{waiting} failures wait, more than {size}"] * (waiting > size)

    # --- learning ----------------------------------------------------------------------------------------------------

    def admit(self, skill: Skill, *, step: int = 0) -> Admission:
        """Ask for one skill, written by hand or elsewhere, to be let in; its id, step and usage are given anew."""
        with self._revising(step=step) as revision:
            return revision.admit(Candidate(skill, self._encoder), cause="by hand")

    def load(self, path: Path, *, step: int = 0) -> list[str]:
        """Ask for all skills of a file of JSON lines to be let in, as `admit` does; return the ids they are given.

        Raises:
            StoreCorrupt: a line is malformed; the message names file and line, and nothing was changed.
            InvalidInput: a gate refuses a line; the message names file, line and gate, and nothing was changed.
        """
        ids = []
        with self._revising(step=step) as revision:
            for number, skill in numbered_skills(path):
                admission = revision.admit(Candidate(skill, self._encoder), cause="imported")
                if admission.gate:
                    raise InvalidInput(f"{path.name}:{number}: refused as {admission.gate}: {admission.detail}")
                ids.append(admission.skill_id)
        return ids

    def equip(self, lab: Lab) -> None:
        """Supply what attribution and the executed gate work with; settings that ask for them are refused without."""
        self._lab = lab

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Evict, distil, admit, and empty the queue, if it is time and enough failures wait; else return None.

        All of it happens, or none: a distiller that raises, a killed process or a full disk leaves skills and queue
        as they were.

        Raises:
            InvalidInput: the step is negative, or the distiller returned something other than drafts per failure.
            SettingsError: the settings ask for attribution or for the executed gate, and `equip` was not called.
            SearchUnavailable: the search tool failed while a cause was sought or a candidate was tried.
            Exception: whatever the distiller raised, as it is.
        """
        if step < 0:
            raise InvalidInput(f"step must be at least 0, got {step!r}")
        require_lab(self.settings, self._lab)
        with self._lock:
            self._tell(step)
        if step % self.settings.distil_every:
            return None
        if self.settings.background:
            done = self._finish(step)
            self._begin()
            return done
        batch = self._choose()
        # The distiller may be slow, so it works outside the lock; what it wrote is judged inside, by the newest bank.
        return self._land(batch, write_drafts(self._distiller, batch), step=step) if batch else None

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        super().close()
        self._background.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _start(self) -> list[Skill]:
        start = super()._start()
        if len(start) >= self.cap:
            raise SettingsError(f"cap must be above the {len(start)} skills of a new bank, got {self.cap!r}")
        return start

    def _choose(self, numbers: list[int] | None = None) -> Batch | None:
        """Choose the failures of a consolidation: among these numbers, or among all if enough of them wait."""
        with self._lock:
            waiting = self._queue.waiting()
            known = {skill.id: skill for skill in (*self._store.tombstones().values(), *self._shelf.skills)}
        if numbers is not None:
            found = {item.number: item for item in waiting}
            waiting = [found[number] for number in numbers if number in found]
        elif len(waiting) < self.settings.min_waiting:
            return None
        return choose(waiting, self.settings, lab=self._lab, known=known)

    def _begin(self) -> None:
        """Let the distiller begin with the next failures, and write down which: a killed process then knows them."""
        batch = self._choose()
        if batch:
            with self._lock, self._store.transaction():
                self._store.set_about(_UNDERWAY, json.dumps([item.number for item in batch.items]))
            self._background.begin(self._distiller, batch)

    def _finish(self, step: int) -> Consolidation | None:
        """Take in what the distiller began at the last consolidation; after a restart it is done over, now."""
        work = self._background.fetch()
        with self._lock:
            underway = self._underway()
        if not underway:
            return None
        if work is None:
            batch = self._choose(underway) or Batch(())
            work = batch, write_drafts(self._distiller, batch)
        return self._land(*work, step=step)

    def _underway(self) -> list[int]:
        """Return the numbers of the failures that the distiller works on in the background."""
        numbers: list[int] = json.loads(self._store.about(_UNDERWAY) or "[]")
        return numbers

    def _land(self, batch: Batch, drafts: Sequence[Drafts], *, step: int) -> Consolidation:
        """Evict, judge the drafts, and take out of the queue what has been dealt with, in one transaction.

        Trials are played within it, so an outage leaves everything as it was; solvers read on, by the skills before.
        """
        pairs = list(zip(batch.taken, drafts, strict=True))
        with self._revising(step=step, exam=make_exam(self.settings, self._lab, batch)) as revision:
            revision.evict()
            for item, cause, detail in batch.blames:
                revision.attribute(item.failure, cause=cause, detail=detail)
            for item, written in pairs:
                self._judge(revision, item.failure, written)
            done = [*batch.dismissed, *(item for item, written in pairs if written is not None)]
            self._queue.drain(done, step=revision.step)
            self._store.set_about(_UNDERWAY, "[]")
            return revision.summary(drained=len(done))

    def _judge(self, revision: Revision, failure: Failure, drafts: Drafts) -> None:
        if drafts is None:
            revision.postpone(failure)
        for part in drafts or ():
            if isinstance(part, Malformed):
                revision.discard(part, failure)
            else:
                revision.admit(Candidate(part, self._encoder, failure), cause="distilled")
