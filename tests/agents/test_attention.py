"""Attention in blocks finds, and passes back, what plain attention does, whatever is hidden and wherever it is cut."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from agents import attention
from agents.attention import BLOCKS, _Attend, _blocks
from sesa_env.errors import InvalidInput

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS, initializer_range=0.2)),
    "windows": lambda: MistralForCausalLM(MistralConfig(**SHAPE, **HEADS, sliding_window=4, initializer_range=0.2)),
}


@pytest.fixture(params=FAMILIES)
def model(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return FAMILIES[request.param]().eval()


def found(model, implementation, **inputs):
    model.set_attn_implementation(implementation)
    model.zero_grad()
    logits_NTV = model(input_ids=torch.arange(36).reshape(3, 12), use_cache=False, **inputs).logits
    seen_NT = inputs.get("attention_mask", torch.ones(3, 12)).bool()
    (logits_NTV[seen_NT] * torch.linspace(-1, 1, 64)).tanh().sum().backward()
    return logits_NTV.detach()[seen_NT], torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("scores", [1, 3 * 4 * 12 * 5, 10**9])  # blocks of 1, of 5 and of all 12 queries
@pytest.mark.parametrize("lengths", [None, (12, 7, 3)])
def test_a_model_computes_and_learns_what_it_does_with_eager_attention(monkeypatch, model, scores, lengths):
    monkeypatch.setattr(attention, "_SCORES", scores)
    inputs = {}
    if lengths:
        inputs["attention_mask"] = (torch.arange(12) < torch.tensor(lengths)[:, None]).long()
    for ours, theirs in zip(found(model, BLOCKS, **inputs), found(model, "eager", **inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@given(
    queries=st.integers(1, 9),
    before=st.integers(0, 6),
    groups=st.sampled_from([1, 3]),
    scores=st.integers(1, 400),
    seed=st.integers(0, 99),
)
def test_gradients_are_those_of_plain_attention(queries, before, groups, scores, seed):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    keys = before + queries
    seen = torch.rand(2, 1, queries, keys, generator=generator) < 0.7
    seen |= torch.eye(queries, keys, dtype=torch.bool).roll(before, dims=-1)  # each sees itself at least
    tensors = [draw(2, 2, groups, queries, 4), draw(2, 2, keys, 4), draw(2, 2, keys, 4)]
    grad, gradients, values = draw(2, 2, groups, queries, 4).float(), [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_SCORES", scores)
        for plain in (True, False):
            query, key, value = (tensor.float().requires_grad_() for tensor in tensors)
            if plain:
                score = (query @ key[:, :, None].transpose(-1, -2)).masked_fill(~seen[:, :, None], -1e30)
                result = score.softmax(dim=-1) @ value[:, :, None]
            else:
                result = _Attend.apply(query, key, value, seen)
            result.backward(grad)
            values.append(result.detach())
            gradients.append([tensor.grad for tensor in (query, key, value)])
    torch.testing.assert_close(*values, atol=1e-5, rtol=1e-4)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_keys_that_no_query_of_a_block_sees_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(attention, "_SCORES", 4 * 10)
    query, key = torch.zeros(1, 1, 1, 8, 4), torch.zeros(1, 1, 10, 4)
    seen = torch.ones(8, 10, dtype=torch.bool).tril(2).triu(-1)[None, None]
    blocks = list(_blocks(query, key, seen))
    assert [(block.queries, block.keys) for block in blocks] == [
        (slice(0, 4), slice(0, 6)),
        (slice(4, 8), slice(3, 10)),
    ]
    (whole,) = _blocks(query[..., :1, :], key, torch.ones(1, 1, 1, 10, dtype=torch.bool))
    assert whole.hidden_N11BK is None


def test_bfloat16_stays_within_its_rounding():
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(*shape, generator=generator) for shape in ((2, 2, 2, 50, 8), (2, 2, 50, 8), (2, 2, 50, 8))]
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        leaves = [tensor.to(dtype).clone().requires_grad_() for tensor in tensors]
        _Attend.apply(*leaves, None).sum().backward()
        results.append(torch.cat([leaf.grad.float().flatten() for leaf in leaves]))
    assert (results[0] - results[1]).norm() < 0.02 * results[0].norm()


def test_a_model_that_wants_what_is_not_done_is_told_what_to_choose():
    config = Gemma2Config(**SHAPE, **HEADS, head_dim=8, attn_logit_softcapping=0.5)
    with torch.random.fork_rng():
        model = Gemma2ForCausalLM(config).eval()
    model.set_attn_implementation(BLOCKS)
    with pytest.raises(InvalidInput, match=r"wants \['softcap'\] of attention: choose model.attention=eager"):
        model(input_ids=torch.tensor([[1, 2, 3]]))
