"""Banks as files: what is in one now, what was in it at any step, what changed, and whether it is sound.

    bank = read_bank("runs/sesa@40")                  # or a bank's file, or a file of JSON lines
    came, went, changed = compare(read_bank("runs/sesa@10").skills, bank.skills)
    rows = growth(bank.events)                        # its size, step by step
    problems = check_history(store)

The bank of a step is rebuilt from the events.  Files are only read, even while a run writes to them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sesa_env.errors import InvalidInput
from skill_memory.records import read_skills, skill_from_dict
from skill_memory.skill import Skill
from skill_memory.store import Event, Store, text_key

BANK_FILE = "bank.sqlite"
"""Name of the bank in the folder of a run."""

Skills = dict[str, Skill]


class BankFile(NamedTuple):
    """What a file holds: its skills, oldest first, and the events that led to them (none in JSON lines)."""

    path: Path
    skills: list[Skill]
    events: list[Event]


def read_bank(place: str | Path) -> BankFile:
    """Read a bank: the folder of a run, a bank's file, or a file of JSON lines (.jsonl); "@STEP" goes back in time.

    Raises:
        InvalidInput: there is no such file, or JSON lines are asked for a step.
        StoreError: it is damaged, foreign or newer.
    """
    path, step = _split(str(place))
    if path.is_dir():
        path = path / BANK_FILE
    if not path.is_file():
        raise InvalidInput(f"no bank at {str(path)!r}: expected the folder of a run, a bank's file, or JSON lines")
    if path.suffix == ".jsonl":
        if step is not None:
            raise InvalidInput(f"{str(path)!r} has no history: JSON lines hold one moment")
        return BankFile(path, read_skills(path), [])
    with closing(Store.read(path)) as store:
        events = list(store.events(until=step))
        return BankFile(path, store.skills() if step is None else list(replay(events).values()), events)


def _split(place: str) -> tuple[Path, int | None]:
    found = re.fullmatch(r"(.+)@(\d+)", place)
    if found is None or Path(place).exists():
        return Path(place), None
    return Path(found[1]), int(found[2])


class Changes(NamedTuple):
    """What differs between two banks, by the texts of their skills; the changed are pairs, before and after."""

    came: list[Skill]
    went: list[Skill]
    changed: list[tuple[Skill, Skill]]


def compare(before: Sequence[Skill], after: Sequence[Skill]) -> Changes:
    """Return the skills that only one of two banks has, and those whose counters differ.

    Skills are matched by their text: banks of two runs give the same id to different skills.
    """
    old, new = ({text_key(skill): skill for skill in skills} for skills in (before, after))
    return Changes(
        came=[skill for text, skill in new.items() if text not in old],
        went=[skill for text, skill in old.items() if text not in new],
        changed=[(old[text], skill) for text, skill in new.items() if text in old and old[text].usage != skill.usage],
    )


def replay(events: Iterable[Event]) -> Skills:
    """Return the active skills, in the order in which they came, after these events."""
    skills: Skills = {}
    for event in events:
        effect = _EFFECTS.get(event.kind)
        if effect:
            effect(skills, event)
    return skills


def _admit(skills: Skills, event: Event) -> None:
    skills[event.skill_id] = skill_from_dict(event.data["skill"])


def _evict(skills: Skills, event: Event) -> None:
    del skills[event.skill_id]


def _credit(skills: Skills, event: Event) -> None:
    for id in event.data["skill_ids"]:
        skills[id] = skills[id].used(**{event.cause: 1})


# The other kinds (offer, drop, drain, refuse, consolidate, reembed) leave the skills as they are.
_EFFECTS: dict[str, Callable[[Skills, Event], None]] = {"admit": _admit, "evict": _evict, "credit": _credit}


class Moment(NamedTuple):
    """Something that happened to a skill: "admit", "evict" or "shown", its cause, and more about it."""

    step: int
    what: str
    cause: str
    detail: str


def life(events: Iterable[Event], id: str) -> list[Moment]:
    """Return what happened to a skill, oldest first; the uses of a step are one moment.

    Raises:
        InvalidInput: no skill of that id was ever in the bank.
    """
    moments: list[Moment] = []
    uses: dict[int, Counter[str]] = {}
    for event in events:
        if event.kind == "credit" and id in event.data["skill_ids"]:
            uses.setdefault(event.step, Counter())[event.cause] += 1
        elif event.skill_id == id and event.kind in _EFFECTS:
            moments.append(Moment(event.step, event.kind, event.cause, _detail(event)))
    if not moments:
        raise InvalidInput(f"no skill {id!r} was ever in this bank")
    shown = [Moment(step, "shown", "", f"helped {n['helped']}, hurt {n['hurt']}") for step, n in uses.items()]
    order = {"admit": 0, "shown": 1, "evict": 2}
    return sorted([*moments, *shown], key=lambda moment: (moment.step, order[moment.what]))


def _detail(event: Event) -> str:
    if event.kind == "evict":
        return f"helped {event.data['usage']['helped']}, hurt {event.data['usage']['hurt']}"
    source = event.data["skill"]["source"]
    return f"from question {source}" if source else ""


class Growth(NamedTuple):
    """A bank at the end of a step, and what the step did to it."""

    step: int
    size: int
    admitted: int
    evicted: int
    refused: int
    retrieved: int
    """Skills shown, each question's counted once."""


def growth(events: Iterable[Event]) -> list[Growth]:
    """Return the bank's size and its changes for each step in which something happened."""
    counts: dict[int, Counter[str]] = {}
    for event in events:
        at = counts.setdefault(event.step, Counter())
        at[event.kind] += len(event.data["skill_ids"]) if event.kind == "credit" else 1
    size, rows = 0, []
    for step, n in sorted(counts.items()):
        size += n["admit"] - n["evict"]
        rows.append(Growth(step, size, n["admit"], n["evict"], n["refuse"], n["credit"]))
    return rows


def by_cause(events: Iterable[Event], kind: str) -> dict[str, Counter[int]]:
    """Return how often each cause of a kind of event came in each step, the causes by their sums, largest first.

    A use counts once for each skill that was shown.
    """
    counts: dict[str, Counter[int]] = {}
    for event in events:
        if event.kind == kind:
            shown = len(event.data["skill_ids"]) if kind == "credit" else 1
            counts.setdefault(event.cause, Counter())[event.step] += shown
    return dict(sorted(counts.items(), key=lambda item: -item[1].total()))


def check_history(store: Store) -> list[str]:
    """Return every way in which the stored skills, vectors and tombstones contradict each other or the events."""
    skills = store.skills()
    events = list(store.events())
    try:
        replayed = list(replay(events).values())
    except KeyError as error:
        return [f"an event is about skill {error}, which is not active then"]
    problems = [] if replayed == skills else ["skills differ from what the events lead to"]
    return problems + _check_ids(events, skills) + _check_vectors(store, skills) + _check_texts(store, skills)


def _check_ids(events: list[Event], skills: list[Skill]) -> list[str]:
    issued = Counter(event.skill_id for event in events if event.kind == "admit")
    problems = [f"id {id} was given {times} times" for id, times in issued.items() if times > 1]
    steps = [event.step for event in events]
    if steps != sorted(steps):
        problems.append("steps of events go backwards")
    active = {skill.id for skill in skills}
    seeds = {event.skill_id for event in events if event.kind == "admit" and event.data["skill"]["is_seed"]}
    problems += [f"hand-written skill {id} is gone" for id in sorted(seeds - active)]
    return problems


def _check_vectors(store: Store, skills: list[Skill]) -> list[str]:
    vectors = store.vectors()
    problems = [f"skill {skill.id} has no vector" for skill in skills if skill.id not in vectors]
    if len({vector_D.shape for vector_D in vectors.values()}) > 1:
        problems.append("vectors differ in length")
    lengths = {id: float((vector_D * vector_D).sum()) for id, vector_D in vectors.items()}
    return problems + [f"vector of {id} has squared length {n:.4f}" for id, n in lengths.items() if abs(n - 1) > 1e-3]


def _check_texts(store: Store, skills: list[Skill]) -> list[str]:
    tombstones = store.tombstones()
    back = [skill.id for skill in skills if text_key(skill) in tombstones]
    wrong = [skill.id for skill in skills if skill.usage.retrieved != skill.usage.helped + skill.usage.hurt]
    return [f"skill {id} has a text that was evicted" for id in back] + [
        f"counters of {id} do not add up" for id in wrong
    ]
