"""Attention for a processor that computes in bfloat16, with a backward pass that keeps no scores.

    import agents.attention                                        # registers it with transformers
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation=BLOCKS)

Scores are made for some queries at a time, few enough to stay in the cache, and only for the keys that one of them
sees; the backward pass makes them again.  The matrix products run at bfloat16's rate, which those of torch's fused
kernel do not reach on a processor, and memory does not grow with the square of the length, as it does with "eager".

Dimension key: N sequence, H key head, G query head of a key head, Q query, B query of a block, X queries of all query
heads of a key head, one head after the other, K key, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from sesa_env.errors import InvalidInput

BLOCKS = "sesa_blocks"
_BLOCK = 128
"""Queries of a block; keys are taken in multiples of it, too.  A processor's library compiles and keeps code for each
shape of a product in bfloat16, half a millisecond and three quarters of a megabyte each, so shapes must be few."""
_STEP = 16
"""Queries are made up to a multiple of this, since few may follow a prompt that is shared."""
_HIDDEN = -1e30
"""Added to the score of a key that must not be seen: finite, so that what a query that sees none finds is a number."""
_UNSUPPORTED = ("s_aux", "position_bias", "softcap")


class Block(NamedTuple):
    """Queries of a sequence, the keys that one of them sees, and what is added to the scores of the last of these keys.

    Earlier ones are seen by all queries, as most keys of a text are; None: all are.
    """

    sequence: int
    queries: slice
    keys: slice
    bias_BK: Tensor | None


def blocks_attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend as `transformers` asks its attention functions to: (N, heads, Q, D) in, (N, Q, heads, D) out.

    Raises:
        InvalidInput: the model wants something of attention that is not done here.
    """
    wanted = [name for name in _UNSUPPORTED if others.get(name) is not None] + ["dropout"] * bool(others.get("dropout"))
    if wanted:
        raise InvalidInput(f"{type(module).__name__} wants {wanted} of attention: choose model.attention=eager")
    queries, keys = query.shape[2], key.shape[2]
    query, key, value = (
        _whole(part.to(value.dtype), size) for part, size in ((query * scaling, _STEP), (key, _BLOCK), (value, _BLOCK))
    )
    query_NHGQD = query.view(query.shape[0], key.shape[1], -1, *query.shape[2:])
    if attention_mask is None:
        attention_mask = torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril(keys - queries)[None, None]
    blocks: list[Block] | None = getattr(attention_mask, "blocks", None)
    if blocks is None:  # all layers get the same mask
        blocks = list(_blocks(attention_mask, sequences=len(key), dtype=key.dtype))
        attention_mask.blocks = blocks  # type: ignore[attr-defined]
    found_NHGQD: Tensor = _Attend.apply(query_NHGQD, key, value, blocks)  # type: ignore[no-untyped-call]
    return found_NHGQD[..., :queries, :].flatten(1, 2).transpose(1, 2).contiguous(), None


def _whole(part: Tensor, size: int) -> Tensor:
    """Return queries or keys made up with zeros to a multiple of `size`, contiguous: products would else copy them."""
    return functional.pad(part, (0, 0, 0, -part.shape[2] % size)).contiguous()


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_NHGQD: Tensor, key_NHKD: Tensor, value_NHKD: Tensor, blocks: list[Block]) -> Tensor:
        ctx.save_for_backward(query_NHGQD, key_NHKD, value_NHKD)
        ctx.blocks = blocks
        found_NHGQD = torch.empty_like(query_NHGQD)
        for block, head in product(blocks, range(key_NHKD.shape[1])):
            of_queries, of_keys = _places(block, head)
            query_GBD = query_NHGQD[of_queries]
            weight_XK = _weights(query_GBD, key_NHKD[of_keys], block)
            found_NHGQD[of_queries] = (weight_XK @ value_NHKD[of_keys]).view_as(query_GBD)
        return found_NHGQD

    @staticmethod
    def backward(ctx: Any, grad_NHGQD: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query_NHGQD, key_NHKD, value_NHKD = ctx.saved_tensors
        to_query_NHGQD = torch.empty_like(query_NHGQD)
        to_key_NHKD, to_value_NHKD = (torch.zeros_like(part, dtype=torch.float32) for part in (key_NHKD, value_NHKD))
        for block, head in product(ctx.blocks, range(key_NHKD.shape[1])):
            of_queries, of_keys = _places(block, head)
            query_GBD, key_KD, grad_XD = (
                query_NHGQD[of_queries],
                key_NHKD[of_keys],
                grad_NHGQD[of_queries].flatten(0, 1),
            )
            weight_XK = _weights(query_GBD, key_KD, block)
            to_value_NHKD[of_keys] += weight_XK.T @ grad_XD
            to_weight_XK = grad_XD @ value_NHKD[of_keys].T
            to_score_XK = torch._softmax_backward_data(to_weight_XK, weight_XK, -1, weight_XK.dtype)
            to_query_NHGQD[of_queries] = (to_score_XK @ key_KD).view_as(query_GBD)
            to_key_NHKD[of_keys] += to_score_XK.T @ query_GBD.flatten(0, 1)
        return to_query_NHGQD, to_key_NHKD.to(key_NHKD.dtype), to_value_NHKD.to(value_NHKD.dtype), None


def _blocks(seen_N1QK: Tensor, *, sequences: int, dtype: torch.dtype) -> Iterator[Block]:
    """Cut the queries into blocks, and find for each the keys that one of them sees."""
    short = [-seen_N1QK.shape[2] % _STEP, -seen_N1QK.shape[3] % _BLOCK]
    seen_NQK = functional.pad(seen_N1QK[:, 0], (0, short[1], 0, short[0])).expand(sequences, -1, -1)
    for (sequence, seen_QK), start in product(enumerate(seen_NQK), range(0, seen_NQK.shape[1], _BLOCK)):
        rows = slice(start, min(start + _BLOCK, seen_NQK.shape[1]))
        seen_K = seen_QK[rows].any(dim=0).nonzero().flatten()
        if not len(seen_K):
            seen_K = seen_K.new_zeros(1)
        columns = slice(int(seen_K[0]) // _BLOCK * _BLOCK, (int(seen_K[-1]) // _BLOCK + 1) * _BLOCK)
        hidden_BK = ~seen_QK[rows, columns]
        hidden_K = hidden_BK.any(dim=0).nonzero().flatten()
        bias_BK = None
        if len(hidden_K):
            hidden_BK = hidden_BK[:, int(hidden_K[0]) :]
            bias_BK = torch.zeros_like(hidden_BK, dtype=dtype).masked_fill_(hidden_BK, _HIDDEN)
        yield Block(sequence, rows, columns, bias_BK)


def _places(block: Block, head: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the indices of a block's queries, (G, B, D), and of its keys, (K, D), for one key head."""
    return (block.sequence, head, slice(None), block.queries), (block.sequence, head, block.keys)


def _weights(query_GBD: Tensor, key_KD: Tensor, block: Block) -> Tensor:
    """Return how much each query of a block weighs each of its keys; torch sums in float32 whatever the format."""
    score_XK = query_GBD.flatten(0, 1) @ key_KD.T
    if block.bias_BK is not None:
        score_XK.view(*query_GBD.shape[:2], -1)[..., -block.bias_BK.shape[-1] :] += block.bias_BK
    return torch.softmax(score_XK, dim=-1)


AttentionInterface.register(BLOCKS, blocks_attend)
AttentionMaskInterface.register(BLOCKS, sdpa_mask)
