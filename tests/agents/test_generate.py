"""Batched decoding must give what decoding each prompt alone gives, with log-probabilities the learner reproduces."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.generate import generate

VOCABULARY = 64


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
        )
        return LlamaForCausalLM(config).eval()


def write(model, prompts, *, stopped=lambda ids: False, end_ids=(), temperature=0.0, seed=0, max_new_tokens=12):
    return generate(
        model,
        prompts,
        stopped=stopped,
        end_ids=end_ids,
        pad_id=0,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
    )


PROMPTS = [[5, 6, 7, 8], [5, 6, 9], [5, 6, 7, 8, 10, 11, 12, 13, 14], [5, 6, 7, 8]]


def test_a_batch_writes_what_each_prompt_alone_would(model):
    together = write(model, PROMPTS)
    for prompt, completion in zip(PROMPTS, together, strict=True):
        (alone,) = write(model, [prompt])
        assert completion.token_T == alone.token_T
        assert completion.logp_T == pytest.approx(alone.logp_T, abs=1e-4)


def test_prompts_without_a_common_prefix_are_no_special_case(model):
    prompts = [[1, 2, 3], [4, 5], [6]]
    for prompt, completion in zip(prompts, write(model, prompts), strict=True):
        assert completion.token_T == write(model, [prompt])[0].token_T


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_logps_are_those_of_a_plain_forward_pass_at_the_same_temperature(model, temperature):
    for prompt, completion in zip(PROMPTS, write(model, PROMPTS, temperature=temperature), strict=True):
        token_1T = torch.tensor([[*prompt, *completion.token_T]])
        with torch.no_grad():
            logp_TV = (model(token_1T).logits[0] / temperature).log_softmax(dim=-1)
        expected = logp_TV[len(prompt) - 1 : -1].gather(-1, token_1T[0, len(prompt) :, None]).squeeze(-1)
        assert completion.logp_T == pytest.approx(expected.tolist(), abs=1e-4)


def test_rows_that_end_are_dropped_and_do_not_disturb_the_others(model):
    whole = write(model, PROMPTS)
    first_token = whole[0].token_T[0]
    ended = write(model, PROMPTS, end_ids={first_token})
    assert (ended[0].token_T, ended[0].finish) == ((first_token,), "end")
    for before, after in zip(whole, ended, strict=True):
        assert after.token_T == before.token_T[: len(after.token_T)]
        assert after.finish == ("end" if first_token in before.token_T else "length")


def test_a_stop_keeps_the_token_that_completed_it(model):
    completions = write(model, PROMPTS, stopped=lambda ids: len(ids) == 3)
    assert [(len(one.token_T), one.finish) for one in completions] == [(3, "stop")] * len(PROMPTS)


def test_the_same_seed_writes_the_same_and_another_does_not(model):
    assert write(model, PROMPTS, temperature=1.0, seed=1) == write(model, PROMPTS, temperature=1.0, seed=1)
    assert write(model, PROMPTS, temperature=1.0, seed=1) != write(model, PROMPTS, temperature=1.0, seed=2)


def test_sampling_leaves_the_global_random_state_alone(model):
    before = torch.random.get_rng_state()
    write(model, PROMPTS, temperature=1.0)
    assert torch.equal(before, torch.random.get_rng_state())


def test_tokens_are_drawn_as_often_as_the_model_says(model):
    trials = 2_000
    (example,) = write(model, [[5, 6, 7]], max_new_tokens=1)
    token, probability = example.token_T[0], torch.tensor(example.logp_T[0]).exp().item()
    drawn = write(model, [[5, 6, 7]] * trials, temperature=1.0, max_new_tokens=1, seed=3)
    share = sum(one.token_T[0] == token for one in drawn) / trials
    # Four standard errors of a binomial share.
    assert abs(share - probability) < 4 * (probability * (1 - probability) / trials) ** 0.5
