"""Attention for rows of different lengths, over keys and values kept from earlier turns.

A stock `transformers` model is given the new tokens of all rows as one sequence of shape (1, T).  Everything in it but
attention works token by token, so nothing is padded; attention is replaced by `attend`, which asks a plan which token
belongs to which row:

    with rows_attend(model):
        model(input_ids=..., position_ids=..., use_cache=False, plan=plan)

A row's keys lie in two places: its own, and a root's that many rows share.

Dimension key: T token of the packed sequence, N row, H key head, G query head of a key head, Q query, P query or row of
a part, X queries of all query heads of a key head, one head after the other, K key, R key of a root, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_AT_ONCE = 128
"""Queries of a key head whose scores are made at a time, few enough for them to stay in the cache."""
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


def look_up(query_HGQD: Tensor, key_HKD: Tensor, value_HKD: Tensor, scores: Scores) -> Tensor:
    """Let the last tokens of one text attend to it, each to those before it and to itself: (H, G, Q, D).

    Scores are made by plain matrix products, for some queries at a time.  In bfloat16 that is twice as fast on a
    processor as torch's fused kernel, which copies keys before it multiplies and reads them again for each query head.

    Args:
        query_HGQD: the queries.
        key_HKD: the keys of the whole text.
        value_HKD: its values.
        scores: how keys are scored.
    """
    queries = query_HGQD.shape[2]
    before = key_HKD.shape[1] - queries
    query_HGQD = _whole(query_HGQD * scores.scale, _QUERIES)
    key_HKD, value_HKD = _whole(key_HKD, _KEYS), _whole(value_HKD, _KEYS)
    found_HGQD = torch.empty_like(query_HGQD)
    for start in range(before, before + queries, _AT_ONCE):
        asking = slice(start - before, start - before + _AT_ONCE)
        seen = slice(-(-(start + _AT_ONCE) // _KEYS) * _KEYS)
        for head in range(len(query_HGQD)):  # of one head, keys lie side by side, and products need not copy them
            query_GPD = query_HGQD[head, :, asking]
            score_XK = _capped(query_GPD.flatten(0, 1) @ key_HKD[head, seen].T, scores)
            score_GPK = score_XK.view(*query_GPD.shape[:-1], -1)
            ahead_GPK = score_GPK[..., start:]
            ahead_GPK += torch.full_like(ahead_GPK[0], HIDDEN).triu_(1)
            if scores.window is not None:
                behind_GPK = score_GPK[..., : max(0, start + _AT_ONCE - scores.window)]
                behind_GPK += torch.full_like(behind_GPK[0], HIDDEN).tril_(start - scores.window)
            found_HGQD[head, :, asking] = (score_XK.softmax(dim=-1) @ value_HKD[head, seen]).view_as(query_GPD)
    return found_HGQD[:, :, :queries]


class Shared(NamedTuple):
    """Keys and values of a root, and the rows that continue it."""

    kv_2HRD: Tensor
    place_N: Tensor | None
    """None: all rows do."""
    bias_NR: Tensor | None
    """Added to the scores that those rows give its keys."""


def look_up_once(
    query_NHGD: Tensor,
    key_NHKD: Tensor,
    value_NHKD: Tensor,
    scores: Scores,
    *,
    bias_N11K: Tensor,
    roots: Sequence[Shared] = (),
) -> Tensor:
    """Let one query of each row attend to its own keys and its root's, read once for all rows: (N, H, G, D).

    All in one softmax and with few kernel calls: a step of one token per row takes as long as it has calls.

    Args:
        query_NHGD: the queries.
        key_NHKD: the keys of the rows.
        value_NHKD: their values.
        scores: `window` is not looked at, it is the caller's business to say by biases.
        bias_N11K: added to the scores of the rows' keys.
        roots: of the rows that have one; one of all rows is alone.
    """
    query_NHGD = query_NHGD * scores.scale
    score_NHGK = _capped(query_NHGD @ key_NHKD.transpose(-1, -2), scores) + bias_N11K
    if not roots:
        alone_NHGD: Tensor = score_NHGK.softmax(dim=-1) @ value_NHKD
        return alone_NHGD
    weight = torch.cat([score_NHGK, _root_scores(query_NHGD, roots, scores)], dim=-1).softmax(dim=-1)
    own = score_NHGK.shape[-1]
    found_NHGD = weight[..., :own] @ value_NHKD
    for kv_2HRD, place_N, _ in roots:
        weight_NHGR = _of(weight[..., own : own + kv_2HRD.shape[2]], place_N)
        root_HXD = _side_by_side(weight_NHGR) @ kv_2HRD[1]
        root_NHGD = _one_by_one(root_HXD, weight_NHGR)
        if place_N is None:
            found_NHGD += root_NHGD
        else:
            found_NHGD[place_N] += root_NHGD
    return found_NHGD


def _root_scores(query_NHGD: Tensor, roots: Sequence[Shared], scores: Scores) -> Tensor:
    """Return the scores of the keys of each row's own root, hidden beyond its end: (N, H, G, R of the longest)."""
    found = []
    for kv_2HRD, place_N, bias_NR in roots:
        query_PHGD = _of(query_NHGD, place_N)
        score_HXR = _capped(_side_by_side(query_PHGD) @ kv_2HRD[0].transpose(-1, -2), scores)
        score_PHGR = _one_by_one(score_HXR, query_PHGD)
        found.append(score_PHGR if bias_NR is None else score_PHGR + bias_NR[:, None, None])
    if roots[0].place_N is None:
        return found[0]
    longest = max(root.kv_2HRD.shape[2] for root in roots)
    score_NHGR = query_NHGD.new_full((*query_NHGD.shape[:3], longest), HIDDEN)
    for (_, place_N, _), score_PHGR in zip(roots, found, strict=True):
        score_NHGR[place_N, ..., : score_PHGR.shape[-1]] = score_PHGR
    return score_NHGR


def _of(of_rows: Tensor, place_N: Tensor | None) -> Tensor:
    return of_rows if place_N is None else of_rows[place_N]


def _side_by_side(of_NHG: Tensor) -> Tensor:
    """Bring the query heads of all rows together under their key head: (N, H, G, ...) to (H, X, ...)."""
    return of_NHG.permute(1, 2, 0, 3).reshape(of_NHG.shape[1], -1, of_NHG.shape[3])


def _one_by_one(of_HX: Tensor, like_NHG: Tensor) -> Tensor:
    """Bring back what `_side_by_side` brought together."""
    rows, heads, groups, _ = like_NHG.shape
    return of_HX.view(heads, groups, rows, -1).permute(2, 0, 1, 3)


def _capped(score: Tensor, scores: Scores) -> Tensor:
    return score if scores.softcap is None else scores.softcap * (score / scores.softcap).tanh()


def _whole(part: Tensor, size: int) -> Tensor:
    """Return queries or keys made up with zeros to a multiple of `size`."""
    return functional.pad(part, (0, 0, 0, -part.shape[-2] % size)) if part.shape[-2] % size else part
