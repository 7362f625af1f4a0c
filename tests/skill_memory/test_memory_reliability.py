"""A skill bank loses nothing that was acknowledged: to kills, to readers, to a full disk, to a read-only folder."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import subprocess
import sys
from contextlib import closing

import pytest

from benchmarks.perf.reliability import kill_often, read_while_writing, use_bad_disks, use_large_bank
from benchmarks.perf.workload import SETTINGS, learn, losses, make_failures
from sesa_env.errors import StoreError
from skill_memory import SkillBank
from skill_memory.records import read_skills, replacing, write_skills
from skill_memory.store import Store

unix = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="kills processes as Unix does"
)


def check_kills(done, *, kills):
    assert done.problems == []
    assert done.kills == sum(done.during.values()) == kills
    assert done.consolidations > 0
    assert done.skills > 0


@unix
def test_ten_kills_lose_nothing_that_was_acknowledged(tmp_path):
    check_kills(kill_often(tmp_path, kills=10), kills=10)


@unix
@pytest.mark.slow
def test_two_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path):
    done = kill_often(tmp_path, kills=200)
    check_kills(done, kills=200)
    assert done.during["consolidating"] > 20


@pytest.fixture
def learned(tmp_path):
    """A bank's file after a few steps, and what was acknowledged."""
    path, acks = tmp_path / "bank.sqlite", []
    with closing(SkillBank(SETTINGS, path)) as bank:
        list(itertools.islice(learn(bank, seed=0, step=1, tell=acks.append), 5))
        if not bank.waiting:
            bank.offer(next(make_failures(random.Random(9), first=9_000_000)))
    assert losses(path, acks) == []
    return path, acks


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM skills WHERE number = (SELECT max(number) FROM skills)", "skills differ"),
        ("DELETE FROM failures WHERE number = (SELECT max(number) FROM failures)", "were taken out"),
        ("DELETE FROM vectors WHERE id = (SELECT max(id) FROM vectors)", "has no vector"),
        ("DELETE FROM events WHERE kind = 'consolidate' AND step = 2", "the consolidation of step 2 was acknowledged"),
        ("DELETE FROM events WHERE kind = 'admit' AND step = 1", "was acknowledged and is lost"),
        ("DELETE FROM events WHERE kind = 'offer'", "failure q0 was acknowledged"),
        ("UPDATE skills SET record = replace(record, 'search', 'serch')", "skills differ"),
    ],
)
def test_the_check_for_losses_finds_them(learned, damage, found):
    path, acks = learned
    with closing(Store.open(path)) as store, store.transaction():
        store._db.execute("PRAGMA defer_foreign_keys = ON")
        assert store._db.execute(damage).rowcount > 0
    assert any(found in problem for problem in losses(path, acks))


@unix
@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
def test_four_readers_never_see_half_of_what_a_writer_does(tmp_path, threads):
    done = read_while_writing(tmp_path, seconds=2.0, readers=4, threads=threads)
    assert done.problems == []
    assert done.reads > 4
    assert done.snapshots > 1
    assert done.commits > 1


def test_a_full_disk_and_a_read_only_one_are_told_as_one_clear_error_and_lose_nothing(tmp_path):
    done = use_bad_disks(tmp_path)
    if done is None:
        pytest.skip("no file system may be mounted here")
    assert done.problems == []
    assert "full" in done.full["offer or consolidate"]
    assert all("could not be" in message for message in done.full.values())
    assert done.read_only.pop("open and retrieve") == "done"
    assert all("could not be" in message and "read" in message.lower() for message in done.read_only.values())


# Learns until a write is cut off by the limit that the kernel sets to a file's size.
LIMITED = """
import json, random, resource, signal, sys
from pathlib import Path
from benchmarks.perf.workload import SETTINGS, learn
from sesa_env.errors import StoreError
from skill_memory import SkillBank

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
acks = []
bank = SkillBank(SETTINGS, Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, resource.RLIM_INFINITY))
try:
    for _ in learn(bank, seed=0, step=1, tell=acks.append):
        pass
except StoreError as error:
    print(json.dumps([str(error), bank.check(), acks]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_write_that_the_system_cuts_off_loses_nothing(tmp_path):
    path = tmp_path / "bank.sqlite"
    run = subprocess.run([sys.executable, "-c", LIMITED, path], stdout=subprocess.PIPE, text=True, check=True)
    message, problems, acks = json.loads(run.stdout)
    assert "could not be changed" in message
    assert problems == []
    assert len(acks) > 10
    assert losses(path, [tuple(ack) for ack in acks]) == []
    with closing(SkillBank(SETTINGS, path)) as bank:
        list(itertools.islice(learn(bank, seed=1, step=100_000, tell=acks.append), 2))
    assert losses(path, [tuple(ack) for ack in acks]) == []


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_told(tmp_path, learned):
    path, _ = learned
    path.parent.chmod(0o500)
    try:
        for act in (lambda: SkillBank(SETTINGS, tmp_path / "new.sqlite"), lambda: write_skills([], tmp_path / "x")):
            with pytest.raises(StoreError, match="could not be written"):
                act()
    finally:
        path.parent.chmod(0o700)


def test_what_could_not_be_finished_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "skills.jsonl"
    path.write_text("old")

    def write(error):
        with replacing(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(StoreError, match=r"skills\.jsonl' could not be written: disk full"):
        write(OSError("disk full"))
    with pytest.raises(KeyError):  # a bug stays a bug
        write(KeyError())
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["skills.jsonl"]


def test_a_large_bank_works(tmp_path):
    seconds = use_large_bank(tmp_path, skills=1000)
    assert {"make", "open", "consolidate 30", "save", "export", "check"} <= set(seconds)
    assert len(read_skills(tmp_path / "copy.jsonl")) > 1000
    with closing(Store.read(tmp_path / "copy.sqlite")) as copy:
        assert copy.problems() == []
        assert len(copy.skills()) == len(read_skills(tmp_path / "copy.jsonl"))


def test_failures_of_different_seeds_are_different():
    first, other = (
        {failure.question_id for failure in itertools.islice(make_failures(random.Random(seed), first=seed * 100), 50)}
        for seed in (0, 1)
    )
    assert not first & other
