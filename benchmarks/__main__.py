"""Run the `sesa` command, as `sesa ...` or `python -m benchmarks ...`.

A user's mistake is one line on stderr and exit code 2.  A traceback means a bug.
"""

from __future__ import annotations

import sys

from benchmarks.manifest import require_own_packages
from sesa_env.errors import MissingDependency, SesaError

EXTRAS = {
    **dict.fromkeys(("typer", "rich", "scipy", "matplotlib"), "cli"),
    **dict.fromkeys(("torch", "transformers", "peft", "safetensors", "omegaconf", "tensorboard"), "train"),
}
"""Which extra brings a package that a command imports."""


def main() -> None:
    """Run the command line."""
    try:
        _run()
    except (SesaError, OSError) as error:
        if isinstance(error, OSError) and error.filename is None and not isinstance(error, SesaError):
            raise
        print(f"sesa: {_one_line(error)}", file=sys.stderr)
        sys.exit(2)


def _run() -> None:
    require_own_packages()
    try:
        from benchmarks.cli import app

        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = EXTRAS[package]
        raise MissingDependency(
            f"this command needs {package}, from the extra {extra!r}: pip install 'sesa-env[{extra}]'"
        ) from error


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, SesaError):
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
