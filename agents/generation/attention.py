"""Attention for rows of different lengths, over keys and values kept from earlier turns.

A stock `transformers` model is given the new tokens of all rows as one sequence of shape (1, T).  Everything in it but
attention works token by token, so nothing is padded; attention is replaced by `attend`, which asks a plan which token
belongs to which row:

    with rows_attend(model):
        model(input_ids=..., position_ids=..., use_cache=False, plan=plan)

A row's keys lie in two places: its own, and a root's that many rows share, which is thus read once for all of them.
Where a row has many queries, or rows have different roots, softmax is taken over each part by itself, and the parts are
weighed by their log-sum-exps, which is exact.

Dimension key: T token of the packed sequence, N row, B batch of queries, H key head, G query head of a key head, Q
query, P query of a part, X queries of all query heads of a key head, one head after the other, K key, R key of a root,
D head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel

from sesa_env.errors import InvalidInput

NAME = "sesa_rows"
HIDDEN = -1e30
"""Added to the score of a key that must not be seen: finite, so that a part with nothing to see stays a number."""
_SCORES = 1_000_000
"""Scores made at a time, few enough to stay in the cache."""
_QUERIES, _KEYS = 16, 64
"""Many queries and their keys are made up to multiples of these: a processor's library compiles and keeps code for each
shape of a product in bfloat16, half a millisecond and three quarters of a megabyte each."""
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
        """Keep the new keys and values and return what each token's query finds, in any number format: (H, G, T, D)."""
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
    found_HGTD = plan.attend(int(module.layer_idx), query_HGTD, key[0], value[0], scores)  # type: ignore[arg-type]
    return found_HGTD.to(plan.dtype).permute(2, 0, 1, 3).flatten(1, 2).unsqueeze(0), None


AttentionInterface.register(NAME, attend)


class Found(NamedTuple):
    """What queries found in one part of their keys: weighted values, and the log of the weights' sum."""

    value: Tensor
    """(B, H, G, Q, D), float32"""
    lse: Tensor
    """(B, H, G, Q), float32"""


def look_up(
    query_BHGQD: Tensor,
    key_BHKD: Tensor,
    value_BHKD: Tensor,
    scores: Scores,
    *,
    causal: bool = False,
    bias: Tensor | None = None,
) -> Found:
    """Attend to one part of the keys.

    Scores are made by plain matrix products, for some queries at a time.  With one query per row, and in bfloat16 with
    any number of them, that is twice as fast on a processor as torch's fused kernel, which copies keys before it
    multiplies and reads them again for each query head.

    Args:
        query_BHGQD: the queries.
        key_BHKD: the keys.
        value_BHKD: the values.
        scores: `window` is not looked at, it is the caller's business to say by `bias`.
        causal: whether the last query sees all keys, and each one before it a key less.
        bias: added to the scores, broadcast to (B, H, G, Q, K).
    """
    batch, heads, groups, queries, _ = query_BHGQD.shape
    keys = key_BHKD.shape[2]
    query_BHGQD = query_BHGQD * scores.scale
    if queries > 1:
        query_BHGQD = _whole(query_BHGQD, _QUERIES)
        key_BHKD, value_BHKD = _whole(key_BHKD, _KEYS), _whole(value_BHKD, _KEYS)
    size = max(_QUERIES, _SCORES // (batch * heads * groups * max(1, keys)) // _QUERIES * _QUERIES)
    found = []
    for start in range(0, queries, size):
        query_BHGPD = query_BHGQD[..., start : start + size, :]
        seen = slice(-(-(keys - queries + start + size) // _KEYS) * _KEYS if causal else None)
        score_BHXK = query_BHGPD.flatten(2, 3) @ key_BHKD[:, :, seen].transpose(-1, -2)
        score_BHXK = _capped(score_BHXK, scores)
        score_BHGPK = score_BHXK.view(*query_BHGPD.shape[:-1], -1)
        if bias is not None:
            part = bias if queries == 1 else bias[..., start : start + size, seen]
            score_BHGPK[..., : part.shape[-2], : part.shape[-1]] += part
        if causal:
            ahead_BHGPK = score_BHGPK[..., keys - queries + start :]
            ahead_BHGPK += torch.full_like(ahead_BHGPK[0, 0, 0], HIDDEN).triu_(1)
        if queries > 1:
            score_BHGPK[..., keys:] = HIDDEN
        found.append(_weigh(score_BHXK, value_BHKD[:, :, seen], groups=groups))
    value, lse = (torch.cat(part, dim=3) if len(part) > 1 else part[0] for part in zip(*found, strict=True))
    return Found(value[..., :queries, :], lse[..., :queries])


def look_up_once(
    query_NHGD: Tensor,
    key_NHKD: Tensor,
    value_NHKD: Tensor,
    scores: Scores,
    *,
    bias_N11K: Tensor,
    root_2HRD: Tensor | None = None,
    bias_N11R: Tensor | None = None,
) -> Tensor:
    """Let one query of each row attend to the row's keys and to a root that all rows share: (N, H, G, D).

    All in one softmax, with a third of the kernel calls of two look-ups that are then joined; a step of one token per
    row takes as long as it has calls.

    Args:
        query_NHGD: the queries.
        key_NHKD: the keys of the rows.
        value_NHKD: their values.
        scores: `window` is not looked at, it is the caller's business to say by biases.
        bias_N11K: added to the scores of the rows' keys.
        root_2HRD: keys and values of the root, if there is one.
        bias_N11R: added to the scores of the root's keys.
    """
    query_NHGD = query_NHGD * scores.scale
    score_NHGK = _capped(query_NHGD @ key_NHKD.transpose(-1, -2), scores) + bias_N11K
    if root_2HRD is None:
        found_NHGD: Tensor = score_NHGK.softmax(dim=-1) @ value_NHKD
        return found_NHGD
    key_HRD, value_HRD = root_2HRD.unbind(0)
    _, heads, groups, size = query_NHGD.shape
    query_HXD = query_NHGD.permute(1, 2, 0, 3).reshape(heads, -1, size)
    score_HXR = _capped(query_HXD @ key_HRD.transpose(-1, -2), scores)
    score_NHGR = score_HXR.view(heads, groups, -1, score_HXR.shape[-1]).permute(2, 0, 1, 3)
    if bias_N11R is not None:
        score_NHGR = score_NHGR + bias_N11R
    weight = torch.cat([score_NHGK, score_NHGR], dim=-1).softmax(dim=-1)
    own = score_NHGK.shape[-1]
    weight_HXR = weight[..., own:].permute(1, 2, 0, 3).reshape(score_HXR.shape)
    root_HXD = weight_HXR @ value_HRD
    found_NHGD = weight[..., :own] @ value_NHKD
    found_NHGD += root_HXD.view(heads, groups, -1, size).permute(2, 0, 1, 3)
    return found_NHGD


def _capped(score: Tensor, scores: Scores) -> Tensor:
    return score if scores.softcap is None else scores.softcap * (score / scores.softcap).tanh()


def _whole(part: Tensor, size: int) -> Tensor:
    """Return queries or keys made up with zeros to a multiple of `size`."""
    return functional.pad(part, (0, 0, 0, -part.shape[-2] % size)) if part.shape[-2] % size else part


def _weigh(score_BHXK: Tensor, value_BHKD: Tensor, *, groups: int) -> Found:
    """Return what queries find that give keys these scores, which are overwritten."""
    most_BHX1 = score_BHXK.amax(dim=-1, keepdim=True)
    weight_BHXK = score_BHXK.sub_(most_BHX1).exp_()
    sum_BHX1 = weight_BHXK.sum(dim=-1, keepdim=True, dtype=torch.float32)
    value_BHXD = (weight_BHXK @ value_BHKD).float().div_(sum_BHX1)
    lse_BHX1 = sum_BHX1.log_().add_(most_BHX1)
    shape = (*score_BHXK.shape[:2], groups, -1)
    return Found(value_BHXD.view(*shape, value_BHXD.shape[-1]), lse_BHX1.view(shape))


def join(one: Found, other: Found) -> Found:
    """Put together what the same queries found in two parts of their keys."""
    share = torch.sigmoid(other.lse - one.lse)[..., None]
    value = torch.lerp(one.value, other.value, share)
    return Found(value, torch.logaddexp(one.lse, other.lse))
