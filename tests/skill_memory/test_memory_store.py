"""The file of a bank: whole or refused, never half, never silently empty."""

import json
import shutil
import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest

from sesa_env.errors import InvalidInput, StoreCorrupt, StoreError
from skill_memory import MemorySettings, NoMemory, SkillBank, Usage, Use, restore
from skill_memory.history import replay
from skill_memory.records import (
    failure_from_json,
    failure_to_json,
    read_skills,
    skill_from_dict,
    skill_to_dict,
    write_skills,
)
from skill_memory.schema import SCHEMA, examine
from skill_memory.store import Store

VECTOR = np.array([1.0, 0.0], dtype=np.float32)


@pytest.fixture
def store(tmp_path):
    store = Store.create(tmp_path / "store.sqlite", encoder="e")
    yield store
    store.close()


def insert(store, skill, *, step=1):
    with store.transaction():
        return store.insert(skill, VECTOR, step=step, cause="test")


def everything_in(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    "content", [b"", b'{"skills":[', b"[]", b"null", b"SQLite format 3\x00", b"SQLite format 3\x00" + bytes(5000)]
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "bank.sqlite"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"bank\.sqlite"):
        SkillBank(MemorySettings(), path)
    assert everything_in(tmp_path) == {"bank.sqlite": content}


def test_a_store_with_a_damaged_page_is_refused_and_left_alone(tmp_path, open_bank):
    bank = open_bank(priming=True)
    bank.close()
    path = tmp_path / "bank.sqlite"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:4096] + b"\xff" * 8192 + whole[12288:]):
        path.write_bytes(damaged)
        with pytest.raises(StoreCorrupt):
            SkillBank(MemorySettings(), path)
        assert path.read_bytes() == damaged


def test_a_file_that_reads_but_contradicts_itself_is_refused_and_left_alone(tmp_path, open_bank):
    open_bank(priming=True).close()
    path = tmp_path / "bank.sqlite"
    whole = path.read_bytes()
    assert whole.count(b"seed-date") > 1
    torn = whole.replace(b"seed-date", b"seed-dare", 1)  # in a table or in its index, not in both
    path.write_bytes(torn)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        SkillBank(MemorySettings(), path)
    assert path.read_bytes() == torn


def test_an_empty_file_is_called_empty(tmp_path):
    path = tmp_path / "bank.sqlite"
    path.touch()
    with pytest.raises(StoreCorrupt, match="is empty"):
        examine(path)


def test_another_database_is_not_taken_for_a_store(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="not a skill store"):
        examine(path)
    assert path.read_bytes() == before


def test_an_unknown_schema_is_refused(tmp_path, store):
    store.close()
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}; this version reads {SCHEMA}"):
        Store.open(store.path)
    assert store.path.read_bytes() == before


def test_a_missing_table_is_damage(store):
    store.close()
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("DROP TABLE tombstones")
    with pytest.raises(StoreCorrupt, match="lacks the tables tombstones"):
        Store.open(store.path)


def test_create_never_overwrites_and_open_never_creates(tmp_path, store):
    with pytest.raises(StoreError, match="must be free"):
        Store.create(store.path, encoder="e")
    with pytest.raises(StoreError, match="no skill store"):
        Store.open(tmp_path / "absent.sqlite")
    assert not (tmp_path / "absent.sqlite").exists()


def test_a_transaction_that_raises_changes_nothing(store, make_skill):
    def insert_and_fail():
        with store.transaction():
            store.insert(make_skill(1), VECTOR, step=1, cause="test")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    assert store.skills() == []
    assert list(store.events()) == []


def test_a_store_that_another_process_holds_raises_a_store_error(store, make_skill):
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store._db.execute("PRAGMA busy_timeout = 10")
        with pytest.raises(StoreError, match="locked"):
            insert(store, make_skill(1))


def test_ids_are_never_used_twice(store, make_skill):
    issued = [insert(store, make_skill(seed)).id for seed in range(3)]
    with store.transaction():
        store.evict(store.skills()[-1], step=2, cause="test")
    issued += [insert(store, make_skill(seed)).id for seed in range(3, 6)]
    copy = store.path.with_name("copy.sqlite")
    store.save(copy)
    with closing(Store.open(copy)) as again:
        issued.append(insert(again, make_skill(7)).id)
    assert len(set(issued)) == 7
    assert issued[-1] == "skill-000007"


def test_a_vector_stays_with_its_skill_when_a_neighbour_goes(store, make_skill):
    skills = [insert(store, make_skill(seed)) for seed in range(5)]
    with store.transaction():
        for place, skill in enumerate(skills):
            store.set_vector(skill.id, np.full(2, place, dtype=np.float32))
        store.evict(skills[1], step=2, cause="test")
    vectors = store.vectors()
    assert {id: vector_D[0] for id, vector_D in vectors.items()} == {skills[n].id: n for n in (0, 2, 3, 4)}


def test_a_copy_is_whole_and_the_old_one_stays_until_the_new_one_is(tmp_path, store, make_skill, monkeypatch):
    copy = tmp_path / "copy.sqlite"
    insert(store, make_skill(1))
    store.save(copy)
    before = copy.read_bytes()
    insert(store, make_skill(2))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("skill_memory.records.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            store.save(copy)
    assert copy.read_bytes() == before
    store.save(copy)
    with closing(Store.open(copy)) as again:
        assert again.skills() == store.skills()
        assert list(again.events()) == list(store.events())
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.sqlite"]


def test_a_copy_does_not_replace_a_store_in_use(tmp_path, store, make_skill):
    with pytest.raises(InvalidInput, match="must not be the store itself"):
        store.save(store.path)
    with closing(Store.create(tmp_path / "other.sqlite", encoder="e")) as other:
        insert(other, make_skill(1))
        with pytest.raises(StoreError, match="in use"):
            store.save(other.path)
        assert len(other.skills()) == 1


def test_restore_leaves_no_trace_of_what_a_killed_process_wrote(tmp_path, make_skill):
    store = Store.create(tmp_path / "run.sqlite", encoder="e")
    insert(store, make_skill(1))
    store.save(tmp_path / "saved.sqlite")
    insert(store, make_skill(2))
    # What a killed process leaves: the file with its write-ahead log beside it.
    (tmp_path / "crashed").mkdir()
    for path in tmp_path.glob("run.sqlite*"):
        shutil.copy(path, tmp_path / "crashed" / path.name)
    store.close()
    run = tmp_path / "crashed" / "run.sqlite"
    assert run.with_name("run.sqlite-wal").stat().st_size > 0
    restore(tmp_path / "saved.sqlite", run)
    with closing(Store.open(run)) as again:
        assert len(again.skills()) == 1
        assert again.problems() == []
    with pytest.raises(StoreError, match="no saved memory"):
        restore(tmp_path / "absent", run)
    with closing(Store.open(run)) as again:
        assert len(again.skills()) == 1


def test_the_empty_copy_of_a_memory_that_keeps_nothing_leaves_no_file(tmp_path):
    run = tmp_path / "bank.sqlite"
    for old in (run, tmp_path / "bank.sqlite-wal"):
        old.write_bytes(b"old")
    NoMemory().save(tmp_path / "saved.sqlite")
    restore(tmp_path / "saved.sqlite", run)
    assert [path.name for path in tmp_path.iterdir()] == ["saved.sqlite"]


def test_failures_come_back_as_they_went_in(store, make_failure):
    failure = make_failure(question="谁?", answers=("Ψ", "b"), skill_ids=("s1",), step=4, solve_rate=0.2)
    assert failure_from_json(failure_to_json(failure)) == failure
    with store.transaction():
        store.push_failure(failure)
    assert [row.failure for row in store.failures()] == [failure]


@pytest.mark.parametrize("line", ["{}", "[]", "null", "{", '{"trajectory": {"turns": 3}}'])
def test_a_malformed_failure_is_damage(line):
    with pytest.raises(StoreCorrupt, match="malformed record of a failure"):
        failure_from_json(line)


def test_skills_survive_json_lines(tmp_path, make_skill):
    skills = [make_skill(seed, id=f"s{seed}", usage=Usage(3, 1, 2), source="q", created_step=7) for seed in range(3)]
    write_skills(skills, tmp_path / "skills.jsonl")
    assert read_skills(tmp_path / "skills.jsonl") == skills
    assert [path.name for path in tmp_path.iterdir()] == ["skills.jsonl"]


def test_a_record_without_counters_was_never_used(make_skill):
    skill = make_skill(1, id="s1")
    record = json.loads(json.dumps(skill_to_dict(skill)))
    del record["usage"]
    assert skill_from_dict(record) == skill
    assert skill_from_dict(record).usage == Usage(0, 0, 0)


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"triggers": "who"}, {"description": None}, {"usage": {"liked": 3}}, {"queries": [1]}]
)
def test_a_malformed_line_is_refused_by_number(tmp_path, make_skill, change):
    good = json.loads(json.dumps(skill_to_dict(make_skill(1, id="s1"))))
    lines = [json.dumps(good), json.dumps(good | change)]
    (tmp_path / "skills.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(StoreCorrupt, match=r"skills\.jsonl:2: "):
        read_skills(tmp_path / "skills.jsonl")


def test_serialisation_that_fails_leaves_the_old_export(tmp_path, make_skill):
    path = tmp_path / "skills.jsonl"
    write_skills([make_skill(1, id="s1")], path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_skills([make_skill(2, id="s2"), make_skill(3, id=object())], path)
    assert path.read_bytes() == before


def test_any_step_can_be_rebuilt(open_bank, make_skill):
    bank = open_bank(cap=2)
    states = {}
    for step in range(1, 6):
        admission = bank.admit(make_skill(step), step=step)
        bank.credit([Use(f"q{step}", (admission.skill_id,), 0.9 if step == 1 else 0.1, step=step)])
        states[step] = list(bank)
    assert len(states[5]) == 2
    for step, skills in states.items():
        assert bank.bank_at(step) == skills
    assert bank.bank_at(0) == []
    assert bank.bank_at(99) == states[5]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE skills SET helped = helped + 1", "events lead to"),
        ("DELETE FROM events WHERE kind = 'credit'", "events lead to"),
        ("DELETE FROM vectors", "has no vector"),
        ("UPDATE vectors SET vector = zeroblob(8192)", "squared length"),
        ("INSERT INTO tombstones SELECT text, id, record FROM skills", "was evicted"),
        ("UPDATE skills SET retrieved = 9", "do not add up"),
        ("UPDATE events SET step = 99 WHERE number = 1", "backwards"),
        ("DELETE FROM skills", "hand-written skill seed-alias is gone"),
        ("DELETE FROM events WHERE kind = 'admit'", "not active then"),
    ],
)
def test_check_finds_what_does_not_fit(open_bank, tmp_path, damage, problem):
    bank = open_bank(priming=True)
    bank.credit([Use("q1", ("seed-date",), 1.0)])
    assert bank.check() == []
    bank.close()
    with closing(sqlite3.connect(tmp_path / "bank.sqlite", isolation_level=None)) as db:
        db.execute(damage)
    with closing(Store.open(tmp_path / "bank.sqlite")):
        bank = SkillBank(MemorySettings(), tmp_path / "bank.sqlite")
    assert any(problem in found for found in bank.check()), bank.check()
    bank.close()


def test_threads_share_one_store_through_its_bank(open_bank, make_skill):
    bank = open_bank()
    threads = [threading.Thread(target=bank.admit, args=(make_skill(seed),)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bank) == len({skill.id for skill in bank}) == 8


def test_replay_of_nothing_is_an_empty_bank():
    assert replay([]) == {}
