"""A memory of another process: workers read copies, and the owner counts what they saw."""

import threading
from contextlib import closing
from dataclasses import replace

import pytest

from sesa_env.errors import InvalidInput, SettingsError, StoreError
from sesa_env.registry import MEMORIES
from skill_memory import MemorySettings, SkillBank, Use, make_memory
from skill_memory.remote import RemoteMemory, serve
from skill_memory.testing import check_memory, make_failure

LEARNING = MemorySettings(distil_every=10, min_waiting=1)
LOCAL = [name for name in MEMORIES.names() if name != "remote"]


@pytest.fixture
def service(tmp_path):
    """Serve a memory of some kind from this process, and return the settings of a worker."""
    opened = []

    def start(settings=LEARNING):
        owner = make_memory(settings, tmp_path / f"owner{len(opened)}.sqlite")
        opened.extend((running := serve(owner, settings), owner))
        return owner, MemorySettings(kind="remote", source=running.address)

    yield start
    for one in opened:
        one.close()


@pytest.mark.parametrize("kind", LOCAL)
def test_a_worker_of_every_kind_keeps_the_contract(kind, tmp_path, service):
    _, settings = service(replace(LEARNING, kind=kind))
    check_memory(lambda path: make_memory(settings, path), tmp_path)


def test_a_worker_sees_changes_at_the_end_of_its_step_only(service, tmp_path, make_skill):
    owner, settings = service()
    with closing(make_memory(settings, tmp_path / "worker.sqlite")) as worker:
        before = worker.snapshot_id
        assert before == owner.snapshot_id
        new = owner.admit(make_skill(1)).skill_id
        assert worker.snapshot_id == before != owner.snapshot_id
        assert worker.consolidate(step=1) is None
        assert worker.snapshot_id == owner.snapshot_id
        assert new in {skill.id for skill in worker.retrieve([make_skill(1).description])[0]}


def test_what_workers_saw_is_counted_by_the_owner(service, tmp_path):
    owner, settings = service()

    def work(number):
        with closing(RemoteMemory(settings, tmp_path / f"worker{number}.sqlite")) as worker:
            for step in range(5):
                worker.credit([Use(f"q{number}-{step}", ("seed-date",), 1.0, step=step)])
                assert worker.offer(make_failure(100 * number + step, step=step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (date,) = [skill for skill in owner if skill.id == "seed-date"]
    assert date.usage.helped == 20
    assert owner.waiting == 20
    assert owner.check() == []


def test_a_mistake_of_a_worker_is_an_error_and_counts_nothing(service, tmp_path):
    owner, settings = service()
    with closing(make_memory(settings, tmp_path / "worker.sqlite")) as worker:
        with pytest.raises(InvalidInput, match="ids of this bank, got 'unknown'"):
            worker.credit([Use("q", ("seed-date",), 1.0), Use("q", ("unknown",), 1.0)])
        with pytest.raises(InvalidInput, match="must be 'train'"):
            worker.offer(make_failure(1, split="test"))
    assert all(skill.usage.retrieved == 0 for skill in owner)


@pytest.mark.parametrize(
    ("page", "body", "status"),
    [
        ("/nowhere", None, 404),
        ("/nowhere", "x", 404),
        ("/credit", "{", 400),
        ("/credit", '[{"x": 1}]', 400),
        ("/credit", "[1]", 400),
        ("/offer", "[]", 400),
        ("/offer", "x" * (16 * 2**20 + 1), 413),
    ],
)
def test_the_service_survives_what_is_no_request(service, tmp_path, page, body, status):
    _, settings = service()
    with closing(make_memory(settings, tmp_path / "worker.sqlite")) as worker:
        with pytest.raises((InvalidInput, StoreError), match=None if status == 400 else "skill memory at"):
            worker._ask(page, body)
        assert worker.consolidate(step=1) is None


def test_a_worker_without_a_service_says_so(tmp_path):
    for source in (None, "skills.jsonl"):
        with pytest.raises(SettingsError, match="must be an address"):
            make_memory(MemorySettings(kind="remote", source=source), tmp_path / "worker.sqlite")
    with pytest.raises(StoreError, match="cannot be reached"):
        make_memory(MemorySettings(kind="remote", source="http://127.0.0.1:9"), tmp_path / "worker.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_worker_whose_owner_went_away_keeps_its_copy(service, tmp_path):
    owner = SkillBank(LEARNING, tmp_path / "owner.sqlite")
    running = serve(owner, LEARNING)
    worker = RemoteMemory(MemorySettings(kind="remote", source=running.address), tmp_path / "worker.sqlite")
    running.close()
    running.close()
    with pytest.raises(StoreError, match="cannot be reached"):
        worker.consolidate(step=1)
    assert worker.snapshot_id == owner.snapshot_id
    worker.close()
    owner.close()
