"""A manifest is reproducible, publishable, and never made with somebody else's `agents`."""

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import manifest
from benchmarks.manifest import make_manifest, require_own_packages, settings_hash, write_manifest
from sesa_env.errors import InvalidInput

ROOT = Path(manifest.__file__).parent.parent
RUN = {"settings": {"attempts": 5}, "seeds": [0, 1], "corpus": "c0ffee", "index": "1dex"}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_manifest_says_what_the_run_was_made_with():
    made = make_manifest(**RUN)
    assert made["packages"]["numpy"] == __import__("numpy").__version__
    assert made["python"].endswith(sys.version.split()[0])
    assert (made["corpus"], made["index"], made["seeds"]) == ("c0ffee", "1dex", [0, 1])
    assert made["settings"] == settings_hash({"attempts": 5})


def test_equal_runs_have_equal_manifests():
    assert make_manifest(**RUN) == make_manifest(**RUN)


def test_a_manifest_names_no_machine_no_user_and_no_folder():
    text = json.dumps({key: value for key, value in make_manifest(**RUN).items() if key != "packages"})
    names = {socket.gethostname(), getpass.getuser(), str(ROOT), str(Path.home()), sys.prefix}
    assert not [name for name in names if name in text]
    assert os.sep not in text


def test_a_manifest_goes_to_disk_whole(tmp_path):
    path = tmp_path / "run" / "manifest.json"
    made = make_manifest(**RUN)
    write_manifest(made, path)
    assert json.loads(path.read_text()) == made
    assert [p.name for p in path.parent.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seeds": []}, "seeds"),
        ({"seeds": ["0"]}, "seeds"),
        ({"seeds": [True]}, "seeds"),
        ({"corpus": ""}, "corpus"),
        ({"index": None}, "index"),
        ({"settings": {"index": Path("x")}}, "settings"),
        ({"settings": {"rate": float("nan")}}, "settings"),
    ],
)
def test_bad_input_is_named(changes, named):
    with pytest.raises(InvalidInput, match=named):
        make_manifest(**{**RUN, **changes})


def test_the_hash_ignores_the_order_of_keys_and_nothing_else():
    assert settings_hash({"a": 1, "b": {"c": 2, "d": 3}}) == settings_hash({"b": {"d": 3, "c": 2}, "a": 1})
    assert len({settings_hash(s) for s in ({"a": 1}, {"a": 1.5}, {"a": "1"}, {"a": [1]}, {"b": 1}, {})}) == 6


def test_the_commit_of_a_checkout_is_marked_when_files_differ(tmp_path):
    assert manifest._commit(tmp_path) is None
    git(tmp_path, "init", "--quiet")
    assert manifest._commit(tmp_path) is None  # no commit yet
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert manifest._commit(tmp_path) == commit
    (tmp_path / "a").write_text("2")
    assert manifest._commit(tmp_path) == commit + "+"
    (tmp_path / "inner").mkdir()
    assert manifest._commit(tmp_path / "inner") is None  # installed inside somebody else's checkout


def test_a_machine_without_git_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert manifest._commit(ROOT) is None


def test_our_own_packages_are_accepted():
    require_own_packages()


def imported_beside(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the guard in a fresh interpreter that finds `folder` first."""
    code = "from benchmarks.manifest import require_own_packages as check; check()"
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["agents", "skill_memory"])
def test_a_foreign_package_is_refused_without_being_run(tmp_path, package):
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text('"""Somebody else."""\nprint("foreign code ran")\n')
    done = imported_beside(tmp_path)
    assert done.returncode == 1
    assert f"MissingDependency: `import {package}` finds" in done.stderr
    assert "openai-agents" in done.stderr
    assert "foreign code ran" not in done.stdout


def test_an_agents_that_was_overwritten_in_place_is_refused(tmp_path):
    for package in manifest.PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "results"))
    assert imported_beside(tmp_path).returncode == 0
    (tmp_path / "agents" / "__init__.py").write_text('"""Somebody else."""\n')
    assert "MissingDependency: `import agents` finds" in imported_beside(tmp_path).stderr


def test_a_folder_without_the_project_is_fine(tmp_path):
    assert imported_beside(tmp_path).returncode == 0
