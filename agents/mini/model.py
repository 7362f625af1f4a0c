"""The mini policy's network: a stock Llama of four million parameters, started with two useful circuits.

From a random start a model of this size does not learn within hours to copy a name it has just read.  So the start is
structured: heads of the first layer look at the token before and at the one before that, and heads of the second layer
look for an earlier occurrence of the present two tokens and bring the token that followed them ("induction").  This is
a crutch, and the model's card says so; after the start every weight is trained.

    model = new_model(vocab_size=2048, seed=0)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

HIDDEN, LAYERS, HEADS, KEY_HEADS, FEED_FORWARD = 256, 6, 4, 2, 512
ROPE_THETA = 1e6
CONSTANT = 0
"""Column of the residual stream that is the same for all tokens."""

_FAST_PAIRS, _SLOW_PAIRS = 8, 16
"""Rotary pairs that tell neighbours apart, and those that turn too slowly to disturb a comparison of contents."""
_PREVIOUS_SHARPNESS, _MATCH_SHARPNESS, _COPY_STRENGTH = 300.0, 30.0, 2.0


def new_model(*, vocab_size: int, seed: int) -> LlamaForCausalLM:
    """Return an untrained model in float32; its weights depend on the arguments alone."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        intermediate_size=FEED_FORWARD,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        _write_circuits(model)
    return model


@torch.no_grad()
def _write_circuits(model: LlamaForCausalLM) -> None:
    """Write the previous-tokens and the induction circuit into the first two layers."""
    embedding_VD = model.model.embed_tokens.weight
    embedding_VD.normal_(0.0, 1.0 / math.sqrt(HIDDEN))
    embedding_VD[:, CONSTANT] = 1.0
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
            projection.weight[:, CONSTANT] = 0.0  # the constant would drown what varies
        for projection in (attention.o_proj, mlp.down_proj):
            projection.weight[CONSTANT] = 0.0
            projection.weight.mul_(0.5 / math.sqrt(LAYERS))
    size = HIDDEN // HEADS
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    # A normalised token has the constant at about sqrt(D / 2) and its own contents at about the same length.
    scale = math.sqrt(HIDDEN / 2.0)
    read_SD = _orthogonal(size, HIDDEN)
    read_SD[:, CONSTANT] = 0.0
    here_S = _phase(size, shift=0)
    first.k_proj.weight[:size] = 0.0
    first.k_proj.weight[:size, CONSTANT] = here_S * math.sqrt(_PREVIOUS_SHARPNESS) / scale
    first.v_proj.weight[:size] = read_SD / math.sqrt(size / 2.0)
    # One head looks at the token before, the other at the token before that; each writes to a place of its own.
    places = _orthogonal(2 * size, HIDDEN)
    places[:, CONSTANT] = 0.0
    before_SD, earlier_SD = places[:size], places[size:]
    for head, (shift, place_SD) in enumerate(((1, before_SD), (2, earlier_SD))):
        rows = slice(head * size, (head + 1) * size)
        first.q_proj.weight[rows] = 0.0
        first.q_proj.weight[rows, CONSTANT] = _phase(size, shift=shift) * math.sqrt(_PREVIOUS_SHARPNESS) / scale
        first.o_proj.weight[:, rows] = place_SD.T
    # Second layer: the present token against the one before a place, and the one before it against the one before that.
    slow = _slow_rows(size)
    half = len(slow) // 2
    sharp = 2.0 * math.sqrt(_MATCH_SHARPNESS / half)
    per_key = HEADS // KEY_HEADS
    for key_head in range(KEY_HEADS):
        chosen = torch.randperm(size)[: len(slow)]
        keys, queries = torch.zeros(size, HIDDEN), torch.zeros(size, HIDDEN)
        keys[slow[:half]], queries[slow[:half]] = before_SD[chosen[:half]] * sharp, read_SD[chosen[:half]] * sharp
        keys[slow[half:]], queries[slow[half:]] = earlier_SD[chosen[half:]] * sharp, before_SD[chosen[half:]] * sharp
        second.k_proj.weight[key_head * size : (key_head + 1) * size] = keys
        values_SD = _orthogonal(size, HIDDEN)
        values_SD[:, CONSTANT] = 0.0
        second.v_proj.weight[key_head * size : (key_head + 1) * size] = values_SD / math.sqrt(2.0)
        for head in range(key_head * per_key, (key_head + 1) * per_key):
            rows = slice(head * size, (head + 1) * size)
            second.q_proj.weight[rows] = queries
            second.o_proj.weight[:, rows] = values_SD.T * (_COPY_STRENGTH / per_key)


def _orthogonal(rows: int, columns: int) -> Tensor:
    weight = torch.empty(rows, columns)
    torch.nn.init.orthogonal_(weight)
    return weight


def _frequencies(size: int) -> Tensor:
    return ROPE_THETA ** (-torch.arange(0, size, 2).float() / size)


def _phase(size: int, *, shift: int) -> Tensor:
    """Return a vector whose product with the unshifted one, both rotated, peaks at that distance back.

    Only the fast pairs take part: the slow ones hardly tell neighbours apart.
    """
    angle = -_frequencies(size) * shift
    fast = (torch.arange(size // 2) < _FAST_PAIRS).float() / math.sqrt(_FAST_PAIRS)
    return torch.cat([angle.cos() * fast, angle.sin() * fast])


def _slow_rows(size: int) -> list[int]:
    """Return the rows of a head that belong to slow pairs; a pair is rows i and i + size / 2."""
    half = size // 2
    return [*range(half - _SLOW_PAIRS, half), *range(size - _SLOW_PAIRS, size)]
