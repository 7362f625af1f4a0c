"""Attention in blocks finds, and passes back, what plain attention does, whatever is hidden and wherever it is cut."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
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


@pytest.mark.parametrize("size", [1, 5, 12, 64])
@pytest.mark.parametrize("lengths", [None, (12, 7, 3)])
def test_a_model_computes_and_learns_what_it_does_with_eager_attention(monkeypatch, model, size, lengths):
    monkeypatch.setattr(attention, "_BLOCK", size)
    monkeypatch.setattr(attention, "_STEP", size)
    inputs = {}
    if lengths:
        inputs["attention_mask"] = (torch.arange(12) < torch.tensor(lengths)[:, None]).long()
    for ours, theirs in zip(found(model, BLOCKS, **inputs), found(model, "eager", **inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@given(
    queries=st.integers(1, 9),
    before=st.integers(0, 6),
    groups=st.sampled_from([1, 3]),
    size=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_gradients_are_those_of_plain_attention(queries, before, groups, size, seed):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    keys = before + queries
    seen = torch.rand(2, 1, queries, keys, generator=generator) < 0.7
    seen |= torch.eye(queries, keys, dtype=torch.bool).roll(before, dims=-1)  # each sees itself at least
    tensors = [draw(2, 2, groups, queries, 4), draw(2, 2, keys, 4), draw(2, 2, keys, 4)]
    grad, gradients, values = draw(2, 2, groups, queries, 4).float(), [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_BLOCK", size)
        patch.setattr(attention, "_STEP", size)
        for plain in (True, False):
            query, key, value = (tensor.float().requires_grad_() for tensor in tensors)
            if plain:
                score = (query @ key[:, :, None].transpose(-1, -2)).masked_fill(~seen[:, :, None], -1e30)
                result = score.softmax(dim=-1) @ value[:, :, None]
            else:
                parts = (attention._whole(part.flatten(1, -3), size) for part in (query, key, value))
                query_, key_, value_ = parts
                result = _Attend.apply(
                    query_.unflatten(1, (2, groups)), key_, value_, list(_blocks(seen, sequences=2, dtype=query.dtype))
                )[..., :queries, :]
            result.backward(grad)
            values.append(result.detach())
            gradients.append([tensor.grad for tensor in (query, key, value)])
    torch.testing.assert_close(*values, atol=1e-5, rtol=1e-4)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_keys_that_no_query_of_a_block_sees_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(attention, "_BLOCK", 2)
    monkeypatch.setattr(attention, "_STEP", 2)
    seen = torch.ones(1, 1, 7, 10, dtype=torch.bool).tril(2).triu(-1)
    blocks = list(_blocks(seen, sequences=2, dtype=torch.float32))
    assert [(block.sequence, block.queries.start, block.keys) for block in blocks] == [
        (sequence, start, slice(first, last))
        for sequence in (0, 1)
        for start, first, last in ((0, 0, 4), (2, 0, 6), (4, 2, 8), (6, 4, 10))
    ]


def test_only_keys_that_some_query_does_not_see_are_hidden(monkeypatch):
    monkeypatch.setattr(attention, "_BLOCK", 4)
    monkeypatch.setattr(attention, "_STEP", 4)
    seen = torch.ones(1, 1, 8, 10, dtype=torch.bool).tril(2)
    blocks = list(_blocks(seen, sequences=1, dtype=torch.float32))
    assert [(block.keys, block.bias_BK.shape[-1]) for block in blocks] == [(slice(0, 8), 5), (slice(0, 12), 5)]
    (whole,) = _blocks(torch.ones(1, 1, 4, 4, dtype=torch.bool), sequences=1, dtype=torch.float32)
    assert whole.bias_BK is None


def test_bfloat16_stays_within_its_rounding():
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(*shape, generator=generator) for shape in ((2, 2, 2, 50, 8), (2, 2, 50, 8), (2, 2, 50, 8))]
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        leaves = [tensor.to(dtype).clone().requires_grad_() for tensor in tensors]
        whole = [attention._whole(leaf.flatten(1, -3), 128) for leaf in leaves]
        seen = torch.ones(1, 1, 50, 50).bool().tril()
        found = _Attend.apply(whole[0].unflatten(1, (2, 2)), *whole[1:], list(_blocks(seen, sequences=2, dtype=dtype)))
        found[..., :50, :].sum().backward()
        results.append(torch.cat([leaf.grad.float().flatten() for leaf in leaves]))
    assert (results[0] - results[1]).norm() < 0.02 * results[0].norm()


def test_a_model_that_wants_what_is_not_done_is_told_what_to_choose():
    config = Gemma2Config(**SHAPE, **HEADS, head_dim=8, attn_logit_softcapping=0.5)
    with torch.random.fork_rng():
        model = Gemma2ForCausalLM(config).eval()
    model.set_attn_implementation(BLOCKS)
    with pytest.raises(InvalidInput, match=r"wants \['softcap'\] of attention: choose model.attention=eager"):
        model(input_ids=torch.tensor([[1, 2, 3]]))


def test_texts_of_many_lengths_need_few_shapes_of_products():
    shapes = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, arguments=(), how=None):
            if operation is torch.ops.aten.mm.default:
                shapes.add(tuple(tuple(part.shape) for part in arguments))
            return operation(*arguments, **(how or {}))

    counts = []
    for queries in (241, 250, 256):
        query, key, value = (torch.zeros(1, 1, queries, 4, requires_grad=True) for _ in range(3))
        with Watch():
            attention.blocks_attend(None, query, key, value, None, scaling=1.0)[0].sum().backward()
        counts.append(len(shapes))
    assert counts == [counts[0]] * 3
