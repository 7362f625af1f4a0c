"""A file of an older version is brought up to date, all or nothing, and loses nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sesa_env.errors import StoreError
from skill_memory import MemorySettings, SkillBank, Usage, schema
from skill_memory.encode import HashingEncoder
from skill_memory.history import read_bank
from skill_memory.schema import SCHEMA
from skill_memory.store import Store

OLD = Path(__file__).with_name("bank_schema_1.sql")
"""A dump of a bank that version 1 wrote: 3 skills came, 2 went, 1 failure waits."""


def schema_of(path):
    with closing(sqlite3.connect(path)) as db:
        objects = db.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        return db.execute("PRAGMA user_version").fetchone()[0], sorted(objects)


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLD.read_text(encoding="utf-8"))
    assert schema_of(path)[0] == 1
    return path


def test_an_old_bank_opens_and_has_all_that_it_had(old):
    bank = SkillBank(MemorySettings(), old, encoder=HashingEncoder(dimension=64))
    (skill,) = bank
    assert (skill.id, skill.usage) == ("skill-000002", Usage(retrieved=3, helped=3, hurt=0))
    assert bank.waiting == 1
    assert [one.id for one in bank.bank_at(7)] == ["skill-000001", "skill-000002", "skill-000003"]
    assert bank.check() == []
    bank.close()


def test_a_migrated_file_is_built_like_a_new_one(old, tmp_path):
    Store.open(old).close()
    Store.create(tmp_path / "new.sqlite", encoder="e").close()

    def spaced(path):
        version, objects = schema_of(path)
        return version, [(kind, name, " ".join(sql.split())) for kind, name, sql in objects]

    assert spaced(old) == spaced(tmp_path / "new.sqlite")
    assert spaced(old)[0] == SCHEMA


def test_reading_an_old_bank_leaves_the_file_as_it_is(old):
    before = old.read_bytes()
    bank = read_bank(old)
    assert [skill.id for skill in bank.skills] == ["skill-000002"]
    assert len(read_bank(f"{old}@7").skills) == 3
    assert old.read_bytes() == before


def test_a_migration_that_fails_changes_nothing(old, monkeypatch):
    before = schema_of(old)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: ("CREATE TABLE extra (x)", "nonsense")})
    with pytest.raises(StoreError, match="could not be brought up to date"):
        Store.open(old)
    assert schema_of(old) == before


def test_every_version_since_the_first_has_a_way_to_this_one():
    assert sorted(schema.MIGRATIONS) == list(range(1, SCHEMA))


def test_a_read_bank_is_that_of_one_moment_while_another_process_writes(open_bank, make_skill, tmp_path):
    bank = open_bank()
    bank.admit(make_skill(1), step=1)
    assert bank._store.path.with_name("bank.sqlite-wal").stat().st_size > 0
    with closing(Store.read(tmp_path / "bank.sqlite")) as copy:
        bank.admit(make_skill(2), step=2)
        assert len(copy.skills()) == 1
    assert len(read_bank(tmp_path / "bank.sqlite").skills) == 2
