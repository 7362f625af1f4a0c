"""Skills and failures as JSON, with one versioned form each.

    line = skill_to_json(skill)
    skill = skill_from_json(line)

    write_skills(skills, path)     # JSON lines, all or nothing
    skills = read_skills(path)

A record of a newer version, or with a field that is not known, is refused; one without counters has been used zero
times.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from sesa_env.errors import StoreCorrupt, StoreError
from sesa_env.types import Action, Passage, Trajectory, Turn
from skill_memory.base import Failure
from skill_memory.skill import Skill, Usage

SCHEMA = 1
"""Raise it when a field changes its meaning; a reader refuses what it does not know."""


_PARTS = tuple(field.name for field in fields(Skill) if field.name != "usage")
_FIELDS = {"schema", "usage", *_PARTS}


def skill_to_dict(skill: Skill) -> dict[str, Any]:
    """Return the skill as plain values."""
    return {"schema": SCHEMA, **{name: getattr(skill, name) for name in _PARTS}, "usage": asdict(skill.usage)}


def skill_from_dict(record: dict[str, Any]) -> Skill:
    """Return the skill of a record.

    Raises:
        StoreCorrupt: the record has another schema, lacks a field, or holds a value of the wrong type.
    """
    try:
        if record["schema"] != SCHEMA:
            raise StoreCorrupt(f"schema of a skill must be {SCHEMA}, got {record['schema']!r}")
        if unknown := sorted(set(record) - _FIELDS):
            raise StoreCorrupt(f"unknown field of a skill: {unknown[0]!r}")
        return Skill(
            id=_string(record["id"]),
            description=_string(record["description"]),
            triggers=_strings(record["triggers"]),
            avoid=_string(record["avoid"]),
            queries=_strings(record["queries"]),
            category=_string(record.get("category", "")),
            source=_string(record.get("source", "")),
            created_step=int(record.get("created_step", 0)),
            is_seed=bool(record.get("is_seed", False)),
            usage=Usage(**record.get("usage", {})),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupt(f"malformed record of a skill: {error!r}") from error


def write_skills(skills: Iterable[Skill], path: Path) -> None:
    """Write one JSON line per skill, all or none; raises as `replacing`."""
    lines = [json.dumps(skill_to_dict(skill), ensure_ascii=False, sort_keys=True) + "\n" for skill in skills]
    with replacing(path) as draft:
        draft.write_text("".join(lines), encoding="utf-8")


def read_skills(path: Path) -> list[Skill]:
    """Return the skills of a file of JSON lines.

    Raises:
        StoreCorrupt: a line is malformed; the message names file and line.
    """
    return [skill for _, skill in numbered_skills(path)]


def numbered_skills(path: Path) -> Iterator[tuple[int, Skill]]:
    """Yield the skills of a file of JSON lines with their line numbers; errors as `read_skills`."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            yield number, skill_from_dict(json.loads(line))
        except (ValueError, StoreCorrupt) as error:
            raise StoreCorrupt(f"{path.name}:{number}: {error}") from error


def failure_to_json(failure: Failure) -> str:
    """Return the failure, with its whole trajectory, as one line."""
    return json.dumps(asdict(failure), ensure_ascii=False, sort_keys=True)


def failure_from_json(line: str) -> Failure:
    """Return the failure of a line written by `failure_to_json`.

    Raises:
        StoreCorrupt: the line is not such a record.
    """
    try:
        record = json.loads(line)
        trajectory = record.pop("trajectory")
        turns = tuple(_turn(turn) for turn in trajectory.pop("turns"))
        return Failure(
            trajectory=Trajectory(turns=turns, **trajectory),
            answers=tuple(record.pop("answers")),
            skill_ids=tuple(record.pop("skill_ids")),
            evidence=tuple(Passage(**passage) for passage in record.pop("evidence", ())),  # absent in older files
            **record,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupt(f"malformed record of a failure: {error!r}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to; what was written gets its name in one step at the end, or is gone if anything failed.

    Folders above the path are made.  A process killed on the way leaves the old file, or none, never half a file.

    Raises:
        StoreError: the disk is full, or the folder cannot be written to.
    """
    draft = path.with_name(path.name + ".draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)  # of a process that was killed
        try:
            yield draft
            _sync(draft)
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        _sync(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{str(path)!r} could not be written: {error}") from error


def _sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, survive a loss of power."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _turn(record: dict[str, Any]) -> Turn:
    passages = tuple(Passage(**passage) for passage in record.pop("passages"))
    return Turn(action=Action(**record.pop("action")), passages=passages, **record)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of strings, got {value!r}")
    return tuple(_string(item) for item in value)
