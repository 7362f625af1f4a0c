"""Attention for rows of different lengths, over keys and values kept from earlier turns.

A stock `transformers` model is given the new tokens of all rows as one sequence of shape (1, T).  Everything in it but
attention works token by token, so nothing is padded; attention is replaced by `attend`, which asks a plan which token
belongs to which row:

    with rows_attend(model):
        model(input_ids=..., position_ids=..., use_cache=False, plan=plan)

A row's keys lie in two places: its own, and a root's that many rows share.  Softmax is taken over each part by itself,
and the parts are weighed by their log-sum-exps, which is exact; the shared part is thus read once for all rows.

Dimension key: T token of the packed sequence, N row, B block of batch, H key head, G query head of a key head, Q query,
K key, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from sesa_env.errors import InvalidInput

NAME = "sesa_rows"
HIDDEN = -1e30
"""Added to the score of a key that must not be seen: finite, so that a part with nothing to see stays a number."""
_UNSUPPORTED = ("s_aux", "position_bias")


class Scores(NamedTuple):
    """How a layer scores keys."""

    scale: float
    window: int | None = None
    """How many tokens back a query sees, itself included; None: all."""
    softcap: float | None = None


class Plan(Protocol):
    """Knows the rows of a packed sequence and where their keys are kept."""

    dtype: torch.dtype
    """Number format of what is kept, and so of what attention computes."""

    def attend(self, layer: int, query_HGTD: Tensor, key_HTD: Tensor, value_HTD: Tensor, scores: Scores) -> Tensor:
        """Keep the new keys and values and return what each token's query finds: (T, H, G, D)."""
        ...


@contextmanager
def rows_attend(model: PreTrainedModel) -> Iterator[None]:
    """Let the model's attention follow the plan it is given, and put its own back afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    plan: Plan,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend as `transformers` asks its attention functions to: (1, heads, T, D) in, (1, T, heads, D) out.

    Raises:
        InvalidInput: the model wants something of attention that is not done here.
    """
    wanted = [name for name in _UNSUPPORTED if others.get(name) is not None]
    if wanted or not getattr(module, "is_causal", True):
        raise InvalidInput(f"{type(module).__name__} cannot be sampled from: it wants {wanted or 'to look ahead'}")
    query_HGTD = query[0].view(key.shape[1], -1, *query.shape[2:]).to(plan.dtype)
    scores = Scores(scaling, sliding_window, softcap)
    found_THGD = plan.attend(int(module.layer_idx), query_HGTD, key[0], value[0], scores)  # type: ignore[arg-type]
    return found_THGD.flatten(1, 2).unsqueeze(0), None


AttentionInterface.register(NAME, attend)


class Found(NamedTuple):
    """What queries found in one part of their keys: weighted values, and the log of the weights' sum."""

    value: Tensor
    """(..., Q, D)"""
    lse: Tensor
    """(..., Q), float32"""


def look_up(
    query_BHQD: Tensor,
    key_BHKD: Tensor,
    value_BHKD: Tensor,
    scores: Scores,
    *,
    causal: bool = False,
    bias: Tensor | None = None,
) -> Found:
    """Attend to one part of the keys.

    Args:
        query_BHQD: the queries.
        key_BHKD: the keys; may be expanded, they are not copied.
        value_BHKD: the values.
        scores: `window` is not looked at, it is the caller's business to say by `bias`.
        causal: whether query i sees keys 0 to i only.
        bias: added to the scores, broadcast to (B, H, Q, K).
    """
    if query_BHQD.device.type == "cpu" and scores.softcap is None:
        return Found(
            *torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                query_BHQD, key_BHKD, value_BHKD, 0.0, causal, attn_mask=bias, scale=scores.scale
            )
        )
    score_BHQK = (query_BHQD @ key_BHKD.transpose(-1, -2)).float() * scores.scale
    if scores.softcap is not None:
        score_BHQK = scores.softcap * (score_BHQK / scores.softcap).tanh()
    if bias is not None:
        score_BHQK = score_BHQK + bias
    if causal:
        ahead_QK = torch.ones(score_BHQK.shape[-2:], dtype=torch.bool, device=score_BHQK.device).triu(1)
        score_BHQK = score_BHQK.masked_fill(ahead_QK, HIDDEN)
    lse_BHQ = score_BHQK.logsumexp(dim=-1)
    weight_BHQK = (score_BHQK - lse_BHQ[..., None]).exp().to(value_BHKD.dtype)
    return Found(weight_BHQK @ value_BHKD, lse_BHQ)


def join(one: Found, other: Found) -> Found:
    """Put together what the same queries found in two parts of their keys."""
    share = torch.sigmoid(other.lse - one.lse)[..., None]
    value = torch.lerp(one.value.float(), other.value.float(), share).to(one.value.dtype)
    return Found(value, torch.logaddexp(one.lse, other.lse))
