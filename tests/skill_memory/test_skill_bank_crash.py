"""A process that is killed at any moment of its consolidations leaves a bank that is whole."""

import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from skill_memory import MemorySettings, SkillBank

# Offers ten failures and consolidates them, again and again, as fast as it can; each round's skills are new ones.
WORKER = """
import sys
from pathlib import Path
import numpy as np
from sesa_env.types import Trajectory
from skill_memory import Failure, MemorySettings, Skill, SkillBank

class Writer:
    def distill(self, failures):
        return [[self.card(failure.question_id)] for failure in failures]
    def card(self, name):
        rng = np.random.default_rng(int(name))
        words = ["".join(chr(97 + int(n)) for n in row) for row in rng.integers(0, 26, (12, 7))]
        return Skill("", " ".join(words[:6]), tuple(words[6:9]), " ".join(words[9:]), ("{name}",))

bank = SkillBank(MemorySettings(distil_every=1, min_waiting=10, cap=60), Path(sys.argv[1]), distiller=Writer())
print("ready", flush=True)
for step in range(1, 10_000):
    for number in range(10):
        trajectory = Trajectory("e", "solver_0", (), "turn_limit")
        bank.offer(Failure(str(10 * step + number), "Who?", ("x y",), trajectory, 0.4, step=step))
    bank.consolidate(step=step)
"""


@pytest.fixture(scope="module")
def killed_banks(tmp_path_factory):
    """Ten copies of a bank, each taken after its process was killed at a random moment."""
    folder = tmp_path_factory.mktemp("killed")
    rng = random.Random(0)
    copies = []
    for attempt in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder / "bank.sqlite")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        copy = folder / f"copy{attempt}"
        copy.mkdir()
        for path in folder.glob("bank.sqlite*"):
            shutil.copy(path, copy / path.name)
        copies.append(copy / "bank.sqlite")
    return copies


def test_every_killed_bank_is_consistent(killed_banks):
    sizes = []
    for path in killed_banks:
        bank = SkillBank(MemorySettings(cap=60), path)
        assert bank.check() == []
        events = list(bank._store.events())
        rounds = [event for event in events if event.kind == "consolidate"]
        queued = sum(event.kind == "offer" and event.cause == "queued" for event in events)
        drained = sum(event.data["drained"] for event in rounds)
        admitted = sum(event.kind == "admit" and event.cause == "distilled" for event in events)
        # Each consolidation is there as a whole or not at all: its failures gone and all their decisions made.
        assert bank.waiting == queued - drained
        assert admitted == sum(event.data["admitted"] for event in rounds)
        assert drained == admitted + sum(sum(event.data["refused"].values()) for event in rounds)
        sizes.append((len(rounds), bank.waiting))
        bank.close()
    # The processes really were at work, and were killed at different points of it.  How many failures wait at a kill
    # depends on how fast the machine offers and consolidates; how far the work has come does not.
    assert sizes[-1][0] >= 3
    assert len(set(sizes)) > 2


def test_a_killed_bank_goes_on(killed_banks):
    bank = SkillBank(MemorySettings(cap=60, distil_every=1, min_waiting=1), killed_banks[-1])
    before = len(list(bank._store.events()))
    bank.credit([])
    assert bank.retrieve(["Who?"])[0]
    assert len(list(bank._store.events())) == before
    bank.close()


def test_a_process_killed_while_it_makes_a_bank_leaves_none_or_a_whole_one(tmp_path):
    path = tmp_path / "bank.sqlite"
    path.with_name("bank.sqlite.draft").write_bytes(b"half a file")
    path.with_name("bank.sqlite-wal").write_bytes(b"of an older bank")
    bank = SkillBank(MemorySettings(), path)
    assert bank.check() == []
    assert len(bank) == 15
    bank.close()
    assert [file.name for file in tmp_path.iterdir()] == ["bank.sqlite"]
