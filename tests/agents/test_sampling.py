"""Tokens are drawn from the whole vocabulary as often as the model says; log-probabilities are the model's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents.generation.sampling import sample


def logits(rows, vocabulary, *, seed=0, scale=3.0):
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * scale


def uniform(rows, seed=0):
    return torch.rand(rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(
    vocabulary=st.integers(1, 1300),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 100),
)
def test_what_is_drawn_is_in_the_vocabulary_and_has_the_log_probability_of_a_softmax(
    vocabulary, temperature, dtype, seed
):
    logits_NV = logits(4, vocabulary, seed=seed).to(dtype)
    expected_NV = (logits_NV.float() / (temperature or 1.0)).log_softmax(dim=-1)
    token_N, logp_N = sample(logits_NV.clone(), temperature=temperature, uniform_N=uniform(4, seed))
    assert torch.allclose(logp_N, expected_NV.gather(-1, token_N[:, None]).squeeze(-1), atol=1e-5)
    if temperature == 0.0:
        assert torch.equal(token_N, expected_NV.argmax(dim=-1))


@pytest.mark.parametrize("vocabulary", [64, 97, 1024])
def test_each_token_is_drawn_as_often_as_its_probability_says(vocabulary):
    trials = 5_000
    row_1V = logits(1, vocabulary, scale=1.5)
    token_N, _ = sample(row_1V.repeat(trials, 1), temperature=0.8, uniform_N=uniform(trials))
    probability_V = (row_1V[0] / 0.8).softmax(dim=-1)
    share_V = torch.bincount(token_N, minlength=vocabulary) / trials
    error_V = (probability_V * (1 - probability_V) / trials).sqrt()
    # Five standard errors, since a thousand tokens are looked at; three more draws, for those too rare to be normal.
    assert ((share_V - probability_V).abs() <= 5 * error_V + 3 / trials).all()


@pytest.mark.parametrize("vocabulary", [97, 1024])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0 - 2**-53])
def test_a_token_of_probability_zero_is_never_drawn(vocabulary, place):
    for possible in (0, 1, vocabulary // 2, vocabulary - 1):
        logits_1V = torch.full((1, vocabulary), -torch.inf)
        logits_1V[0, possible] = 2.0
        token_1, logp_1 = sample(logits_1V, temperature=1.0, uniform_N=torch.tensor([place], dtype=torch.float64))
        assert (token_1.item(), logp_1.item()) == (possible, 0.0)


def test_a_row_draws_the_same_in_any_company():
    logits_NV, uniform_N = logits(6, 300), uniform(6)
    together, _ = sample(logits_NV.clone(), temperature=1.0, uniform_N=uniform_N)
    for row in range(6):
        alone, _ = sample(logits_NV[row : row + 1].clone(), temperature=1.0, uniform_N=uniform_N[row : row + 1])
        assert alone.item() == together[row].item()
