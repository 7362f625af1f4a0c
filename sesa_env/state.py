"""The records of a round as JSON data, and back: what `Game.get_state` is made of.

    data = plain(turn)              # dicts, lists, texts and numbers only
    read_turn(data) == turn

Only what a record holds is written; whoever reads it back decides where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from sesa_env.types import Action, Passage, Question, Target, Turn


def plain(value: Any) -> Any:
    """Return a record, or records within lists and mappings, as JSON data."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def read_turn(data: Mapping[str, Any]) -> Turn:
    """Return the turn that `plain` wrote."""
    passages = tuple(Passage(**passage) for passage in data["passages"])
    return Turn(**{**data, "action": Action(**data["action"]), "passages": passages})


def read_target(data: Mapping[str, Any] | None) -> Target | None:
    """Return the target that `plain` wrote; nothing stays nothing."""
    return None if data is None else Target(**_with_tuples(data))


def read_question(data: Mapping[str, Any] | None) -> Question | None:
    """Return the question that `plain` wrote; nothing stays nothing."""
    return None if data is None else Question(**_with_tuples(data))


def _with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record, each list a tuple again: no record holds a list."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
