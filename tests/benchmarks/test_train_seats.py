"""Runs with other seats than two learning adapters: frozen, past, whole models; guards; batches drawn again."""

import json

import pytest
import torch
from safetensors.torch import load_file

from agents.config import load_settings, resolve
from benchmarks.datasets import Dataset
from benchmarks.evaluate import evaluate
from benchmarks.methods import method
from benchmarks.train import train
from sesa_env.errors import TrainingStopped
from sesa_env.types import Question

SMALL = [
    "steps=2",
    "checkpoint_every=1",
    "rounds=6",
    "game.attempts=4",
    "game.validators=[format]",
    "game.max_invalid=9",
    "game.solver_turns=9",
    "game.challenger_turns=9",
    "game.invalid_reward=-1.0",
    "memory.kind=none",
    "model.demonstrations=false",
    "model.dtype=float32",
    "model.max_context=4000",
    "model.max_new_tokens=2",
    "model.lora_rank=2",
    "solver.lr=0.01",
    "challenger.lr=0.01",
]


@pytest.fixture
def begin(corpus_file, chat_model_folder, tmp_path):
    """Return a function that trains with overrides and returns the run's folder."""

    def begun(name, *overrides, preset="sesa"):
        base = [f"corpus={corpus_file}", f"policy={chat_model_folder}"]
        return train(resolve(method(preset), [*SMALL, *base, *overrides]), tmp_path / name)

    return begun


def events(run):
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def weights(run, step):
    return load_file(run / f"checkpoints/step-{step:06d}/weights.safetensors")


def moved(run, role):
    first, last = weights(run, 0), weights(run, 2)
    return any(name.startswith(f"{role}/") and not torch.equal(first[name], last[name]) for name in first)


@pytest.mark.parametrize("preset", ["sesa", "ssp"])
def test_whole_models_are_trained_saved_and_evaluated_like_adapters(begin, preset):
    run = begin("full", "model.train=full", "solver.lr=0.001", "challenger.lr=0.001", preset=preset)
    roles = ("shared",) if preset == "ssp" else ("solver", "challenger")
    assert all(moved(run, role) for role in roles)
    for event in events(run):
        assert event["solver/logp_gap_max"] < 1e-3  # with shared weights too: measured before either update
        assert event["challenger/logp_gap_max"] < 1e-3
    (row,) = evaluate(run, Dataset("roads", [Question("q", "Where is Isk?", ("x",))], corpus=None, fictional=False))
    assert row.memory == "off"


def test_a_frozen_challenger_plays_and_never_learns(begin):
    run = begin("frozen", "challenger.lr=0")
    assert moved(run, "solver")
    assert not moved(run, "challenger")
    assert all("challenger/loss" not in event and "challenger/samples" in event for event in events(run))
    state = torch.load(run / "checkpoints/step-000002/optimizers.pt", weights_only=True)
    assert set(state) == {"solver"}
    train(None, run, resume=True)


def test_an_opponent_of_another_run_plays_with_its_weights(begin):
    past = begin("past")
    place = past / "checkpoints/step-000001"
    run = begin("present", f"challenger.start={place}", "challenger.lr=0")
    own, theirs = weights(run, 2), load_file(place / "weights.safetensors")
    names = [name for name in theirs if name.startswith("challenger/")]
    assert names
    assert all(torch.equal(own[name], theirs[name]) for name in names)
    assert moved(run, "solver")


def test_a_guard_stops_the_run_keeps_the_last_good_checkpoint_and_stops_again_when_resumed(begin, tmp_path):
    with pytest.raises(
        TrainingStopped, match=r"entropy is .* above its limit 0.1 for 2 steps; the last good step is 0"
    ):
        begin("stopped", "steps=5", "guard.max_entropy=0.1", "guard.patience=2")
    run = tmp_path / "stopped"
    assert [event["step"] for event in events(run)] == [1, 2]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-000000", "step-000001"]
    with pytest.raises(TrainingStopped, match="for 2 steps; the last good step is 0"):  # its guard knows of step 1
        train(load_settings(run / "settings.yaml"), run, resume=True)
    assert [event["step"] for event in events(run)] == [1, 2]


def test_questions_are_drawn_again_until_enough_of_them_teach_something(begin):
    plain, again = events(begin("plain", "steps=1")), events(begin("again", "steps=1", "resample=3"))
    assert plain[0]["rounds"] == 6
    assert again[0]["rounds"] in (12, 18, 24)
    assert again[0]["solver/samples"] >= plain[0]["solver/samples"]
