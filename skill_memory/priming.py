"""What a new memory starts from: the hand-written skills, one readable file each, and those of another bank.

A file is a head of `key: value` lines, a blank line, and the description:

    id: seed-date
    category: dates
    triggers: when; what year
    avoid: the date of another event
    queries: {name} {event} year

    Name the event in the query.

    seeds = load_seeds()
    start = starting_skills(settings)     # with those of `memory.source`

Source: SESA primes its bank with 15 hand-written skills; theirs are not published, these are our own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from sesa_env.errors import InvalidInput
from skill_memory.gates import flaw
from skill_memory.history import read_bank
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill, Usage
from skill_memory.store import text_key

SEEDS = Path(__file__).parent / "seeds"
_NAME = re.compile(r"[\w.-]{1,64}")
_KEYS = ("id", "category", "triggers", "avoid", "queries")


def starting_skills(settings: MemorySettings) -> list[Skill]:
    """Return what a new memory starts from, as seeds: the hand-written skills if asked for, then those of the source.

    A text that is there already is passed over; an id that is taken, or is no plain name, is given anew.

    Raises:
        InvalidInput: the source cannot be read, or one of its skills is unfit to be shown.
        StoreError: the source is a damaged bank, or a file with a malformed line.
    """
    hand_written = load_seeds() if settings.priming else []
    start = {text_key(seed): seed for seed in hand_written}
    taken = {seed.id for seed in hand_written}
    for skill in read_bank(settings.source).skills if settings.source else ():
        if not skill.description.strip() or (problem := flaw(skill)):
            raise InvalidInput(f"skill {skill.id!r} of {settings.source} has {problem or 'no description'}")
        id = skill.id if _NAME.fullmatch(skill.id) and skill.id not in taken else ""
        taken.add(id)
        start.setdefault(text_key(skill), replace(skill, id=id, created_step=0, is_seed=True, usage=Usage()))
    return list(start.values())


def load_seeds(folder: Path = SEEDS) -> list[Skill]:
    """Return the skills of a folder of Markdown files, in the order of their ids.

    Raises:
        InvalidInput: the folder has no such file, two files share an id, or a file is malformed; the message names file
            and line.
    """
    seeds = [read_seed(path) for path in sorted(folder.glob("*.md"))]
    if not seeds:
        raise InvalidInput(f"folder of seeds must hold .md files, got {str(folder)!r}")
    ids = [seed.id for seed in seeds]
    doubled = sorted({id for id in ids if ids.count(id) > 1})
    if doubled:
        raise InvalidInput(f"ids of seeds must differ, got {doubled[0]!r} twice in {str(folder)!r}")
    return sorted(seeds, key=lambda seed: seed.id)


def read_seed(path: Path) -> Skill:
    """Return the skill of one file.

    Raises:
        InvalidInput: a key is missing, unknown, repeated or without value, or there is no description.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    head: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            return _skill(head, lines[number:], path, number)
        key, value = _read_line(line, path, number)
        if key in head:
            raise InvalidInput(f"{path.name}:{number}: key {key!r} is given twice")
        head[key] = value
    raise InvalidInput(f"{path.name}:{len(lines)}: a blank line and a description must follow the head")


def _read_line(line: str, path: Path, number: int) -> tuple[str, str]:
    key, colon, value = (part.strip() for part in line.partition(":"))
    if not colon or key not in _KEYS:
        raise InvalidInput(
            f"{path.name}:{number}: expected `key: value` with a key of {', '.join(_KEYS)}, got {line!r}"
        )
    if not value:
        raise InvalidInput(f"{path.name}:{number}: key {key!r} has no value")
    return key, value


def _skill(head: dict[str, str], body: list[str], path: Path, number: int) -> Skill:
    missing = [key for key in _KEYS if key not in head]
    if missing:
        raise InvalidInput(f"{path.name}:{number}: the head lacks {', '.join(missing)}")
    description = " ".join(" ".join(body).split())
    if not description:
        raise InvalidInput(f"{path.name}:{number}: no description follows the head")
    return Skill(
        id=head["id"],
        description=description,
        triggers=_items(head["triggers"]),
        avoid=head["avoid"],
        queries=_items(head["queries"]),
        category=head["category"],
        is_seed=True,
    )


def _items(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(";") if item.strip())
