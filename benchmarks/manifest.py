"""What a run was made with: versions, platform, commit, corpus, index, seeds and a hash of the settings.

A manifest holds neither times nor names of machines, users or folders: two equal runs on equal machines have equal
manifests, and one can be published as it is.

    require_own_packages()
    manifest = make_manifest(settings=settings, seeds=[0], corpus=corpus.fingerprint, index=retriever.fingerprint)
    write_manifest(manifest, run_folder / "manifest.json")

The settings themselves are saved beside it by the run; here they are only a hash, since they may name folders.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from sesa_env.errors import InvalidInput, MissingDependency

SCHEMA = 1
PACKAGES = ("sesa_env", "skill_memory", "agents", "benchmarks")

_ROOT = Path(__file__).resolve().parent.parent


def require_own_packages() -> None:
    """Make sure that `import agents` finds ours, and not the module of the same name that `openai-agents` installs.

    Call it before anything imports `agents`: nothing of a foreign package is run.

    Raises:
        MissingDependency: one of the four packages is missing, or another distribution's is in its place.
    """
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise MissingDependency(f"package {package!r} is missing; install the project again: pip install sesa-env")
        if Path(spec.origin).resolve().parent.parent != _ROOT or not _names_this_project(Path(spec.origin), package):
            raise MissingDependency(
                f"`import {package}` finds {spec.origin}, which is not part of sesa-env; "
                f"install sesa-env in an environment without the distribution that brings it (agents: openai-agents)"
            )


def make_manifest(*, settings: Mapping[str, Any], seeds: Sequence[int], corpus: str, index: str) -> dict[str, Any]:
    """Describe a run, ready to be written as JSON.

    Args:
        settings: the resolved settings, made of what JSON can hold.
        seeds: every seed of the run.
        corpus: fingerprint of the corpus.
        index: fingerprint of the retriever over it.

    Raises:
        InvalidInput: a seed is not a whole number, a fingerprint is blank, or the settings hold what JSON cannot.
    """
    if not seeds or not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
        raise InvalidInput(f"seeds must be one whole number or more, got {seeds!r}")
    for name, fingerprint in (("corpus", corpus), ("index", index)):
        if not isinstance(fingerprint, str) or not fingerprint.strip():
            raise InvalidInput(f"{name} must be a fingerprint, got {fingerprint!r}")
    return {
        "schema": SCHEMA,
        "packages": _versions(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "commit": _commit(_ROOT),
        "corpus": corpus,
        "index": index,
        "seeds": list(seeds),
        "settings": settings_hash(settings),
    }


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that are equal for equal settings, whatever the order of their keys.

    Raises:
        InvalidInput: the settings hold what JSON cannot, such as an object or NaN.
    """
    try:
        text = json.dumps(settings, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"settings must hold only what JSON can, got {settings!r}: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_manifest(manifest: Mapping[str, Any], path: Path) -> None:
    """Write a manifest as JSON, or leave the old file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(json.dumps(manifest, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(draft, path)


def _names_this_project(init: Path, package: str) -> bool:
    """Whether the package's own docstring says so; only `agents` has a rival that can overwrite it in place."""
    if package != "agents":
        return True
    return "sesa-env" in (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "")


def _versions() -> dict[str, str]:
    """Return the version of every installed distribution: any of them may have touched the numbers."""
    return dict(sorted((item.metadata["Name"], item.version) for item in distributions()))


def _commit(root: Path) -> str | None:
    """Return the commit of the checkout at `root`, "+" after it when files differ; None when it is no checkout."""
    if _git(root, "rev-parse", "--show-toplevel") != str(root):
        return None
    commit = _git(root, "rev-parse", "HEAD")
    return f"{commit}+" if commit and _git(root, "status", "--porcelain") else commit


def _git(root: Path, *arguments: str) -> str | None:
    """Run a git command; None when it fails, or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
