"""Adapters and whole models behind one face: separate weights, references, where a seat starts, frozen seats."""

import dataclasses
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agents.attention import BLOCKS
from agents.checkpoint import load_checkpoint, save_checkpoint
from agents.config import ModelSettings, Settings, resolve
from agents.device import attention_for, resolve_device
from agents.learner import Sample
from agents.mini import MODELS
from agents.policies.hf import LanguageModel
from agents.seats import load_model, make_seats
from agents.tokens import TokenSequence
from sesa_env.errors import InvalidInput, SettingsError
from skill_memory.none import NoMemory

SMALL = ["model.dtype=float32", "model.lora_rank=2", "solver.lr=0.01", "challenger.lr=0.01", "memory.kind=none"]


@pytest.fixture(params=["lora", "full"])
def train(request):
    return f"model.train={request.param}"


@pytest.fixture
def make(chat_model_folder):
    """Return a function that makes a model and its seats from overrides."""

    def made(*overrides):
        settings = resolve({}, [*SMALL, f"policy={chat_model_folder}", *overrides])
        model = load_model(settings)
        return settings, model, make_seats(model, NoMemory(), settings)

    return made


def attempts(learner, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(4):
        sequence = TokenSequence()
        sequence.append_context([5, 6, 7])
        sequence.append_written(torch.randint(3, 200, (5,), generator=generator).tolist(), [-1.0] * 5)
        made.append(sequence.freeze(episode=f"e{number}"))
    scores = learner.score(made)
    return [
        Sample(dataclasses.replace(one, logp_T=score), float(i % 2), f"q{i // 2}")
        for i, (one, score) in enumerate(zip(made, scores, strict=True))
    ]


def snapshot(model, *names):
    return {(name, key): tensor.clone() for name in names for key, tensor in model.weights.state(name).items()}


def moved(before, model, name):
    after = snapshot(model, name)
    return any(not torch.equal(before[key], tensor) for key, tensor in after.items())


def test_an_update_moves_its_own_weights_and_no_others(make, train):
    _, model, seats = make(train)
    before = snapshot(model, "solver", "challenger")
    stats = seats["solver"].learner.update(attempts(seats["solver"].learner))
    assert stats.updated
    assert stats.kl == pytest.approx(0.0, abs=1e-6)  # the reference is where it started
    assert moved(before, model, "solver")
    assert not moved(before, model, "challenger")
    again = seats["solver"].learner.update(attempts(seats["solver"].learner, seed=1))
    assert again.kl > 1e-6  # and it stayed there
    seats["challenger"].learner.update(attempts(seats["challenger"].learner))
    assert moved(before, model, "challenger")


def test_shared_weights_are_one_set_with_one_optimiser(make, train):
    _, model, seats = make(train, "shared_weights=true")
    assert seats["solver"].learner.optimizer is seats["challenger"].learner.optimizer
    before = snapshot(model, "shared")
    seats["challenger"].learner.update(attempts(seats["challenger"].learner))
    assert moved(before, model, "shared")
    with pytest.raises((KeyError, ValueError)), model.weights.using("solver"):
        pass


def test_a_learning_rate_of_zero_freezes_a_seat(make, train):
    settings, _, seats = make(train, "challenger.lr=0")
    assert settings.challenger.frozen
    assert seats["challenger"].learner is None
    assert seats["solver"].learner is not None


def test_whole_models_share_one_reference_and_need_none_without_kl(make):
    _, model, _ = make("model.train=full")
    assert model.weights.reference_model("solver") is model.weights.reference_model("challenger")
    assert model.weights.model("solver") is not model.weights.model("challenger")
    assert not any(one.requires_grad for one in model.weights.reference_model("solver").parameters())
    _, model, _ = make("model.train=full", "solver.kl_coef=0", "challenger.kl_coef=0")
    with pytest.raises(InvalidInput, match="no reference of 'solver' was kept"):
        model.weights.reference_model("solver")


def checkpoint_of(make, tmp_path, *overrides):
    """Train a solver for one update and save it."""
    _, model, seats = make(*overrides)
    learner = seats["solver"].learner
    learner.update(attempts(learner))
    place = save_checkpoint(tmp_path, step=1, model=model, seats=seats, memory=NoMemory())
    return place, model, seats


def test_a_seat_can_start_from_a_checkpoint_which_is_then_its_reference(make, train, tmp_path):
    place, first, _ = checkpoint_of(make, tmp_path, train)
    _, model, seats = make(train, f"solver.start={place}")
    assert not moved(snapshot(first, "solver"), model, "solver")
    stats = seats["solver"].learner.update(attempts(seats["solver"].learner))
    assert stats.kl == pytest.approx(0.0, abs=1e-6)
    assert moved(snapshot(first, "solver"), model, "solver")
    for key, tensor in snapshot(first, "challenger").items():
        assert torch.equal(tensor, snapshot(model, "challenger")[key])


def test_a_past_opponent_plays_with_its_old_weights_and_never_learns(make, train, tmp_path):
    place, first, _ = checkpoint_of(make, tmp_path, train, "shared_weights=true")
    _, model, seats = make(train, f"challenger.start={place}", "challenger.lr=0")
    assert seats["challenger"].learner is None
    own, theirs = model.weights.state("challenger"), first.weights.state("shared")
    assert all(torch.equal(own[key], theirs[key]) for key in theirs)
    assert not all(torch.equal(model.weights.state("solver")[key], theirs[key]) for key in theirs)
    again = save_checkpoint(tmp_path, step=2, model=model, seats=seats, memory=NoMemory())
    assert load_checkpoint(again, model=model, seats=seats) == 2


@pytest.mark.parametrize("source", ["mini-start", "{folder}"])
def test_a_whole_model_can_start_from_another_policy_of_its_kind(source):
    start = source.format(folder=MODELS / "mini-start")
    settings = resolve({}, ["policy=mini", "model.dtype=float32", f"solver.start={start}"])
    model = load_model(settings)
    make_seats(model, NoMemory(), settings)
    early = load_model(resolve({}, ["policy=mini-start", "model.dtype=float32"]))
    for key, tensor in early.weights.state("solver").items():
        assert torch.equal(model.weights.state("solver")[key], tensor)
        assert tensor.ndim == 1 or not torch.equal(model.weights.state("challenger")[key], tensor)


@pytest.mark.parametrize(
    ("overrides", "error", "says"),
    [
        (["solver.start=nowhere"], InvalidInput, "policy of mini, mini-start, smollm2, got 'nowhere'"),
        (["model.lora_rank=4", "solver.start={place}"], InvalidInput, "do not fit adapter 'solver'"),
        (["model.train=full", "solver.start={place}"], InvalidInput, "do not fit model 'solver'"),
        (["shared_weights=true", "challenger.start={place}"], SettingsError, "challenger.start must be None"),
        (["solver.start=mini"], InvalidInput, "unless model.train=full, got .*mini"),
        (["model.train=full", "solver.start=mini"], InvalidInput, "must have the policy's tokenizer"),
        (["model.train=full", "solver.start={wider}"], InvalidInput, "do not fit model 'solver'"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(make, chat_model_folder, tmp_path, overrides, error, says):
    place, _, _ = checkpoint_of(make, tmp_path)
    wider = shutil.copytree(chat_model_folder, tmp_path / "wider")
    config = AutoConfig.from_pretrained(wider)
    config.intermediate_size *= 2
    AutoModelForCausalLM.from_config(config).save_pretrained(wider)
    with pytest.raises(error, match=says):
        make(*(one.format(place=place, wider=wider) for one in overrides))


def test_a_damaged_checkpoint_is_told(make, tmp_path):
    place, _, _ = checkpoint_of(make, tmp_path)
    (place / "state.json").unlink()
    with pytest.raises(InvalidInput, match="missing or damaged"):
        make(f"solver.start={place}")


def test_whole_models_compute_in_bfloat16_and_stay_in_float32(make):
    _, model, seats = make("model.train=full", "model.dtype=bfloat16")
    learner = seats["solver"].learner
    stats = learner.update(attempts(learner))
    assert stats.updated
    assert stats.logp_gap_max < 0.05
    assert {tensor.dtype for tensor in model.weights.state("solver").values()} == {torch.float32}
    with model.weights.using("solver") as module:
        assert module(input_ids=torch.tensor([[1, 2]])).logits.dtype == torch.bfloat16


def test_sampler_and_learner_agree_on_whole_models(make, train):
    _, model, seats = make(train)
    policy = seats["solver"].agent.policy
    prompts = [model.encode(text) for text in ("who wrote it?", "where is Isk?")]
    written = policy.generate(prompts, stop=(), max_new_tokens=6, temperature=1.0)
    made = []
    for number, (prompt, completion) in enumerate(zip(prompts, written, strict=True)):
        sequence = TokenSequence()
        sequence.append_context(prompt)
        sequence.append_written(completion.token_T, completion.logp_T)
        made.append(sequence.freeze(episode=f"e{number}"))
    for one, score in zip(made, seats["solver"].learner.score(made), strict=True):
        assert score == pytest.approx(one.logp_T, abs=1e-4)


# --- device and attention ---


def test_a_gpu_is_taken_where_there_is_one_and_missed_where_it_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(SettingsError, match="sees no GPU, got 'cuda'"):
        resolve_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("attention", "dtype", "device", "chosen"),
    [
        ("auto", "bfloat16", "cpu", BLOCKS),
        ("auto", "float32", "cpu", "sdpa"),
        ("auto", "bfloat16", "cuda", "sdpa"),
        ("sdpa", "bfloat16", "cpu", "sdpa"),
        ("eager", "float32", "cuda", "eager"),
    ],
)
def test_attention_is_chosen_for_the_number_format_and_the_device(attention, dtype, device, chosen):
    assert attention_for(ModelSettings(attention=attention, dtype=dtype), torch.device(device)) == chosen


def test_a_model_is_loaded_with_the_attention_that_was_chosen(chat_model_folder):
    settings = ModelSettings(attention="eager", dtype="float32", device="cpu")
    model = LanguageModel.load(chat_model_folder, adapters=["solver"], settings=settings, seed=0)
    module = model.weights.model("solver")
    assert module.config._attn_implementation == "eager"
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}


def test_the_defaults_train_both_seats():
    assert not Settings().solver.frozen
    assert not Settings().challenger.frozen
