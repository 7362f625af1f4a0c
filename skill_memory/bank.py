"""SESA's skill bank: skills are found by cosine, judged by use, learned from failures, evicted when they hurt.

    bank = SkillBank(MemorySettings(), Path("run/skills.sqlite"))
    skills = bank.retrieve(["Who directed ...?"], exclude_source=["q1"])[0]
    bank.credit([Use("q1", tuple(skill.id for skill in skills), solve_rate=0.4)])
    bank.offer(failure)
    bank.consolidate(step=10)

Credit rule: each question counts once for each skill it was shown; as help if most of its attempts succeeded
(solve rate above 1/2), else as hurt.  SESA does not say how the attempts of a question become one count.

What `retrieve` returns changes by `consolidate` and `admit` alone, so within a training step all prompts of a question
are the same.  Counters have no part in ranking.  One process writes to a file at a time; threads may share a bank.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from sesa_env.errors import EncoderMismatch, InvalidInput, SettingsError
from sesa_env.registry import ENCODERS
from skill_memory.base import Consolidation, Failure, Use
from skill_memory.distill import DISTILLERS, Distiller, FailureQueue, require_trainable
from skill_memory.encode import Encoder
from skill_memory.gates import Candidate
from skill_memory.history import check_history, replay
from skill_memory.priming import load_seeds
from skill_memory.records import write_skills
from skill_memory.revision import Admission, Revision
from skill_memory.settings import MemorySettings
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill
from skill_memory.store import Store


class SkillBank:
    """A growing bank of skills in one file; see the module's docstring.

    Args:
        settings: what to remember and when to learn.
        path: the bank's file; made, and primed with the hand-written skills, when there is none.
        encoder: in place of the one the settings name.
        distiller: in place of the one the settings name.

    Raises:
        StoreCorrupt: the file is damaged or foreign; nothing was changed.
        EncoderMismatch: its vectors are another encoder's (see `reembed`); nothing was changed.
        SettingsError: the cap leaves no room for the hand-written skills.
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
        self.settings = settings
        self._encoder: Encoder = encoder or ENCODERS.make(self.settings.encoder)
        self._distiller: Distiller = distiller or DISTILLERS.make(self.settings.distil)
        given = self.settings.max_similarity
        self.max_similarity = self._encoder.max_similarity if given is None else given
        seeds = load_seeds() if self.settings.priming else []
        if len(seeds) >= self.settings.cap:
            raise SettingsError(f"cap must be above the {len(seeds)} hand-written skills, got {self.settings.cap!r}")
        self._lock = threading.RLock()
        self._store = _open_store(path, self._encoder)
        self._queue = FailureQueue(
            self._store, size=self.settings.queue_size, frontier_only=self.settings.frontier_only
        )
        self._step = self._store.last_step()
        self._version = self._store.version()
        self._shelf = _load_shelf(self._store, self._encoder)
        if not self._store.about("primed"):
            self._prime(seeds)

    def __len__(self) -> int:
        """Return how many skills are active."""
        return len(self._shelf.skills)

    def __iter__(self) -> Iterator[Skill]:
        """Yield the active skills with their counters, oldest first."""
        return iter(self._shelf.skills)

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._store.closed

    @property
    def waiting(self) -> int:
        """How many failures wait to be distilled."""
        with self._lock:
            return len(self._queue)

    @property
    def snapshot_id(self) -> str:
        """Hash of all that `retrieve` depends on: texts, sources, encoder, k and floor; counters are no part of it."""
        key = (self._encoder.fingerprint, self.settings.k, self.settings.floor, self._shelf.texts_hash)
        return hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    # --- reading -----------------------------------------------------------------------------------------------------

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return up to k skills for each question, nearest first.

        Args:
            questions: the texts of Q questions.
            exclude_source: their Q ids, so that no question is shown a skill that was distilled from it; or nothing.

        Raises:
            InvalidInput: a bare string where a sequence belongs, or another number of ids than of questions.
        """
        for name, texts in (("questions", questions), ("exclude_source", exclude_source)):
            if isinstance(texts, str):
                raise InvalidInput(f"{name} must be a sequence of strings, not one string, got {texts!r}")
        if exclude_source and len(exclude_source) != len(questions):
            raise InvalidInput(
                f"exclude_source must have {len(questions)} ids, one per question, got {exclude_source!r}"
            )
        vector_QD = self._encoder.encode_queries(questions)
        return self._shelf.best(vector_QD, k=self.settings.k, floor=self.settings.floor, exclude_source=exclude_source)

    def bank_at(self, step: int) -> list[Skill]:
        """Return the skills, with their counters, as they were at the end of a step; rebuilt from the events."""
        with self._lock:
            return list(replay(event for event in self._store.events() if event.step <= step).values())

    def check(self) -> list[str]:
        """Return every inconsistency in the file, or between the file and this object; an empty list is good news."""
        with self._lock:
            problems = self._store.problems() + check_history(self._store)
            stored = self._store.skills()
            if self._store.version() == self._version and tuple(stored) != self._shelf.skills:
                problems.append("skills in memory differ from those in the file")
            if len(stored) > self.settings.cap:
                problems.append(f"{len(stored)} skills are more than the cap of {self.settings.cap}")
            if len(self._queue) > self.settings.queue_size:
                problems.append(f"{len(self._queue)} failures wait, more than {self.settings.queue_size}")
            return problems

    # --- learning ----------------------------------------------------------------------------------------------------

    def credit(self, uses: Iterable[Use]) -> None:
        """Count one help or hurt per question for each skill it was shown; skills evicted since are passed over.

        Raises:
            InvalidInput: a solve rate is outside [0, 1], or an id was never given to a skill; nothing is counted.
        """
        with self._revising() as revision:
            for use in uses:
                helped = _helped(use)
                ids = [id for id in dict.fromkeys(use.skill_ids) if self._is_active(id, revision.shelf)]
                if ids:
                    revision.count(use.question_id, ids, helped=helped, step=self._tell(use.step))

    def offer(self, failure: Failure) -> bool:
        """Queue a failure; False when nothing can be learned from it (solved, unusable, or not at the frontier).

        Raises:
            InvalidInput: the failure does not come from training, or lacks what a distiller needs.
        """
        require_trainable(failure)
        if not self._queue.wants(failure):
            return False
        with self._lock, self._store.transaction():
            self._queue.push(failure, step=self._tell(failure.step))
        return True

    def admit(self, skill: Skill, *, step: int = 0) -> Admission:
        """Ask for one skill, written by hand or elsewhere, to be let in; its id, step and usage are given anew."""
        with self._revising(step=step) as revision:
            return revision.admit(Candidate(skill, self._encoder), cause="by hand")

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Evict, distil, admit, and empty the queue, if it is time and enough failures wait; else return None.

        All of it happens, or none: a distiller that raises, a killed process or a full disk leaves skills and queue
        as they were.

        Raises:
            InvalidInput: the step is negative, or the distiller returned something other than candidates per failure.
            Exception: whatever the distiller raised, as it is.
        """
        if step < 0:
            raise InvalidInput(f"step must be at least 0, got {step!r}")
        with self._lock:
            self._tell(step)
            waiting = self._queue.waiting() if step % self.settings.distil_every == 0 else []
        if len(waiting) < self.settings.min_waiting:
            return None
        # The distiller may be slow, so it works outside the lock; what it wrote is judged inside, by the newest bank.
        taken = waiting[: self.settings.max_cards]  # the others go on waiting
        candidates = self._distil([item.failure for item in taken])
        with self._revising(step=step) as revision:
            revision.evict()
            for candidate in candidates:
                revision.admit(candidate, cause="distilled")
            self._queue.drain(taken, step=revision.step)
            return revision.summary(drained=len(taken))

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write a complete copy (skills, counters, queue, events) to one file, all or nothing."""
        with self._lock:
            self._store.save(path)

    def export(self, path: Path) -> None:
        """Write the active skills as JSON lines, to be read by people and by `records.read_skills`."""
        write_skills(self._shelf.skills, path)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        with self._lock:
            self._store.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _revising(self, *, step: int = 0) -> Iterator[Revision]:
        """Revise the bank in one transaction; what `retrieve` sees changes only once it is committed."""
        with self._lock:
            with self._store.transaction():
                version = self._store.version()
                known = version == self._version  # else another process has changed the file
                revision = Revision(
                    self._store,
                    self._shelf if known else _load_shelf(self._store, self._encoder),
                    cap=self.settings.cap,
                    max_similarity=self.max_similarity,
                    step=self._tell(step),
                )
                yield revision
            self._shelf, self._version = revision.shelf, version

    def _tell(self, step: int) -> int:
        """Return the newest step the bank has heard of: events never go back in time."""
        self._step = max(self._step, step)
        return self._step

    def _is_active(self, id: str, shelf: Shelf) -> bool:
        if id in shelf.ids:
            return True
        if not self._store.was_issued(id):
            raise InvalidInput(f"skill_ids must be ids of this bank, got {id!r}")
        return False

    def _distil(self, failures: list[Failure]) -> list[Candidate]:
        written = self._distiller.distill(failures)
        if len(written) != len(failures):
            raise InvalidInput(f"distill must return {len(failures)} lists, one per failure, got {len(written)}")
        pairs = [(failure, skill) for failure, skills in zip(failures, written, strict=True) for skill in skills]
        for _, skill in pairs:
            if not isinstance(skill, Skill):
                raise InvalidInput(f"distill must return lists of Skill, got {skill!r}")
        return [Candidate(skill, self._encoder, failure) for failure, skill in pairs]

    def _prime(self, seeds: list[Skill]) -> None:
        """Add the hand-written skills, once in the life of a file."""
        vector_KD = self._encoder.encode_passages([seed.text for seed in seeds])
        with self._revising() as revision:
            for seed, vector_D in zip(seeds, vector_KD, strict=True):
                revision.prime(seed, vector_D)
            self._store.set_about("primed", "yes" if seeds else "no")


def reembed(path: Path, encoder: Encoder) -> None:
    """Make the vectors of a bank anew, with another encoder; texts, ids, counters and queue stay.

    Nothing is dropped, even where two skills are nearer under the new encoder than its threshold allows.

    Raises:
        StoreCorrupt: the file is damaged or foreign; nothing was changed.
    """
    with closing(Store.open(path)) as store, store.transaction():
        skills = store.skills()
        for skill, vector_D in zip(skills, encoder.encode_passages([s.text for s in skills]), strict=True):
            store.set_vector(skill.id, vector_D)
        store.set_about("encoder", encoder.fingerprint)
        store.log("reembed", step=store.last_step(), cause="by hand", encoder=encoder.fingerprint)


def _open_store(path: Path, encoder: Encoder) -> Store:
    if not path.exists():
        return Store.create(path, encoder=encoder.fingerprint)
    store = Store.open(path)
    made_by = store.about("encoder")
    if made_by != encoder.fingerprint:
        store.close()
        raise EncoderMismatch(
            f"vectors in {str(path)!r} are of encoder {made_by}, not {encoder.fingerprint}; "
            "open it with that encoder, or call skill_memory.reembed"
        )
    return store


def _load_shelf(store: Store, encoder: Encoder) -> Shelf:
    """Read skills and vectors; a vector that is missing is made again, since it is only a cache."""
    skills, vectors = store.skills(), store.vectors()
    lost = [skill for skill in skills if skill.id not in vectors]
    vectors |= zip([skill.id for skill in lost], encoder.encode_passages([skill.text for skill in lost]), strict=True)
    if not skills:
        return Shelf((), encoder.encode_passages([]))
    return Shelf(tuple(skills), np.stack([vectors[skill.id] for skill in skills]))


def _helped(use: Use) -> bool:
    """The credit rule: most attempts at the question succeeded."""
    if not 0.0 <= use.solve_rate <= 1.0:
        raise InvalidInput(f"solve_rate of question {use.question_id!r} must lie in [0, 1], got {use.solve_rate!r}")
    return use.solve_rate > 0.5
