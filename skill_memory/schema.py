"""The tables of a skill store, their versions, and whether a file is a sound one.

    examine(path)                  # raises unless it is a store of this version or an older one
    migrate(connection, path)      # brings the tables of an older version up to date

What is kept in the tables is the business of `skill_memory.store`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sesa_env.errors import StoreCorrupt, StoreError

SCHEMA = 2
"""Version of the tables; an older file is brought up to date when it is opened, a newer one is refused."""
APPLICATION = 0x53455341  # "SESA", in the header of the file

TABLES = {
    "about": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    # AUTOINCREMENT: a number is never given twice, even after the highest one was deleted.
    "skills": """number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL UNIQUE,
        record TEXT NOT NULL, retrieved INTEGER NOT NULL DEFAULT 0, helped INTEGER NOT NULL DEFAULT 0,
        hurt INTEGER NOT NULL DEFAULT 0""",
    "vectors": "id TEXT PRIMARY KEY REFERENCES skills(id) ON DELETE CASCADE, vector BLOB NOT NULL",
    "tombstones": "text TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL",
    "failures": """number INTEGER PRIMARY KEY AUTOINCREMENT, question_id TEXT NOT NULL, step INTEGER NOT NULL,
        times INTEGER NOT NULL DEFAULT 1, record TEXT NOT NULL, UNIQUE (question_id, step)""",
    "events": """number INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, kind TEXT NOT NULL,
        cause TEXT NOT NULL, skill_id TEXT NOT NULL, data TEXT NOT NULL""",
}


INDEXES = (
    "CREATE INDEX events_by_skill ON events (skill_id, kind)",
    "CREATE INDEX events_by_step ON events (step)",
)
MIGRATIONS = {1: (INDEXES[1],)}
"""What leads from each version of the tables to the next."""


def make_tables(db: sqlite3.Connection, *, encoder: str) -> None:
    """Make an empty store of a new file, for vectors of the encoder with this fingerprint."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    for name, columns in TABLES.items():
        db.execute(f"CREATE TABLE {name} ({columns})")
    for index in INDEXES:
        db.execute(index)
    db.execute("INSERT INTO about VALUES ('encoder', ?)", (encoder,))


def examine(path: Path) -> None:
    """Refuse a file that is not a sound skill store of this version or an older one, without changing a byte of it.

    Raises:
        StoreCorrupt: the file is empty, damaged, or no skill store.
        StoreError: the file is missing, cannot be read, or has a newer schema version.
    """
    if not path.is_file():
        raise StoreError(f"no skill store at {str(path)!r}")
    if path.stat().st_size == 0:
        raise StoreCorrupt(f"skill store {str(path)!r} is empty (0 bytes)")
    try:
        with closing(connect_to_read(path)) as db:
            _require_sound(db, path)
    except sqlite3.OperationalError as error:
        raise StoreError(f"skill store {str(path)!r} cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(f"skill store {str(path)!r} is damaged: {error}") from error


def _require_sound(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise StoreCorrupt(f"{str(path)!r} is a SQLite file but not a skill store")
    version = _version(db)
    if not 1 <= version <= SCHEMA:
        raise StoreError(f"skill store {str(path)!r} has schema {version!r}; this version reads {SCHEMA} and older")
    found = db.execute("PRAGMA integrity_check").fetchone()[0]
    if found != "ok":
        raise StoreCorrupt(f"skill store {str(path)!r} is damaged: {found}")
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if missing := sorted(set(TABLES) - tables):
        raise StoreCorrupt(f"skill store {str(path)!r} lacks the tables {', '.join(missing)}")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a file that is only read."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the tables of an older version up to date, step by step, in one transaction.

    Raises:
        StoreError: the file cannot be written; the connection is closed.
    """
    if _version(db) == SCHEMA:
        return
    try:
        db.execute("BEGIN IMMEDIATE")
        for version in range(_version(db), SCHEMA):  # asked again: another process may have been faster
            for statement in MIGRATIONS[version]:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA}")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        db.close()
        raise StoreError(f"skill store {str(path)!r} could not be brought up to date: {error}") from error
