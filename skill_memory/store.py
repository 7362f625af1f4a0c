"""One SQLite file holds all that a skill bank knows: skills, counters, waiting failures, and every change ever made.

It is the only source of truth.  Vectors are in it too, but only as a cache that says which encoder made it.  Each
change is also an event with its step and cause, so that the bank of any step can be rebuilt.

    store = Store.open(path)
    with store.transaction():
        skill = store.insert(skill, vector_D, step=10, cause="distilled")

A file that is damaged, foreign or newer is refused and not touched; an older one is brought up to date.  A store does
not lock: the bank does.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sesa_env.errors import InvalidInput, StoreError
from skill_memory.base import Failure
from skill_memory.encode import Vectors
from skill_memory.records import failure_from_json, failure_to_json, replacing, skill_from_dict, skill_to_dict
from skill_memory.schema import connect_to_read, examine, make_tables, migrate
from skill_memory.skill import Skill, Usage


class Event(NamedTuple):
    """One change: at which training step, what kind, why, to which skill ("" when to none), and its details."""

    number: int
    step: int
    kind: str
    cause: str
    skill_id: str
    data: dict[str, Any]


class WaitingRow(NamedTuple):
    """One failure in the queue and how often its question failed in that step."""

    number: int
    times: int
    failure: Failure


def text_key(skill: Skill) -> str:
    """Return the text by which two skills are the same: case and spacing do not matter."""
    return " ".join(skill.text.casefold().split())


class Store:
    """An open skill file.  Make it with `create` or `open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.closed = False
        self._db = connection

    @classmethod
    def create(cls, path: Path, *, encoder: str) -> Store:
        """Make an empty store for vectors of the encoder with this fingerprint; folders above it are made.

        Raises:
            StoreError: there is already a file, the disk is full, or the folder cannot be written to.
        """
        if path.exists():
            raise StoreError(f"path of a new store must be free, got {str(path)!r}")
        with replacing(path) as draft:
            with closing(sqlite3.connect(draft, isolation_level=None)) as db:
                make_tables(db, encoder=encoder)
            _remove_sidecars(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open an existing store; one of an older version is brought up to date, all or nothing.

        Raises:
            StoreCorrupt: the file is empty, damaged, or no skill store; nothing was changed.
            StoreError: the file cannot be opened, or has a newer schema version.
        """
        examine(path)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
        migrate(db, path)
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA synchronous = NORMAL")  # in WAL mode a killed process loses nothing that was committed
        return cls(path, db)

    @classmethod
    def read(cls, path: Path) -> Store:
        """Open a copy of a store in memory: the file is only read, even while another process writes to it.

        Raises:
            StoreCorrupt, StoreError: as `open`.
        """
        examine(path)
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with closing(connect_to_read(path)) as file:
            file.backup(db)
        migrate(db, path)
        return cls(path, db)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.closed = True
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside happen together, or none of them.

        Raises:
            StoreError: the file cannot be written (another process holds it, the disk is full, the store is closed).
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(f"skill store {str(self.path)!r} could not be changed: {error}") from error

    def version(self) -> int:
        """Return a number that changes whenever another connection changes the file."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    # --- about -------------------------------------------------------------------------------------------------------

    def about(self, key: str) -> str:
        """Return a fact about the store ("encoder", "primed"), or the empty string."""
        row = self._db.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def set_about(self, key: str, value: str) -> None:
        """State a fact about the store."""
        self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))

    # --- skills ------------------------------------------------------------------------------------------------------

    def skills(self) -> list[Skill]:
        """Return the active skills with their counters, in the order in which they came."""
        rows = self._db.execute("SELECT record, retrieved, helped, hurt FROM skills ORDER BY number")
        return [replace(_skill(record), usage=Usage(*counts)) for record, *counts in rows]

    def vectors(self) -> dict[str, Vectors]:
        """Return the (D,) vector of each skill id, as far as they are there."""
        rows = self._db.execute("SELECT id, vector FROM vectors")
        return {id: np.frombuffer(blob, dtype=np.float32) for id, blob in rows}

    def insert(self, skill: Skill, vector_D: Vectors, *, step: int, cause: str) -> Skill:
        """Add a skill and return it under its id: its own if it has one, else the next number, never used before."""
        last = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'skills'").fetchone()
        number = (last[0] if last else 0) + 1
        while not skill.id and self.was_issued(f"skill-{number:06d}"):  # brought along by a skill from elsewhere
            number += 1
        skill = replace(skill, id=skill.id or f"skill-{number:06d}", usage=Usage())
        self._db.execute(
            "INSERT INTO skills (number, id, text, record) VALUES (?, ?, ?, ?)",
            (number, skill.id, text_key(skill), _record(skill)),
        )
        self.set_vector(skill.id, vector_D)
        self.log("admit", step=step, cause=cause, skill_id=skill.id, skill=skill_to_dict(skill))
        return skill

    def set_vector(self, id: str, vector_D: Vectors) -> None:
        """Keep the vector of a skill."""
        self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (id, vector_D.astype(np.float32).tobytes()))

    def evict(self, skill: Skill, *, step: int, cause: str) -> None:
        """Remove a skill and leave a tombstone, so that its text does not come back."""
        self._db.execute("DELETE FROM skills WHERE id = ?", (skill.id,))
        self._db.execute("INSERT INTO tombstones VALUES (?, ?, ?)", (text_key(skill), skill.id, _record(skill)))
        usage = {"retrieved": skill.usage.retrieved, "helped": skill.usage.helped, "hurt": skill.usage.hurt}
        self.log("evict", step=step, cause=cause, skill_id=skill.id, usage=usage)

    def count_use(self, ids: Sequence[str], *, helped: bool, step: int, question_id: str) -> None:
        """Count one question's use of skills."""
        column = "helped" if helped else "hurt"
        self._db.executemany(
            f"UPDATE skills SET retrieved = retrieved + 1, {column} = {column} + 1 WHERE id = ?", [(id,) for id in ids]
        )
        self.log("credit", step=step, cause=column, question_id=question_id, skill_ids=list(ids))

    def tombstones(self) -> dict[str, Skill]:
        """Return the evicted skills by their text key."""
        rows = self._db.execute("SELECT text, record FROM tombstones")
        return {text: _skill(record) for text, record in rows}

    def was_issued(self, id: str) -> bool:
        """Whether a skill of this id has ever been in the store."""
        query = "SELECT 1 FROM events WHERE skill_id = ? AND kind = 'admit'"
        return self._db.execute(query, (id,)).fetchone() is not None

    # --- failures ----------------------------------------------------------------------------------------------------

    def push_failure(self, failure: Failure) -> bool:
        """Put a failure at the end of the queue; a further one of the same question and step is counted (False)."""
        key = (failure.question_id, failure.step)
        known = "UPDATE failures SET times = times + 1 WHERE question_id = ? AND step = ?"
        if self._db.execute(known, key).rowcount:
            return False
        new = "INSERT INTO failures (question_id, step, record) VALUES (?, ?, ?)"
        self._db.execute(new, (*key, failure_to_json(failure)))
        return True

    def failures(self) -> list[WaitingRow]:
        """Return the waiting failures, oldest first."""
        rows = self._db.execute("SELECT number, times, record FROM failures ORDER BY number")
        return [WaitingRow(number, times, failure_from_json(record)) for number, times, record in rows]

    def count_failures(self) -> int:
        """Return how many failures are waiting."""
        return int(self._db.execute("SELECT count(*) FROM failures").fetchone()[0])

    def remove_failures(self, numbers: Sequence[int]) -> None:
        """Take failures out of the queue."""
        self._db.executemany("DELETE FROM failures WHERE number = ?", [(number,) for number in numbers])

    def drop_oldest_failures(self, *, keep: int, spared: Sequence[int] = ()) -> int:
        """Keep the newest failures only, and those spared, and return how many were dropped."""
        others = "number NOT IN (SELECT value FROM json_each(:spared))"
        newest = f"SELECT number FROM failures WHERE {others} ORDER BY number DESC LIMIT :room"
        values = {"spared": json.dumps(list(spared)), "room": max(0, keep - len(spared))}
        return self._db.execute(f"DELETE FROM failures WHERE {others} AND number NOT IN ({newest})", values).rowcount

    # --- events ------------------------------------------------------------------------------------------------------

    def log(self, kind: str, *, step: int, cause: str, skill_id: str = "", **data: Any) -> None:
        """Write down one change; called within the transaction that makes it."""
        self._db.execute(
            "INSERT INTO events (step, kind, cause, skill_id, data) VALUES (?, ?, ?, ?, ?)",
            (step, kind, cause, skill_id, json.dumps(data, ensure_ascii=False, sort_keys=True)),
        )

    def events(self, *, until: int | None = None) -> Iterator[Event]:
        """Yield every event, oldest first; with `until`, those up to the end of that step."""
        columns = "SELECT number, step, kind, cause, skill_id, data FROM events"
        rows = self._db.execute(f"{columns} WHERE :until IS NULL OR step <= :until ORDER BY number", {"until": until})
        for number, step, kind, cause, skill_id, data in rows:
            yield Event(number, step, kind, cause, skill_id, json.loads(data))

    def last_step(self) -> int:
        """Return the step of the last event, 0 when there is none."""
        return int(self._db.execute("SELECT coalesce(max(step), 0) FROM events").fetchone()[0])

    # --- whole file --------------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return what SQLite itself finds wrong with the file."""
        rows = (
            self._db.execute("PRAGMA integrity_check").fetchall()
            + self._db.execute("PRAGMA foreign_key_check").fetchall()
        )
        return [f"file: {row[0]}" for row in rows if row[0] != "ok"]

    def save(self, path: Path) -> None:
        """Write a complete copy: a killed process leaves the old file, or none, never half a file.

        Raises:
            InvalidInput: `path` is the store itself.
            StoreError: a store at `path` is open somewhere, or was left by a killed process; the disk is full, or the
                folder cannot be written to.
        """
        if path.resolve() == self.path.resolve():
            raise InvalidInput(f"path of a copy must not be the store itself, got {str(path)!r}")
        if _sidecar(path, "-wal").exists():
            raise StoreError(f"store at {str(path)!r} is in use or was not closed; open and close it first")
        with replacing(path) as draft, closing(sqlite3.connect(draft)) as copy:
            self._db.backup(copy)


def restore(saved: Path, path: Path) -> None:
    """Put a saved copy in the place of a memory's file, which must not be open.

    A plain copy would not do: what a killed process left in the write-ahead log beside the old file would be played
    onto the new one.  An empty copy is that of a memory that keeps nothing: there is no file afterwards.

    Raises:
        StoreError: there is no file at `saved`, the disk is full, or the folder cannot be written to.
    """
    if not saved.is_file():
        raise StoreError(f"no saved memory at {str(saved)!r}")
    if saved.stat().st_size == 0:
        path.unlink(missing_ok=True)
        _remove_sidecars(path)
        return
    with replacing(path) as draft:
        shutil.copyfile(saved, draft)
        _remove_sidecars(path)


def _sidecar(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _remove_sidecars(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        _sidecar(path, suffix).unlink(missing_ok=True)


def _record(skill: Skill) -> str:
    record = skill_to_dict(skill)
    del record["usage"]  # counters have columns of their own
    return json.dumps(record, ensure_ascii=False, sort_keys=True)


def _skill(record: str) -> Skill:
    return skill_from_dict(json.loads(record))
