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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from sesa_env.errors import InvalidInput

BLOCKS = "sesa_blocks"
_SCORES = 1_000_000
"""Scores made at a time: in float32 these are four megabytes."""
_UNSUPPORTED = ("s_aux", "position_bias", "softcap")


class Block(NamedTuple):
    """Queries, the keys that one of them sees, and what is hidden from which; None: nothing is."""

    queries: slice
    keys: slice
    hidden_N11BK: Tensor | None


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
    query_NHGQD = query.view(query.shape[0], key.shape[1], -1, *query.shape[2:])
    found_NHGQD: Tensor = _Attend.apply(  # type: ignore[no-untyped-call]
        (query_NHGQD * scaling).to(value.dtype), key.to(value.dtype), value, attention_mask
    )
    return found_NHGQD.flatten(1, 2).transpose(1, 2).contiguous(), None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_NHGQD: Tensor, key_NHKD: Tensor, value_NHKD: Tensor, seen: Tensor | None) -> Tensor:
        ctx.save_for_backward(query_NHGQD, key_NHKD, value_NHKD)
        ctx.blocks = list(_blocks(query_NHGQD, key_NHKD, seen))
        found_NHGQD = torch.empty_like(query_NHGQD)
        for block in ctx.blocks:
            weight_NHXK = _weights(query_NHGQD, key_NHKD, block).to(value_NHKD.dtype)
            found_NHGBD = found_NHGQD[..., block.queries, :]
            found_NHGBD.copy_((weight_NHXK @ value_NHKD[:, :, block.keys]).view(found_NHGBD.shape))
        return found_NHGQD

    @staticmethod
    def backward(ctx: Any, grad_NHGQD: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query_NHGQD, key_NHKD, value_NHKD = ctx.saved_tensors
        to_query_NHGQD = torch.empty_like(query_NHGQD)
        to_key_NHKD, to_value_NHKD = (torch.zeros_like(part, dtype=torch.float32) for part in (key_NHKD, value_NHKD))
        for block in ctx.blocks:
            key_NHKD_, value_NHKD_ = key_NHKD[:, :, block.keys], value_NHKD[:, :, block.keys]
            grad_NHXD = grad_NHGQD[..., block.queries, :].flatten(2, 3)
            weight_NHXK = _weights(query_NHGQD, key_NHKD, block)
            to_value_NHKD[:, :, block.keys] += weight_NHXK.to(grad_NHXD.dtype).transpose(-1, -2) @ grad_NHXD
            to_weight_NHXK = (grad_NHXD @ value_NHKD_.transpose(-1, -2)).float()
            to_score_NHXK = torch._softmax_backward_data(to_weight_NHXK, weight_NHXK, -1, torch.float32)
            to_score_NHXK = to_score_NHXK.to(grad_NHXD.dtype)
            to_query_NHGBD = to_query_NHGQD[..., block.queries, :]
            to_query_NHGBD.copy_((to_score_NHXK @ key_NHKD_).view(to_query_NHGBD.shape))
            query_NHXD = query_NHGQD[..., block.queries, :].flatten(2, 3)
            to_key_NHKD[:, :, block.keys] += to_score_NHXK.transpose(-1, -2) @ query_NHXD
        return to_query_NHGQD, to_key_NHKD.to(key_NHKD.dtype), to_value_NHKD.to(value_NHKD.dtype), None


def _blocks(query_NHGQD: Tensor, key_NHKD: Tensor, seen_N1QK: Tensor | None) -> Iterator[Block]:
    """Cut the queries into blocks, and find for each the keys that one of them sees; without a mask, 0 to itself."""
    sequences, heads, groups, queries, _ = query_NHGQD.shape
    keys = key_NHKD.shape[2]
    if seen_N1QK is None:
        seen_N1QK = torch.ones(queries, keys, dtype=torch.bool, device=key_NHKD.device).tril()[None, None]
    size = max(1, _SCORES // (sequences * heads * groups * keys))
    for start in range(0, queries, size):
        rows = slice(start, min(start + size, queries))
        seen_K = seen_N1QK[:, :, rows].flatten(0, 2).any(dim=0).nonzero().flatten()
        columns = slice(int(seen_K[0]), int(seen_K[-1]) + 1) if len(seen_K) else slice(0, 1)
        hidden_N1BK = ~seen_N1QK[:, :, rows, columns]
        yield Block(rows, columns, hidden_N1BK[:, :, None] if bool(hidden_N1BK.any()) else None)


def _weights(query_NHGQD: Tensor, key_NHKD: Tensor, block: Block) -> Tensor:
    """Return how much each query of a block weighs each of its keys, in float32."""
    query_NHGBD = query_NHGQD[..., block.queries, :]
    score_NHXK = query_NHGBD.flatten(2, 3) @ key_NHKD[:, :, block.keys].transpose(-1, -2)
    if block.hidden_N11BK is not None:
        least = torch.finfo(score_NHXK.dtype).min
        score_NHXK.view(*query_NHGBD.shape[:-1], -1).masked_fill_(block.hidden_N11BK, least)
    return torch.softmax(score_NHXK, dim=-1, dtype=torch.float32)


AttentionInterface.register(BLOCKS, blocks_attend)
AttentionMaskInterface.register(BLOCKS, sdpa_mask)
