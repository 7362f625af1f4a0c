"""What a skill bank survives: kills, readers beside a writer, a full disk, a read-only folder, and ten thousand skills.

    python -m benchmarks.perf.reliability                       # 200 kills, 2 x 30 s of reading; a few minutes
    python -m benchmarks.perf.reliability --kills 20 --seconds 5 --skills 2000

Nothing is simulated: processes are killed with SIGKILL, the disk is a file system of one megabyte.  Whoever writes
acknowledges each offer and each consolidation after it has returned, so what must be there afterwards is known.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.perf.workload import SETTINGS, Ack, learn, losses, make_failures, make_skills
from sesa_env.errors import MissingDependency, StoreError
from skill_memory import MemorySettings, SkillBank
from skill_memory.records import write_skills
from skill_memory.relations import RELATIONS

QUESTIONS = tuple(f"What is the {relation.noun} of Orl?" for relation in RELATIONS[::6])
_KILLS_A_FILE = 10
_MOST_ACKS, _LONGEST_WAIT = 80, 0.05
"""Acknowledgements after which a process is killed, and seconds after those; a consolidation takes some 0.02."""


# --- kills -----------------------------------------------------------------------------------------------------------


@dataclass
class Kills:
    """What was killed, what it was doing, and what was found to be wrong afterwards."""

    kills: int = 0
    during: dict[str, int] = field(default_factory=dict)
    offers: int = 0
    consolidations: int = 0
    skills: int = 0
    problems: list[str] = field(default_factory=list)


def kill_often(folder: Path, *, kills: int, seed: int = 0) -> Kills:
    """Kill a process that learns at random moments of its life, and look at its file each time."""
    rng, done, during = random.Random(seed), Kills(), Counter[str]()
    acks: list[Ack] = []
    for attempt in range(kills):
        path = folder / f"bank{attempt // _KILLS_A_FILE}.sqlite"
        if attempt % _KILLS_A_FILE == 0:
            acks = []
        heard = rng.randint(1, _MOST_ACKS) if attempt % 5 else 0  # some do not come to open the file
        new = _live_and_die(path, seed=attempt, heard=heard, wait=rng.uniform(0.0, _LONGEST_WAIT))
        acks += new
        done.kills += 1
        during[_DOING[new[-1][0]] if new else "opening"] += 1
        done.offers += sum(ack[0] == "offered" for ack in new)
        done.consolidations += sum(ack[0] == "consolidated" for ack in new)
        done.skills += sum(len(ack[3]) for ack in new if ack[0] == "consolidated")
        done.problems += [f"kill {attempt}: {problem}" for problem in losses(path, acks)]
    done.during = dict(during)
    return done


_DOING = {"open": "offering", "offered": "offering", "consolidated": "offering", "consolidating": "consolidating"}
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["skill_memory.bank", "skill_memory.rules"])  # so that each process starts at once


def _live_and_die(path: Path, *, seed: int, heard: int, wait: float) -> list[Ack]:
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_live, args=(path, seed, theirs))
    process.start()
    theirs.close()
    acks: list[Ack] = []
    try:
        while len(acks) < heard:  # so that how far it comes does not depend on the speed of the machine
            acks.append(ours.recv())
        time.sleep(wait)
        process.kill()
        while True:  # what it said before it died
            acks.append(ours.recv())
    except EOFError:
        return acks
    finally:
        process.join()
        ours.close()


def _live(path: Path, seed: int, parent: Connection) -> None:
    bank = SkillBank(SETTINGS, path)
    parent.send(("open",))
    for _ in learn(bank, seed=seed, step=seed * 100_000, tell=parent.send):
        pass


# --- readers ---------------------------------------------------------------------------------------------------------


@dataclass
class Reads:
    """How often was read and written meanwhile, how many snapshots the readers saw, and what was wrong."""

    readers: str
    reads: int = 0
    commits: int = 0
    snapshots: int = 0
    problems: list[str] = field(default_factory=list)


Seen = tuple[str, tuple[tuple[str, ...], ...]]
"""A snapshot's id, and the texts that its skills gave for QUESTIONS."""


def read_while_writing(folder: Path, *, seconds: float, readers: int = 4, threads: bool = False) -> Reads:
    """Let readers read while one writer learns; each snapshot must give the same texts to all.

    Args:
        folder: where the bank's file is made.
        seconds: how long.
        readers: how many.
        threads: whether they share the writer's bank; else they are processes that open the file anew for each read.
    """
    path = folder / "bank.sqlite"
    bank = SkillBank(SETTINGS, path)
    done = Reads("threads" if threads else "processes")
    seen: list[Seen] = []
    until = time.time() + seconds
    if threads:
        crew: list[Any] = [
            threading.Thread(target=_read_shared, args=(bank, until, seen, done)) for _ in range(readers)
        ]
    else:
        pipes = [_PROCESSES.Pipe(duplex=False) for _ in range(readers)]
        crew = [_PROCESSES.Process(target=_read_file, args=(path, until, theirs)) for _, theirs in pipes]
    for reader in crew:
        reader.start()
    written = dict([_look(bank)])
    for _ in learn(bank, seed=0, step=1, tell=lambda _: None):
        done.commits += 1
        snapshot_id, texts = _look(bank)
        if written.setdefault(snapshot_id, texts) != texts:
            done.problems.append(f"snapshot {snapshot_id} changed under the writer")
        if time.time() > until:
            break
    if not threads:
        for ours, _ in pipes:
            found, problems = ours.recv()
            seen += found
            done.problems += problems
    for reader in crew:
        reader.join()
    done.reads, done.snapshots = len(seen), len({snapshot_id for snapshot_id, _ in seen})
    done.problems += [f"snapshot {id} was read with other texts" for id, texts in seen if written.get(id) != texts]
    done.problems += bank.check()
    bank.close()
    return done


def _look(bank: SkillBank) -> Seen:
    found = bank.retrieve(QUESTIONS)
    return bank.snapshot_id, tuple(tuple(skill.text for skill in skills) for skills in found)


def _read_file(path: Path, until: float, parent: Connection) -> None:
    seen, problems = [], []
    while time.time() < until:
        try:
            with closing(SkillBank(SETTINGS, path)) as bank:
                seen.append(_look(bank))
        except Exception as error:  # whatever it is, it is what we look for
            problems.append(f"a reader got {error!r}")
    parent.send((seen, problems))


def _read_shared(bank: SkillBank, until: float, seen: list[Seen], done: Reads) -> None:
    while time.time() < until:
        before = bank.snapshot_id
        try:
            snapshot_id, texts = _look(bank)
        except Exception as error:
            done.problems.append(f"a reader got {error!r}")
            return
        if before == snapshot_id:  # else the writer went on in between, and which snapshot was read is not known
            seen.append((snapshot_id, texts))


# --- disks -----------------------------------------------------------------------------------------------------------


@dataclass
class Disk:
    """What a bank said on a full and on a read-only file system, and what was wrong before or afterwards."""

    full: dict[str, str] = field(default_factory=dict)
    read_only: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def use_bad_disks(folder: Path) -> Disk | None:
    """Let a bank learn on a file system of one megabyte until it is full, give it room, then make it read-only.

    None where this machine lets nobody mount one in a name space of his own.
    """
    code = "import sys; from benchmarks.perf import reliability as r; r._on_bad_disks(sys.argv[1])"
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", code, str(folder)]
    try:
        subprocess.run([*command[:3], "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Disk(**json.loads(result.stdout.replace(f"{folder}/", "")))


def _on_bad_disks(folder: str) -> None:
    disk, path, done = Path(folder), Path(folder) / "bank.sqlite", Disk()
    _mount(folder, "size=1m", new=True)
    acks: list[Ack] = []
    bank = SkillBank(SETTINGS, path)
    done.full["offer or consolidate"] = _refusal(lambda: [None for _ in learn(bank, seed=0, step=1, tell=acks.append)])
    done.full["save"] = _refusal(lambda: bank.save(disk / "copy.sqlite"))
    done.full["export"] = _refusal(lambda: write_skills(100 * list(bank), disk / "skills.jsonl"))
    done.full["create"] = _refusal(lambda: SkillBank(SETTINGS, disk / "other.sqlite"))
    left = sorted(file.name for file in disk.iterdir() if not file.name.startswith("bank.sqlite"))
    done.problems += bank.check() + [f"{name} was left behind" for name in left]
    bank.close()
    done.problems += losses(path, acks)
    _mount(folder, "remount,size=64m")
    with closing(SkillBank(SETTINGS, path)) as bank:
        list(itertools.islice(learn(bank, seed=1, step=100_000, tell=acks.append), 3))
    done.problems += losses(path, acks)
    before = path.read_bytes()
    _mount(folder, "remount,ro")
    with closing(SkillBank(SETTINGS, path)) as bank:
        done.read_only["open and retrieve"] = _refusal(lambda: bank.retrieve(QUESTIONS))
        done.read_only["offer"] = _refusal(lambda: bank.offer(next(make_failures(random.Random(2), first=2_000_000))))
    done.read_only["create"] = _refusal(lambda: SkillBank(SETTINGS, disk / "other.sqlite"))
    done.read_only["export"] = _refusal(lambda: write_skills([], disk / "skills.jsonl"))
    _mount(folder, "remount,rw")
    if path.read_bytes() != before:
        done.problems.append("the file was changed")
    done.problems += losses(path, acks)
    print(json.dumps(asdict(done)))


def _mount(folder: str, options: str, *, new: bool = False) -> None:
    subprocess.run(["mount", *(["-t", "tmpfs"] if new else []), "-o", options, "tmpfs", folder], check=True)


def _refusal(act: Callable[[], object]) -> str:
    """Return the message of the StoreError; any other error is not ours and goes on."""
    try:
        act()
    except StoreError as error:
        return str(error)
    return "done"


# --- size ------------------------------------------------------------------------------------------------------------


def use_large_bank(folder: Path, *, skills: int) -> dict[str, float]:
    """Return the seconds that each act takes on a bank of so many skills, with the hashing encoder.

    Raises:
        StoreError: the bank is not consistent afterwards.
    """
    path, source = folder / "large.sqlite", folder / "source.jsonl"
    write_skills(make_skills(skills), source)
    settings = MemorySettings(
        priming=False, source=str(source), cap=skills + 1000, distil_every=1, min_waiting=1, max_similarity=0.999
    )
    seconds: dict[str, float] = {}

    def clock(name: str, act: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = act()
        seconds[name] = time.perf_counter() - started
        return result

    clock("make", lambda: SkillBank(settings, path)).close()
    bank = clock("open", lambda: SkillBank(settings, path))
    clock("first question", lambda: bank.retrieve(["What is the mother of the director of Orl?"]))
    clock("64 questions", lambda: bank.retrieve([f"{word} {QUESTIONS[0]}" for word in map(str, range(64))]))
    clock("30 offers", lambda: [bank.offer(one) for one in itertools.islice(make_failures(random.Random(0)), 30)])
    clock("consolidate 30", lambda: bank.consolidate(step=1))
    clock("save", lambda: bank.save(folder / "copy.sqlite"))
    clock("export", lambda: bank.export(folder / "copy.jsonl"))
    problems = clock("check", bank.check)
    bank.close()
    if problems:
        raise StoreError(f"a bank of {skills} skills is not consistent: {problems[:3]}")
    return seconds


def main() -> None:
    """Run the command line."""
    try:
        import typer
    except ImportError as error:
        raise MissingDependency("this benchmark needs the extra `cli`: pip install 'sesa-env[cli]'") from error

    def run(kills: int = 200, seconds: float = 30.0, skills: int = 10_000, out: Path | None = None) -> None:
        """Kill, read, fill and load, and print what was found; exit code 1 when anything was wrong."""
        rows: list[dict[str, Any]] = []

        def report(name: str, **figures: Any) -> None:
            rows.append({"trial": name, **figures})
            typer.echo(f"{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items()))

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for part in ("kills", "processes", "threads", "disk", "large"):
                (folder / part).mkdir()
            report("kill -9", **asdict(kill_often(folder / "kills", kills=kills)))
            for part in ("processes", "threads"):
                reads = read_while_writing(folder / part, seconds=seconds, threads=part == "threads")
                report("readers", **asdict(reads))
            disk = use_bad_disks(folder / "disk")
            report("disk", **(asdict(disk) if disk else {"skipped": "no file system may be mounted here"}))
            timed = use_large_bank(folder / "large", skills=skills)
            report(f"{skills} skills", **{act: f"{taken:.3f} s" for act, taken in timed.items()})
        if out is not None:
            out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        if any(row.get("problems") for row in rows):
            raise typer.Exit(1)

    typer.run(run)


if __name__ == "__main__":
    main()
