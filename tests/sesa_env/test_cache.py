from pathlib import Path

import pytest

from sesa_env.cache import cache_dir
from sesa_env.errors import SettingsError


def test_the_variable_of_this_project_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("SESA_CACHE", str(tmp_path / "own"))
    assert cache_dir("indexes") == tmp_path / "own" / "indexes"
    assert cache_dir("indexes").is_dir()


def test_then_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("SESA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir("models") == tmp_path / "xdg" / "sesa-env" / "models"


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_a_relative_cache_folder_is_not_taken(tmp_path, monkeypatch, value):
    monkeypatch.delenv("SESA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_dir("models") == tmp_path / ".cache" / "sesa-env" / "models"


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SESA_CACHE", str(tmp_path / "file"))
    with pytest.raises(SettingsError, match="SESA_CACHE"):
        cache_dir("indexes")
