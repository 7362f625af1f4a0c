"""Where this project keeps what it can make again: one folder of the user's cache.

    folder = cache_dir("indexes")   # ~/.cache/sesa-env/indexes, or below $SESA_CACHE

Nothing in it is precious: deleting the folder costs time and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

from sesa_env.errors import SettingsError


def cache_dir(name: str) -> Path:
    """Return the cache folder of that name, made if need be.

    `SESA_CACHE` names the folder to use; without it, it is `sesa-env` below `XDG_CACHE_HOME` or `~/.cache`.

    Raises:
        SettingsError: the folder cannot be made.
    """
    folder = _root() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"the cache folder {str(folder)!r} cannot be made ({error.strerror}); set SESA_CACHE"
        ) from error
    return folder


def _root() -> Path:
    chosen = os.environ.get("SESA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "sesa-env"
