"""The policies that come with the package: found by name, with their settings, and as good as their card says."""

from __future__ import annotations

import pytest

from agents.config import resolve
from agents.mini import MODELS
from agents.policies import recommended_settings, source_of
from benchmarks.mini_exam import IRRELEVANT, NONE, evaluate_policy

TWENTY_FOUR_MEGABYTES = 24 * 2**20


@pytest.mark.parametrize("name", ["mini", "mini-start"])
def test_a_shipped_policy_is_found_by_name_and_brings_its_settings(name: str) -> None:
    assert source_of(name) == MODELS / name
    settings = resolve({}, [f"policy={name}"])
    assert settings.model.train == "full"
    assert settings.model.demonstrations is False
    assert resolve({}, [f"policy={name}", "model.train=lora"]).model.train == "lora"


def test_a_policy_of_another_name_brings_none() -> None:
    assert recommended_settings("smollm2") == {}
    assert recommended_settings("..") == {}


def test_the_weights_are_small() -> None:
    assert sum(file.stat().st_size for file in MODELS.rglob("*.safetensors")) <= TWENTY_FOUR_MEGABYTES


def test_the_trained_policy_searches_and_reads_in_a_world_it_has_never_seen() -> None:
    rows = evaluate_policy(MODELS / "mini", worlds=[7], questions=20, top_k=1)
    plain = [row for row in rows if row.family.endswith("hop") and row.skills in (NONE, IRRELEVANT)]
    assert len(plain) == 160
    # Its card says about 80 %: a standard deviation of 160 questions is 3.2 points, and this leaves six of them.
    assert sum(row.solved for row in plain) / len(plain) > 0.6
