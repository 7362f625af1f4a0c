"""A distiller that works between steps: what it writes lands at the next consolidation, and no kill loses a failure."""

import signal
import subprocess
import sys
import threading

import pytest

from skill_memory import MemorySettings, SkillBank

ON = {"background": True, "distil_every": 10}


class Gate:
    """A distiller that waits until it is let through."""

    def __init__(self, write):
        self.write, self.open, self.started, self.calls = write, threading.Event(), threading.Event(), 0

    def distill(self, failures):
        self.calls += 1
        self.started.set()
        assert self.open.wait(timeout=30)
        return [self.write(failure) for failure in failures]


def sources(bank):
    return [skill.source for skill in bank]


def test_skills_land_at_the_next_consolidation_whenever_they_were_written(open_bank, make_failure, make_skill):
    distiller = Gate(lambda failure: [make_skill(int(failure.question_id))])
    bank = open_bank(distiller=distiller, **ON)
    bank.offer(make_failure("1"))
    assert bank.consolidate(step=10) is None
    assert distiller.started.wait(timeout=30)
    # The next steps are played while it works: the bank answers, counts, queues, and does not change.
    before = bank.snapshot_id
    bank.credit([])
    assert bank.offer(make_failure("2", step=12))
    assert bank.retrieve(["Who?"]) == [[]]
    distiller.open.set()
    assert [bank.consolidate(step=step) for step in (11, 15, 19)] == [None] * 3
    assert bank.snapshot_id == before
    done = bank.consolidate(step=20)
    assert (done.step, done.drained, len(done.admitted)) == (20, 1, 1)
    assert (sources(bank), bank.waiting) == (["1"], 1)
    assert bank.consolidate(step=30).drained == 1
    assert (sources(bank), bank.waiting) == (["1", "2"], 0)
    assert bank.consolidate(step=40) is None


def test_a_failure_is_distilled_once(open_bank, make_failure, make_skill, recorded):
    distiller = recorded(lambda failure: [make_skill(int(failure.question_id))])
    bank = open_bank(distiller=distiller, max_cards=1, **ON)
    for number in range(3):
        bank.offer(make_failure(str(number)))
    for step in (10, 20, 30, 40):
        bank.consolidate(step=step)
    assert [[failure.question_id for failure in asked] for asked in distiller.asked] == [["0"], ["1"], ["2"]]


def live(bank, make_failure, *, steps, first=1):
    for step in range(first, steps + 1):
        for number in range(3):
            bank.offer(make_failure(str(10 * step + number), step=step))
        bank.consolidate(step=step)


@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_a_run_that_went_on_from_a_copy_ends_as_one_that_was_never_stopped(
    open_bank, tmp_path, make_failure, make_skill, recorded, stop
):
    settings = {"background": True, "distil_every": 2, "max_cards": 2, "queue_size": 8}  # it overflows on the way
    write = recorded(lambda failure: [make_skill(int(failure.question_id))]).write
    whole = open_bank("whole.sqlite", distiller=recorded(write), **settings)
    live(whole, make_failure, steps=9)
    first = open_bank("first.sqlite", distiller=recorded(write), **settings)
    live(first, make_failure, steps=stop)
    first.save(tmp_path / "second.sqlite")
    second = open_bank("second.sqlite", distiller=recorded(write), **settings)
    live(second, make_failure, steps=9, first=stop + 1)
    assert sources(whole)
    assert list(second) == list(whole)
    assert [item.failure for item in second._queue.waiting()] == [item.failure for item in whole._queue.waiting()]


def test_a_distiller_that_fails_is_heard_at_the_next_consolidation_and_is_asked_again(
    open_bank, make_failure, make_skill, recorded
):
    def fail(failure):
        raise OSError("service down")

    bank = open_bank(distiller=recorded(fail), **ON)
    bank.offer(make_failure("1"))
    assert bank.consolidate(step=10) is None
    with pytest.raises(OSError, match="service down"):
        bank.consolidate(step=20)
    assert (bank.waiting, len(bank)) == (1, 0)
    bank._distiller = recorded(lambda failure: [make_skill(1)])
    assert bank.consolidate(step=20).drained == 1


def test_what_got_no_reply_is_begun_again(open_bank, make_failure, make_skill):
    class Shy:
        calls = 0

        def distill(self, failures):
            self.calls += 1
            return [None if self.calls == 1 else [make_skill(1)] for _ in failures]

    bank = open_bank(distiller=Shy(), **ON)
    bank.offer(make_failure("1"))
    bank.consolidate(step=10)
    done = bank.consolidate(step=20)
    assert (done.postponed, done.drained, bank.waiting) == (1, 0, 1)
    assert len(bank.consolidate(step=30).admitted) == 1


def test_switching_it_off_forgets_what_was_under_way_and_loses_nothing(open_bank, make_failure, make_skill, recorded):
    write = recorded(lambda failure: [make_skill(int(failure.question_id))]).write
    bank = open_bank(distiller=recorded(write), **ON)
    bank.offer(make_failure("1"))
    bank.consolidate(step=10)
    bank.close()
    bank = open_bank(distiller=recorded(write), distil_every=10)
    assert bank.consolidate(step=20).drained == 1
    bank.close()
    bank = open_bank(distiller=recorded(write), **ON)
    assert bank.consolidate(step=30) is None


# Begins with a batch that its distiller never finishes.
WORKER = """
import sys, time
from pathlib import Path
from sesa_env.types import Trajectory
from skill_memory import Failure, MemorySettings, SkillBank

class Stuck:
    def distill(self, failures):
        print("distilling", flush=True)
        time.sleep(600)

settings = MemorySettings(background=True, distil_every=10, min_waiting=1, max_cards=2)
bank = SkillBank(settings, Path(sys.argv[1]), distiller=Stuck())
for number in range(3):
    bank.offer(Failure(f"q{number}", "Who?", ("x y",), Trajectory("e", "solver_0", (), "turn_limit"), 0.4, step=9))
bank.consolidate(step=10)
time.sleep(600)
"""


def test_a_process_killed_while_it_distils_loses_no_failure(tmp_path, make_skill, recorded):
    path = tmp_path / "bank.sqlite"
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "distilling\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    distiller = recorded(lambda failure: [make_skill(int(failure.question_id[1:]))])
    settings = MemorySettings(background=True, distil_every=10, min_waiting=1, max_cards=2)
    bank = SkillBank(settings, path, distiller=distiller)
    assert (bank.check(), bank.waiting) == ([], 3)
    done = bank.consolidate(step=20)  # the batch it was at, and no other
    assert [[failure.question_id for failure in asked] for asked in distiller.asked[:1]] == [["q0", "q1"]]
    assert (done.drained, bank.waiting) == (2, 1)
    assert bank.consolidate(step=30).drained == 1
    assert bank.check() == []
    bank.close()
