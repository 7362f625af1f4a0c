"""The settings of a memory, and the table of memories."""

import dataclasses
import pickle
import subprocess
import sys

import pytest

from sesa_env.errors import SettingsError, UnknownName
from skill_memory import MemorySettings, NoMemory, SkillBank, Use, make_memory, restore


def test_defaults_are_those_of_sesa():
    settings = MemorySettings()
    assert (settings.k, settings.distil_every, settings.min_waiting, settings.max_cards) == (3, 10, 20, 30)
    assert (settings.queue_size, settings.cap, settings.frontier_only) == (300, 800, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("k", True),
        ("k", 2.0),
        ("floor", float("nan")),
        ("floor", 1.5),
        ("token_budget", 0),
        ("priming", 1),
        ("encoder", " "),
        ("distil", None),
        ("distil_every", 0),
        ("min_waiting", -1),
        ("max_cards", "30"),
        ("queue_size", 0),
        ("frontier_only", "yes"),
        ("cap", 0),
        ("max_similarity", 2),
        ("kind", ""),
        ("distil_options", ["model"]),
        ("distil_options", {1: "model"}),
        ("attribution", 1),
        ("executed", "no"),
        ("background", None),
        ("trial_questions", 0),
    ],
)
def test_a_bad_value_is_refused_with_name_rule_and_value(name, value):
    with pytest.raises(SettingsError, match=name) as error:
        MemorySettings(**{name: value})
    assert repr(value) in str(error.value)
    assert "must be" in str(error.value)


def test_settings_are_frozen_and_travel_between_processes():
    settings = MemorySettings(k=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.k = 6
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_every_kind_is_made_the_same_way(tmp_path):
    kinds = {}
    for kind in ("none", "bank"):
        memory = make_memory(MemorySettings(kind=kind), tmp_path / f"{kind}.sqlite")
        kinds[kind] = type(memory)
        memory.close()
    assert kinds == {"none": NoMemory, "bank": SkillBank}


@pytest.mark.parametrize("field", ["kind", "encoder", "distil"])
def test_an_unknown_name_lists_the_known_ones(tmp_path, field):
    with pytest.raises(UnknownName, match=r"known: .*(none|hashing)"):
        make_memory(MemorySettings(**{field: "nonesuch"}), tmp_path / "bank.sqlite")
    assert not (tmp_path / "bank.sqlite").exists()


def test_no_memory_shows_and_keeps_nothing(tmp_path, make_failure):
    memory = make_memory(MemorySettings(kind="none"), tmp_path / "memory")
    assert memory.retrieve(["Who?", "When?"], exclude_source=["a", "b"]) == [[], []]
    memory.credit([Use("q1", (), 0.4)])
    assert memory.offer(make_failure()) is False
    assert memory.consolidate(step=10) is None
    assert len(memory) == 0
    assert list(tmp_path.iterdir()) == []
    memory.save(tmp_path / "saved")
    restore(tmp_path / "saved", tmp_path / "memory")
    again = make_memory(MemorySettings(kind="none"), tmp_path / "memory")
    assert again.snapshot_id == memory.snapshot_id


def test_importing_the_package_loads_no_heavy_library():
    code = (
        "import skill_memory, sys; print([m for m in ('torch', 'sentence_transformers', 'jnius') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
