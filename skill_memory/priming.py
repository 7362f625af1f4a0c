"""The hand-written skills a new bank starts from, one readable file each.

A file is a head of `key: value` lines, a blank line, and the description:

    id: seed-date
    category: dates
    triggers: when; what year
    avoid: the date of another event
    queries: {name} {event} year

    Name the event in the query.

    seeds = load_seeds()

Source: SESA primes its bank with 15 hand-written skills; theirs are not published, these are our own.
"""

from __future__ import annotations

from pathlib import Path

from sesa_env.errors import InvalidInput
from skill_memory.skill import Skill

SEEDS = Path(__file__).parent / "seeds"
_KEYS = ("id", "category", "triggers", "avoid", "queries")


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
