"""Skills in one file: finding them, counting their use, copying them, going back in time.

What all memories with a file share; what they learn, if anything, is up to each.

    class MyMemory(StoredMemory):
        def offer(self, failure): ...
        def consolidate(self, *, step): ...

Credit rule: each question counts once for each skill it was shown; as help if most of its attempts succeeded
(solve rate above 1/2), else as hurt.  SESA does not say how the attempts of a question become one count.

What `retrieve` returns changes by a revision alone, so within a training step all prompts of a question are the same.
Counters have no part in ranking.  One process writes to a file at a time; threads may share a memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sesa_env.errors import InvalidInput
from sesa_env.registry import ENCODERS
from skill_memory.base import Use, check_questions
from skill_memory.encode import Encoder
from skill_memory.executed import Exam
from skill_memory.history import check_history, replay
from skill_memory.priming import starting_skills
from skill_memory.records import write_skills
from skill_memory.revision import Revision
from skill_memory.settings import MemorySettings
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill
from skill_memory.vectors import load_shelf, open_store


class StoredMemory:
    """Skills in a file; see the module's docstring.

    Args:
        settings: what to start from, and what to show.
        path: the file; made, and primed with what the settings say, when there is none.
        encoder: in place of the one the settings name.

    Raises:
        StoreCorrupt: the file is damaged or foreign; nothing was changed.
        EncoderMismatch: its vectors are another encoder's (see `reembed`); nothing was changed.
        InvalidInput: what a new file would start from cannot be read or is unfit; nothing was made.
        UnknownName: no such encoder.
    """

    def __init__(self, settings: MemorySettings, path: Path, *, encoder: Encoder | None = None) -> None:
        self.settings = settings
        self.cap = settings.cap
        self._encoder: Encoder = encoder or ENCODERS.make(settings.encoder)
        given = settings.max_similarity
        self.max_similarity = self._encoder.max_similarity if given is None else given
        self._lock = threading.RLock()
        start = None if path.exists() else self._start()  # unfit skills are found before there is a file
        self._store = open_store(path, self._encoder)
        self._step = self._store.last_step()
        self._version = self._store.version()
        self._shelf = load_shelf(self._store, self._encoder)
        if not self._store.about("primed"):
            self._prime(self._start() if start is None else start)

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
    def snapshot_id(self) -> str:
        """Hash of all that `retrieve` depends on: texts, sources, encoder and settings; counters are no part of it."""
        shown = (self.settings.k, self.settings.floor, self.settings.triggered)
        key = (self._encoder.fingerprint, *shown, self._shelf.texts_hash)
        return hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    # --- reading -----------------------------------------------------------------------------------------------------

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return up to k skills for each question, nearest first; by the settings, only those that are about it.

        Args:
            questions: the texts of Q questions.
            exclude_source: their Q ids, so that no question is shown a skill that was distilled from it; or nothing.

        Raises:
            InvalidInput: a bare string where a sequence belongs, or another number of ids than of questions.
        """
        check_questions(questions, exclude_source)
        vector_QD = self._encoder.encode_queries(questions)
        return self._shelf.best(
            vector_QD,
            k=self.settings.k,
            floor=self.settings.floor,
            exclude_source=exclude_source,
            questions=questions if self.settings.triggered else (),
        )

    def bank_at(self, step: int) -> list[Skill]:
        """Return the skills, with their counters, as they were at the end of a step; rebuilt from the events."""
        with self._lock:
            return list(replay(self._store.events(until=step)).values())

    def check(self) -> list[str]:
        """Return every inconsistency in the file, or between the file and this object; an empty list is good news."""
        with self._lock:
            problems = self._store.problems() + check_history(self._store)
            stored = self._store.skills()
            if self._store.version() == self._version and tuple(stored) != self._shelf.skills:
                problems.append("skills in memory differ from those in the file")
            if len(stored) > self.cap:
                problems.append(f"{len(stored)} skills are more than the cap of {self.cap}")
            return problems

    # --- counting ----------------------------------------------------------------------------------------------------

    def credit(self, uses: Iterable[Use]) -> None:
        """Count one help or hurt per question for each skill it was shown; skills evicted since are passed over.

        Raises:
            InvalidInput: a solve rate is outside [0, 1], or an id was never given to a skill; nothing is counted.
        """
        with self._revising() as revision:
            for use in uses:
                self._count(use, revision)

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

    def _start(self) -> list[Skill]:
        """Return what a new file begins with."""
        return starting_skills(self.settings)

    def _prime(self, skills: Sequence[Skill]) -> None:
        """Put in what a new file begins with, once in its life."""
        vector_KD = self._encoder.encode_passages([skill.text for skill in skills])
        with self._revising() as revision:
            for skill, vector_D in zip(skills, vector_KD, strict=True):
                revision.prime(skill, vector_D)
            self._store.set_about("primed", "yes" if skills else "no")

    def _count(self, use: Use, revision: Revision) -> None:
        """Count one use."""
        helped = _helped(use)
        ids = [id for id in dict.fromkeys(use.skill_ids) if self._is_active(id, revision.shelf)]
        if ids:
            revision.count(use.question_id, ids, helped=helped, step=self._tell(use.step))

    @contextmanager
    def _revising(self, *, step: int = 0, exam: Exam | None = None) -> Iterator[Revision]:
        """Revise the skills in one transaction; what `retrieve` sees changes only once it is committed."""
        with self._lock:
            with self._store.transaction():
                version = self._store.version()
                known = version == self._version  # else another process has changed the file
                revision = Revision(
                    self._store,
                    self._shelf if known else load_shelf(self._store, self._encoder),
                    cap=self.cap,
                    max_similarity=self.max_similarity,
                    step=self._tell(step),
                    exam=exam,
                )
                yield revision
            self._shelf, self._version = revision.shelf, version

    def _tell(self, step: int) -> int:
        """Return the newest step the memory has heard of: events never go back in time."""
        self._step = max(self._step, step)
        return self._step

    def _is_active(self, id: str, shelf: Shelf) -> bool:
        if id in shelf.ids:
            return True
        if not self._store.was_issued(id):
            raise InvalidInput(f"skill_ids must be ids of this bank, got {id!r}")
        return False


def _helped(use: Use) -> bool:
    """The credit rule: most attempts at the question succeeded."""
    if not 0.0 <= use.solve_rate <= 1.0:
        raise InvalidInput(f"solve_rate of question {use.question_id!r} must lie in [0, 1], got {use.solve_rate!r}")
    return use.solve_rate > 0.5
