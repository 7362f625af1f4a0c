"""A run that is killed at random moments ends bit for bit as one that was left alone.  TRAPS H1-H4."""

import multiprocessing
import random
import shutil
import time
from contextlib import closing

import pytest
import torch

from agents.config import load_settings, resolve
from benchmarks.methods import method
from benchmarks.train import train
from skill_memory import SkillBank

SMALL = [
    "steps=3",
    "checkpoint_every=1",
    "rounds=4",
    "game.attempts=3",
    "game.validators=[format,target_share]",
    "game.checks.target_share=0.5",
    "game.max_invalid=9",
    "game.solver_turns=7",
    "game.challenger_turns=7",
    "memory.token_budget=600",
    "memory.distil_every=1",
    "memory.min_waiting=1",
    "model.demonstrations=false",
    "model.dtype=float32",
    "model.max_context=4000",
    "model.max_new_tokens=2",
    "model.lora_rank=2",
    "solver.lr=0.01",
    "challenger.lr=0.01",
    "solver.schedule=cosine",
]


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    """A server that has imported everything, so that each process starts at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # threads would only wait for each other, and for other tests
        patch.setenv("SESA_CACHE", str(tmp_path_factory.mktemp("cache")))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.train", "peft", "bm25s", "torch.utils.tensorboard"])
        first = context.Process(target=time.sleep, args=(0,))  # wait for the imports
        first.start()
        first.join()
        yield context


def run_in(forks, settings, out, *, resume=False, kill_after=None):
    """Train in a process of its own and return how it ended: 0, or minus the signal that killed it."""
    process = forks.Process(target=train, args=(settings, out), kwargs={"resume": resume})
    process.start()
    process.join(kill_after)
    if process.is_alive():
        process.kill()
    process.join()
    return process.exitcode


def run_with_kills(forks, settings, out, *, kills, longest, rng):
    """Kill and resume until `kills` processes have died, let the last one finish, and return how many did die.

    A process that finishes before any has died came too early for its signal, and is forgotten.
    """
    died = 0
    while True:
        resume = any((out / "checkpoints").glob("step-*/state.json"))
        if not resume:  # it died before there was anything to go on from
            shutil.rmtree(out, ignore_errors=True)
        kill_after = rng.uniform(0.0, 0.6 * longest) if died < kills else None
        code = run_in(forks, None if resume else settings, out, resume=resume, kill_after=kill_after)
        if code == 0 and died:
            return died
        if code == 0:
            shutil.rmtree(out)
            longest *= 0.7
            continue
        assert code == -9, "it must die of nothing but the signal"
        died += 1


def ending(out, steps):
    """Return all that a run leaves and a reader may rely on."""
    place = out / f"checkpoints/step-{steps:06d}"
    skills = None
    if (out / "bank.sqlite").exists():
        with closing(SkillBank(load_settings(out / "settings.yaml").memory, out / "bank.sqlite")) as bank:
            assert bank.check() == []
            skills = (list(bank), bank.waiting, bank.snapshot_id)
    files = [out / "events.jsonl", out / "rounds.jsonl", place / "weights.safetensors", place / "state.json"]
    return skills, {file.name: file.read_bytes() for file in [*files, place / "loop.json"]}


def optimizers(out, steps):
    return torch.load(out / f"checkpoints/step-{steps:06d}/optimizers.pt", weights_only=True)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def check(forks, corpus, folder, tmp_path, *, name, more, kills, seed):
    settings = resolve(method(name), [*SMALL, f"corpus={corpus}", f"policy={folder}", f"seed={seed}", *more])
    started = time.monotonic()
    assert run_in(forks, settings, tmp_path / "whole") == 0
    longest = time.monotonic() - started
    rng = random.Random(seed)
    died = run_with_kills(forks, settings, tmp_path / "killed", kills=kills, longest=longest, rng=rng)
    assert died >= 1, "no process was killed, so nothing was shown"
    assert ending(tmp_path / "killed", settings.steps) == ending(tmp_path / "whole", settings.steps)
    moved = optimizers(tmp_path / "whole", settings.steps)
    assert all(state["optimizer"]["state"] for state in moved.values())  # both policies did learn
    assert equal(optimizers(tmp_path / "killed", settings.steps), moved)


def test_a_run_that_is_killed_a_few_times_ends_as_one_that_is_not(forks, corpus_file, chat_model_folder, tmp_path):
    check(forks, corpus_file, chat_model_folder, tmp_path, name="sesa", more=[], kills=4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize(
    ("name", "more"), [("sesa", []), ("ssp", []), ("sesa", ["model.train=full", "checkpoint_every=2"])]
)
def test_a_run_that_is_killed_often_ends_as_one_that_is_not(
    forks, corpus_file, chat_model_folder, tmp_path, name, more, seed
):
    check(forks, corpus_file, chat_model_folder, tmp_path, name=name, more=["steps=6", *more], kills=12, seed=seed)
