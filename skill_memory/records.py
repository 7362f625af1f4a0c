"""Skills and failures as JSON, with one versioned form each.

    line = skill_to_json(skill)
    skill = skill_from_json(line)

    write_skills(skills, path)     # JSON lines, all or nothing
    skills = read_skills(path)

A record of a newer version is refused; a record without counters has been used zero times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sesa_env.errors import StoreCorrupt
from sesa_env.types import Action, Passage, Trajectory, Turn
from skill_memory.base import Failure
from skill_memory.skill import Skill, Usage

SCHEMA = 1
"""Raise it when a field changes its meaning; a reader refuses what it does not know."""


def skill_to_dict(skill: Skill) -> dict[str, Any]:
    """Return the skill as plain values."""
    return {"schema": SCHEMA, **asdict(skill)}


def skill_from_dict(record: dict[str, Any]) -> Skill:
    """Return the skill of a record.

    Raises:
        StoreCorrupt: the record has another schema, lacks a field, or holds a value of the wrong type.
    """
    try:
        if record["schema"] != SCHEMA:
            raise StoreCorrupt(f"schema of a skill must be {SCHEMA}, got {record['schema']!r}")
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
    """Write one JSON line per skill, all or none: a killed process leaves the old file whole."""
    lines = [json.dumps(skill_to_dict(skill), ensure_ascii=False, sort_keys=True) + "\n" for skill in skills]
    draft = path.with_name(path.name + ".draft")
    draft.write_text("".join(lines), encoding="utf-8")
    put_in_place(draft, path)


def read_skills(path: Path) -> list[Skill]:
    """Return the skills of a file of JSON lines.

    Raises:
        StoreCorrupt: a line is malformed; the message names file and line.
    """
    skills = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            skills.append(skill_from_dict(json.loads(line)))
        except (ValueError, StoreCorrupt) as error:
            raise StoreCorrupt(f"{path.name}:{number}: {error}") from error
    return skills


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
            **record,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupt(f"malformed record of a failure: {error!r}") from error


def put_in_place(draft: Path, path: Path) -> None:
    """Give a finished file its final name in one step."""
    _sync(draft)
    os.replace(draft, path)
    _sync(path.parent)


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
