"""The speed comparison compares like with like: both ways take the same step."""

import copy

import pytest
import torch

from agents.learner import Learner, LearnerSettings
from benchmarks.perf.update import Turn, _load, make_samples, measure, plain_update, report


@pytest.fixture(scope="module")
def tiny():
    with torch.random.fork_rng():
        model = _load(None, "mini", "sdpa").eval()
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    return model


def test_attempts_share_instructions_and_questions_and_differ_in_length():
    samples = make_samples(questions=3, attempts=4, vocabulary=100, seed=0)
    assert [sample.group for sample in samples] == [0] * 4 + [1] * 4 + [2] * 4
    prompts = [sample.trajectory.token_T[: sample.trajectory.prompt_length] for sample in samples]
    assert len(set(prompts)) == 3
    assert len({prompt[:200] for prompt in prompts}) == 1
    assert len({len(sample.trajectory) for sample in samples}) > 1
    assert make_samples(questions=3, attempts=4, vocabulary=100, seed=0) == samples


def test_both_ways_take_the_same_step(tiny):
    samples = make_samples(questions=2, attempts=2, vocabulary=2048, seed=0)
    ours, plain = copy.deepcopy(tiny), copy.deepcopy(tiny)
    learner = Learner(ours, ours.parameters(), LearnerSettings(lr=0.1, kl_coef=0.0))
    seen = []
    learner.optimizer.register_step_pre_hook(lambda *_: seen.extend(p.grad.clone() for p in ours.parameters()))
    learner.update(samples)
    plain_update(plain, torch.optim.SGD(plain.parameters(), lr=0.0), samples, rows=3)
    assert any(gradient.any() for gradient in seen)
    for one, other in zip(seen, plain.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, atol=1e-5, rtol=1e-3)


def test_turns_are_measured_and_reported_with_their_spread(tiny):
    samples = make_samples(questions=1, attempts=2, vocabulary=2048, seed=0)
    turns = measure(copy.deepcopy(tiny), samples, dtype="float32", micro_batch_tokens=1024, repeats=2)
    assert len(turns) == 2
    assert all(value > 0 for turn in turns for value in turn)
    text = report([Turn(1.0, 2.0, 6e9), Turn(2.0, 3.0, 6e9), Turn(1.0, 3.0, 6e9)], tokens=1000, parameters=100_000)
    assert "ratio     2.00 (1.50 to 3.00)" in text
    assert "learner   1,000 (500 to 1,000) tokens/s" in text
    assert "learner is at 10 (5 to 10) % of the matrix rate" in text
