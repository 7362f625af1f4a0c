"""A run from settings to folder, a tiny model, real gradients: complete, repeatable, resumable, all or nothing."""

import json

import pytest
import torch
from safetensors.torch import load_file

from agents.config import load_settings, resolve
from benchmarks.evaluate import evaluate
from benchmarks.methods import method
from benchmarks.train import train
from sesa_env.errors import CorpusError, InvalidInput, ModelNotFound, UnknownName
from sesa_env.types import Question

SMALL = [
    "rounds=6",
    "game.attempts=4",
    "game.validators=[format]",
    "game.max_invalid=9",
    "game.solver_turns=9",
    "game.challenger_turns=9",
    "game.invalid_reward=-1.0",
    "memory.token_budget=4000",
    "memory.distil_every=1",
    "memory.min_waiting=1",
    "model.dtype=float32",
    "model.max_context=6000",
    "model.max_new_tokens=2",
    "model.lora_rank=2",
    "solver.lr=0.01",
    "challenger.lr=0.01",
]


def settings_for(name, corpus, folder, *more):
    return resolve(method(name), [*SMALL, f"corpus={corpus}", f"policy={folder}", *more])


@pytest.fixture(scope="module")
def run(corpus_file, chat_model_folder, tmp_path_factory):
    settings = settings_for("sesa", corpus_file, chat_model_folder, "steps=2", "checkpoint_every=1")
    return train(settings, tmp_path_factory.mktemp("runs") / "sesa")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_folder_says_everything_about_the_run(run):
    names = {path.name for path in run.iterdir()}
    assert {"settings.yaml", "manifest.json", "events.jsonl", "rounds.jsonl", "timings.jsonl"} <= names
    assert {"tensorboard", "bank.sqlite", "checkpoints"} <= names
    assert [event["step"] for event in lines(run / "events.jsonl")] == [1, 2]
    assert len(lines(run / "rounds.jsonl")) == 12
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-000001", "step-000002"]
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["seeds"] == [0]
    assert str(run.parent) not in json.dumps(manifest)


@pytest.mark.parametrize("role", ["solver", "challenger"])
def test_each_role_is_updated_by_real_gradients_and_logs_them(run, role):
    events = lines(run / "events.jsonl")
    for name in ("loss", "kl", "entropy", "ratio_mean", "clip_fraction", "zero_variance_share", "logp_gap_max"):
        assert f"{role}/{name}" in events[0]
    assert f"{role}/action/search" in events[0]
    assert max(event[f"{role}/grad_norm"] for event in events) > 0
    assert max(event[f"{role}/logp_gap_max"] for event in events) < 1e-4
    first, last = (load_file(run / f"checkpoints/step-00000{step}/adapters.safetensors") for step in (1, 2))
    assert any(name.startswith(role) and not torch.equal(first[name], last[name]) for name in first)


def test_failures_at_the_frontier_become_skills_that_later_prompts_can_show(run):
    consolidations = [event["consolidation"] for event in lines(run / "events.jsonl") if "consolidation" in event]
    assert sum(one["drained"] for one in consolidations) > 0


def test_the_same_settings_and_seed_give_the_same_run(run, tmp_path):
    again = train(load_settings(run / "settings.yaml"), tmp_path / "again")
    for name in ("events.jsonl", "rounds.jsonl", "settings.yaml"):
        assert (again / name).read_text() == (run / name).read_text()
    assert same_weights(again, run)


def test_a_run_that_was_cut_goes_on_and_ends_as_one_that_was_not(run, tmp_path):
    settings = load_settings(run / "settings.yaml")
    whole = train(settings, tmp_path / "cut")
    for late in ("step-000002",):  # as if it had been killed in the second step, with a line half written
        for file in (whole / "checkpoints" / late).iterdir():
            file.unlink()
    (whole / "events.jsonl").open("a").write('{"step": 3, "rou')
    train(None, whole, resume=True)
    for name in ("events.jsonl", "rounds.jsonl"):
        assert (whole / name).read_text() == (run / name).read_text()
    assert same_weights(whole, run)


def same_weights(one, other):
    first, second = (load_file(folder / "checkpoints/step-000002/adapters.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_shared_weights_keep_one_adapter(corpus_file, chat_model_folder, tmp_path):
    run = train(settings_for("ssp", corpus_file, chat_model_folder, "steps=1"), tmp_path / "ssp")
    names = load_file(run / "checkpoints/step-000001/adapters.safetensors")
    assert {name.partition("/")[0] for name in names} == {"shared"}


def test_zero_steps_save_the_untrained_policy_and_the_primed_memory(corpus_file, chat_model_folder, tmp_path):
    run = train(settings_for("base", corpus_file, chat_model_folder), tmp_path / "base")
    rows = evaluate(run, [Question("q", "Who wrote The Salt Road?", ("Orla Venn",))], dataset="d", memory_modes=("on",))
    assert len(rows[0].skill_ids) >= 1


def test_an_evaluation_gives_a_row_per_question_and_mode_and_leaves_the_run_as_it_was(run):
    questions = [Question(f"q{i}", f"Who wrote The Salt Road {i}?", ("Orla Venn",)) for i in range(5)]
    bank = (run / "checkpoints/step-000002/memory.sqlite").read_bytes()
    rows = evaluate(run, questions, dataset="roads", memory_modes=("on", "off"))
    assert [(row.memory, row.question_id) for row in rows] == [(m, q.id) for m in ("on", "off") for q in questions]
    assert all(row.skill_ids for row in rows[:5])
    assert not any(row.skill_ids for row in rows[5:])
    assert not any(row.fictional for row in rows)
    assert (run / "checkpoints/step-000002/memory.sqlite").read_bytes() == bank


def test_answers_do_not_depend_on_who_else_is_asked(run):
    questions = [Question(f"q{i}", f"Where is Tarrow {'x' * i}?", ("Neland",)) for i in range(4)]
    together = evaluate(run, questions, dataset="d", memory_modes=("off",))
    alone = [evaluate(run, [one], dataset="d", memory_modes=("off",))[0] for one in questions]
    assert together == alone


def test_a_run_without_skills_has_no_memory_to_switch_on(corpus_file, chat_model_folder, tmp_path):
    run = train(settings_for("ssp", corpus_file, chat_model_folder, "steps=0"), tmp_path / "ssp")
    with pytest.raises(InvalidInput, match="no skills"):
        evaluate(run, [Question("q", "Who?", ("x",))], dataset="d", memory_modes=("on",))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("policy=./no-such-model", ModelNotFound),
        ("corpus=no-such-corpus.jsonl", CorpusError),
        ("memory.kind=diary", UnknownName),
        ("retriever=google", UnknownName),
    ],
)
def test_a_run_that_cannot_start_leaves_nothing_behind(corpus_file, chat_model_folder, tmp_path, change, error):
    with pytest.raises(error):
        train(settings_for("sesa", corpus_file, chat_model_folder, change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(run):
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(InvalidInput, match="new or empty"):
        train(load_settings(run / "settings.yaml"), run)
    assert sorted(path.name for path in run.iterdir()) == before
