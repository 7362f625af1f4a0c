"""The benchmark gives both ways the same work and reads its clocks right; how fast they are is not tested."""

import time

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

pytest.importorskip("typer")

from benchmarks.perf import generation
from benchmarks.perf.generation import limit, make_work, measure


@pytest.fixture(scope="module")
def model():
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
    )
    made = LlamaForCausalLM(config).eval()
    made.generation_config.eos_token_id = None
    return made


def test_attempts_share_what_they_should_and_fill_about_their_context():
    work = make_work(batch=8, context=256, turns=3, apart=False, vocabulary=1000, seed=0)
    assert work.prompts[0] == work.prompts[3] != work.prompts[4]
    assert work.prompts[0][:64] == work.prompts[4][:64]
    length = len(work.prompts[0]) + 3 * work.written + sum(len(turn[0]) for turn in work.observations)
    assert 256 * 0.75 <= length <= 256 * 1.25
    assert work.total == 8 * 3 * work.written
    apart = make_work(batch=8, context=256, turns=3, apart=True, vocabulary=1000, seed=0)
    assert len({tuple(prompt[:8]) for prompt in apart.prompts}) == 8


def test_both_ways_write_all_tokens_and_a_turn_is_longer_than_its_decoding(model):
    work = make_work(batch=3, context=64, turns=2, apart=False, vocabulary=64, seed=0)
    for clocks in measure(model, work, repeats=2):
        for clock in clocks:
            assert len(clock.turns) == 2
            assert 0.0 < clock.decoding * (work.written - 1) * 2 < clock.total


def test_a_way_that_writes_less_than_it_should_is_an_error(model):
    work = make_work(batch=2, context=64, turns=1, apart=False, vocabulary=64, seed=0)
    with pytest.raises(AssertionError, match="same number"):
        generation._play(work, lambda prompts: ([[1]] * len(prompts), [0.0, 1.0]), time.perf_counter)


def test_the_limit_counts_weights_and_keys(model):
    parameters = sum(tensor.numel() for tensor in model.parameters())
    memory, products = limit(model, batch=10, context=100, bytes_rate=1e9, product_rate=1e12)
    assert memory == pytest.approx(4 * (parameters + 10 * 100 * 2 * 1 * 8) / 1e9)
    assert products == pytest.approx(2 * 10 * parameters / 1e12)
    halved, _ = limit(model.to(torch.bfloat16), batch=10, context=100, bytes_rate=1e9, product_rate=1e12)
    model.to(torch.float32)
    assert halved == pytest.approx(memory / 2)
