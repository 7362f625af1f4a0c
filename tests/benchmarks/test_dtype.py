"""A run stores the number format that was measured when it began, and goes on with it wherever it is resumed."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from agents import seats
from agents.config import load_settings, resolve
from agents.device import number_format
from benchmarks.methods import method
from benchmarks.sft import sft
from benchmarks.train import train

SMALL = [
    *("model.device=cpu", "model.max_context=6000", "model.max_new_tokens=2", "model.lora_rank=2"),
    *("solver.lr=0.01", "challenger.lr=0.01", "memory.kind=none", "game.validators=[format]", "game.max_invalid=9"),
    *("rounds=6", "game.attempts=4", "steps=2", "checkpoint_every=1"),
]


@pytest.fixture
def machine(monkeypatch):
    """Let the processor be one that is fast in the given number format, and say how often it is measured."""
    measured = []

    def fast_in(name):
        def rate(*, dtype, **shape):
            measured.append(dtype)
            return 1e12 if dtype == getattr(torch, name) else 1e11

        monkeypatch.setattr(seats, "number_format", partial(number_format, rate=rate))
        return measured

    return fast_in


@pytest.fixture
def settings(corpus_file, chat_model_folder):
    return resolve(method("sesa"), [*SMALL, f"corpus={corpus_file}", f"policy={chat_model_folder}"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_stores_what_was_chosen_and_says_what_was_measured(machine, settings, tmp_path, dtype):
    measured = machine(dtype)
    run = train(replace(settings, steps=0), tmp_path / "run")
    assert measured == [torch.float32, torch.bfloat16]
    assert settings.model.dtype == "auto"
    assert load_settings(run / "settings.yaml").model.dtype == dtype
    rates = {name: 1000.0 if name == dtype else 100.0 for name in ("float32", "bfloat16")}
    line = {"step": 0, "dtype": dtype, "matrix_gflops": rates}
    assert [json.loads(text) for text in (run / "timings.jsonl").read_text().splitlines()] == [line]


@pytest.mark.parametrize("given", ["what the folder stores", "auto again"])
def test_a_resumed_run_keeps_its_number_format_on_another_machine_and_ends_as_one_that_was_not_cut(
    machine, settings, tmp_path, given
):
    machine("bfloat16")
    whole = train(settings, tmp_path / "whole")
    shutil.copytree(whole, tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut/checkpoints/step-000002")
    measured = machine("float32")
    measured.clear()
    cut = train(None if given.startswith("what") else settings, tmp_path / "cut", resume=True)
    assert not measured
    weights, again = (load_file(run / "checkpoints/step-000002/weights.safetensors") for run in (whole, cut))
    assert all(torch.equal(tensor, again[key]) for key, tensor in weights.items())
    assert (whole / "events.jsonl").read_text() == (cut / "events.jsonl").read_text()


def test_a_named_number_format_is_not_measured(machine, settings, tmp_path):
    measured = machine("bfloat16")
    run = train(replace(settings, steps=0, model=replace(settings.model, dtype="float32")), tmp_path / "run")
    assert not measured
    assert load_settings(run / "settings.yaml").model.dtype == "float32"
    assert (run / "timings.jsonl").read_text() == ""


def test_a_taught_policy_stores_what_was_chosen_too(machine, settings, tmp_path):
    machine("float32")
    data = tmp_path / "data.jsonl"
    row = {"id": "q", "question": "Where is it?", "answers": ["Tarrow"], "supporting_titles": ["The Salt Road"]}
    data.write_text(json.dumps(row) + "\n")
    sft(settings, tmp_path / "taught", data=[str(data)], questions=1)
    assert load_settings(tmp_path / "taught/settings.yaml").model.dtype == "float32"
