"""Language models behind the `Policy` protocol.

A policy is named by one string: a registered name, the path of a model folder, or a hub id.

    folder = source_of("smollm2")
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agents.mini import MODELS
from sesa_env.errors import ModelNotFound, SettingsError, UnknownName
from sesa_env.registry import POLICIES

POLICIES.register("mini", "agents.mini:trained")
POLICIES.register("mini-start", "agents.mini:early")
POLICIES.register("smollm2", "agents.policies.smollm2:model_folder")

SETTINGS_FILE = "sesa.json"
"""In a model folder: settings of a run that the policy was made for, as nested values."""


def source_of(policy: str) -> str | Path:
    """Return where to load a policy from: a folder, or a hub id as it was given.

    Raises:
        UnknownName: it is neither a registered name, nor a path, nor of the form OWNER/NAME.
        ModelNotFound: it is a path, and there is no model folder at it.
    """
    if policy in POLICIES.names():
        return Path(POLICIES.make(policy))
    try:
        path = Path(policy).expanduser()
    except RuntimeError as error:
        raise ModelNotFound(f"no model at {policy!r}: {error}") from error
    if (path / "config.json").is_file():
        return path
    if path.exists() or policy.startswith((".", "/", "~")) or policy.count("/") > 1:
        raise ModelNotFound(f"no model at {policy!r}: a model folder holds a config.json")
    if "/" not in policy:
        raise UnknownName(
            f"no policy named {policy!r}; known: {', '.join(POLICIES.names())}; "
            "or give a model folder, or a hub id like OWNER/NAME"
        )
    return policy


def recommended_settings(policy: str) -> dict[str, Any]:
    """Return the settings that a policy was made for, which stand under a preset's and a user's own; often none.

    Of the registered policies those in this package can have some: to make the folder of another may take long.

    Raises:
        SettingsError: the file in the policy's folder is not a mapping in JSON.
    """
    shipped = MODELS / policy
    folder = shipped if shipped.parent == MODELS and shipped.is_dir() else Path(os.path.expanduser(policy))
    file = folder / SETTINGS_FILE
    if not file.is_file():
        return {}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingsError(f"{file} must be JSON: {error}") from error
    if not isinstance(values, dict):
        raise SettingsError(f"{file} must hold a mapping of settings, got {type(values).__name__}")
    return values
