"""Cold start by example: what is imitated is what would have been sampled, and the result is a policy to start from."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agents.checkpoint import load_start
from agents.config import resolve
from agents.imitation import Pupil, Recorded, fit, updates_of
from agents.policies import recommended_settings
from agents.rollout import play
from agents.scripted import Oracle
from agents.seats import load_model, make_seats
from agents.solver import make_solver
from benchmarks.sft import sft
from benchmarks.train import train
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.types import Question
from skill_memory import NoMemory

ROWS = [
    ("q1", "Who wrote The Salt Road?", ["Orla Venn"], ["The Salt Road"]),
    ("q2", "Where was the author of The Salt Road born?", ["Tarrow"], ["The Salt Road", "Orla Venn"]),
    ("q3", "Which river flows through Obern?", ["Isk", "the Isk"], ["Isk"]),
]
SMALL = [
    "model.dtype=float32",
    "model.max_context=6000",
    "model.lora_rank=4",
    "solver.lr=0.02",
    "model.demonstrations=false",
    "memory.token_budget=900",
    "game.validators=[format]",
]


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("qa") / "roads.jsonl"
    keys = ("id", "question", "answers", "supporting_titles")
    path.write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in ROWS))
    return path


@pytest.fixture
def settings(corpus_file, chat_model_folder):
    return resolve({}, [*SMALL, f"corpus={corpus_file}", f"policy={chat_model_folder}"])


def pupil_of(model, teacher, settings):
    def make_agent(pen):
        return make_solver(pen, NoMemory(), token_budget=300, max_new_tokens=48, temperature=1.0)

    return Pupil(model.policy("solver", seed=0), teacher, make_agent, encode=model.encode)


def attempt(pupil, corpus, name="round"):
    game = Game(GameSettings(), judge=ExactMatchJudge(), id=name)
    game.ask(Question("q", "Who wrote The Salt Road?", ("Orla Venn",)), attempts=1)
    (round_,) = play([game], {"solver": pupil}, open_retriever(str(corpus), retriever="bm25", index=None))
    return round_.solvers[0], pupil.drain()


def test_what_is_imitated_is_token_for_token_what_a_policy_would_have_left(settings, corpus_file):
    model = load_model(settings)
    question = "Who wrote The Salt Road?"
    oracle = Oracle({question: "Orla Venn"}, {question: ["The Salt Road"]})
    played, tokens = attempt(pupil_of(model, oracle, settings), corpus_file)
    (record,) = tokens.values()
    said = [turn.text for turn in played.turns]
    assert (said, played.reward) == (["<search>The Salt Road</search>", "<answer>Orla Venn</answer>"], 1.0)
    written = [token for token, own in zip(record.token_T, record.written_T, strict=True) if own]
    assert written == [token for text in said for token in model.encode(text)]

    class Parrot:
        """A policy that samples the oracle's very tokens."""

        def __init__(self, policy):
            self._policy, self._texts = policy, iter(said)
            self.max_context = policy.max_context

        def __getattr__(self, name):
            return getattr(self._policy, name)

        def generate(self, prompts, **_):
            from agents.base import Completion

            ids = tuple(model.encode(next(self._texts)))
            return [Completion(ids, (-1.0,) * len(ids), "stop") for _ in prompts]

    sampler = make_solver(
        Parrot(model.policy("solver", seed=0)), NoMemory(), token_budget=300, max_new_tokens=48, temperature=1.0
    )
    _, sampled = attempt(sampler, corpus_file)
    (expected,) = sampled.values()
    assert (record.token_T, record.written_T) == (expected.token_T, expected.written_T)


def test_a_recorded_attempt_is_played_again_and_an_unknown_one_is_not(settings, corpus_file):
    model = load_model(settings)
    said = {"round/solver_0": ("<search>Orla</search>", "<answer>orla venn</answer>")}
    played, _ = attempt(pupil_of(model, Recorded(said), settings), corpus_file)
    assert played.queries == ("Orla",)
    assert played.reward == 1.0
    with pytest.raises(InvalidInput, match="turn 0 of 'other/solver_0' was not recorded"):
        attempt(pupil_of(model, Recorded(said), settings), corpus_file, name="other")


def test_a_taught_policy_is_a_folder_that_writes_as_it_was_shown(settings, data_file, tmp_path):
    losses = []
    out = sft(
        settings,
        tmp_path / "start",
        data=[str(data_file)],
        questions=10,
        skills="both",
        epochs=12,
        batch=3,
        on_update=lambda number, total, stats: losses.append((number, total, stats.nll)),
    )
    assert losses[-1][:2] == (24, 24)  # three questions with and without skills, twelve times, three an update
    assert losses[-1][2] < 0.85 * losses[0][2]
    lines = [json.loads(line) for line in (out / "sft.jsonl").read_text().splitlines()]
    assert [line["nll"] for line in lines] == [nll for _, _, nll in losses]
    assert {"manifest.json", "settings.yaml", "config.json", "sesa.json"} <= {path.name for path in out.iterdir()}
    assert recommended_settings(str(out)) == {"model": {"demonstrations": False}}
    assert not list(tmp_path.glob(".*"))

    merged = AutoModelForCausalLM.from_pretrained(out)
    adapted = load_model(settings)
    load_start(out / "weights", adapted, name="solver", role="solver")
    ids = torch.tensor([adapted.encode("Question: Who wrote The Salt Road?")])
    with torch.no_grad(), adapted.weights.using("solver") as module:
        torch.testing.assert_close(merged(input_ids=ids).logits, module(input_ids=ids).logits, atol=1e-4, rtol=1e-4)

    # A run can start from the folder, and a seat from the weights alone.
    run = train(replace(settings, policy=str(out), steps=0), tmp_path / "run")
    assert (run / "checkpoints/step-000000").is_dir()
    seat = replace(settings.solver, start=str(out / "weights"))
    started = replace(settings, solver=seat)
    make_seats(load_model(started), NoMemory(), started)


def test_whole_models_can_be_taught_too(settings, data_file, tmp_path):
    whole = replace(settings, model=replace(settings.model, train="full"))
    out = sft(whole, tmp_path / "start", data=[str(data_file)], questions=10, epochs=2, batch=3)
    first = load_file(f"{settings.policy}/model.safetensors")
    last = load_file(out / "model.safetensors")
    assert first.keys() == last.keys()
    assert any(not torch.equal(first[name], last[name]) for name in first)
    model = load_model(whole)
    load_start(out / "weights", model, name="challenger", role="challenger")
    for name, tensor in model.weights.state("challenger").items():
        assert torch.equal(tensor, last[name])


def test_the_oracle_teaches_from_training_worlds_and_never_from_test_worlds(settings, tmp_path):
    small = replace(settings, model=replace(settings.model, max_context=20_000))
    out = sft(small, tmp_path / "start", data=["atlas:0"], questions=2, batch=2)
    (line,) = [json.loads(line) for line in (out / "sft.jsonl").read_text().splitlines()]
    assert line["sequences"] == 2
    with pytest.raises(InvalidInput, match="even seeds, got 'atlas:1'"):
        sft(small, tmp_path / "other", data=["atlas:1"], questions=2)
    assert not (tmp_path / "other").exists()


def test_a_runs_own_successes_can_be_taught(settings, corpus_file, tmp_path):
    lucky = resolve(
        {},
        [
            *SMALL,
            "model.max_new_tokens=2",
            f"corpus={corpus_file}",
            f"policy={settings.policy}",
            "rounds=6",
            "steps=1",
            "game.max_invalid=9",
            "game.solver_turns=9",
            "game.challenger_turns=9",
        ],
    )
    run = train(lucky, tmp_path / "run")
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    won = {
        (round_["question"]["text"], tuple(turn["text"] for turn in attempt["turns"]))
        for round_ in rounds
        for attempt in round_["solvers"]
        if attempt["reward"] > 0 and all(turn["action"]["kind"] != "invalid" for turn in attempt["turns"])
    }
    if not won:
        with pytest.raises(InvalidInput, match="has none"):
            sft(lucky, tmp_path / "start", data=[str(run)], questions=100)
        return
    out = sft(lucky, tmp_path / "start", data=[str(run)], questions=100, batch=1000)
    (line,) = [json.loads(line) for line in (out / "sft.jsonl").read_text().splitlines()]
    assert line["sequences"] == len(won)


def test_every_attempt_is_seen_once_an_epoch():
    class Ledger:
        def __init__(self):
            self.seen = []

        def imitate(self, trajectories):
            self.seen.append(list(trajectories))
            return len(trajectories)

    ledger = Ledger()
    sizes = list(fit(ledger, list("abcdefg"), epochs=3, batch=3, seed=1))
    assert sizes == [3, 3, 1] * 3
    assert len(sizes) == updates_of(7, epochs=3, batch=3)
    for epoch in range(3):
        assert sorted("".join("".join(part) for part in ledger.seen[3 * epoch : 3 * epoch + 3])) == list("abcdefg")
    assert ledger.seen[:3] != ledger.seen[3:6]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"skills": "some"}, "skills must be one of"),
        ({"questions": 0}, "questions must be at least 1"),
        ({"batch": 0}, "batch"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_made(settings, data_file, tmp_path, change, says):
    with pytest.raises(InvalidInput, match=says):
        sft(settings, tmp_path / "x", **{"data": [str(data_file)], "questions": 3, **change})
    (tmp_path / "used").mkdir()
    (tmp_path / "used/file").touch()
    with pytest.raises(InvalidInput, match="new or empty"):
        sft(settings, tmp_path / "used", data=[str(data_file)], questions=3)


def test_skills_that_are_not_there_cannot_be_shown(settings, data_file, tmp_path):
    bare = replace(settings, memory=replace(settings.memory, kind="none"))
    with pytest.raises(InvalidInput, match="starts without any"):
        sft(bare, tmp_path / "x", data=[str(data_file)], questions=3, skills="on")
