"""Language models behind the `Policy` protocol.

A policy is named by one string: a registered name, the path of a model folder, or a hub id.

    folder = source_of("smollm2")
"""

from __future__ import annotations

from pathlib import Path

from sesa_env.errors import ModelNotFound, UnknownName
from sesa_env.registry import POLICIES

POLICIES.register("smollm2", "agents.policies.smollm2:model_folder")


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
