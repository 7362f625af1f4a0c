"""Draw tokens, and say how likely they were under the very distribution they were drawn from.

The distribution is that of the whole vocabulary at a temperature.  There is no top-k, top-p or min-p: the learner could
not reproduce the ratios of a truncated one.

    token_N, logp_N = sample(logits_NV, temperature=1.0, uniform_N=uniform_N)

The caller brings the randomness, one number in [0, 1) per row, so what a row draws does not depend on its neighbours.

Dimension key: N rows, V vocabulary, C chunks of it, W tokens in a chunk.
"""

from __future__ import annotations

from math import gcd

import torch
from torch import Tensor
from torch.nn import functional

_CHUNK = 256
"""Tokens whose probabilities are summed first: a running sum over a chunk instead of over the vocabulary."""


def sample(logits_NV: Tensor, *, temperature: float, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return one token per row and its log-probability.

    Args:
        logits_NV: of any float type; may be overwritten.
        temperature: divides the logits; 0 takes the most likely token and ignores `uniform_N`.
        uniform_N: in [0, 1), float64, where in the cumulative distribution each row's token lies.
    """
    logit_NV = logits_NV.float()
    if temperature not in (0.0, 1.0):
        logit_NV = logit_NV.div_(temperature)
    weight_NV = logit_NV.sub_(logit_NV.amax(dim=-1, keepdim=True)).exp_()
    sum_NC, weight_NCW = _in_chunks(weight_NV)
    token_N = weight_NV.argmax(dim=-1) if temperature == 0.0 else _invert(sum_NC, weight_NCW, uniform_N)
    chosen_N = weight_NV.gather(-1, token_N[:, None]).squeeze(-1)
    return token_N, (chosen_N.double() / sum_NC.sum(dim=-1)).log().float()


def _in_chunks(weight_NV: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of each chunk of the vocabulary, in float64, and the chunks."""
    size = gcd(weight_NV.shape[1], _CHUNK)
    if size < _CHUNK // 8:  # an odd vocabulary: tokens of weight zero, which are never drawn, make it even
        size = _CHUNK
        weight_NV = functional.pad(weight_NV, (0, -weight_NV.shape[1] % size))
    weight_NCW = weight_NV.view(len(weight_NV), -1, size)
    return weight_NCW.sum(dim=-1).double(), weight_NCW


def _invert(sum_NC: Tensor, weight_NCW: Tensor, uniform_N: Tensor) -> Tensor:
    """Return the token at which the cumulative weight first exceeds the given share of the whole."""
    chunk_N, rest_N = _first_above(sum_NC, uniform_N * sum_NC.sum(dim=-1))
    weight_NW = weight_NCW[torch.arange(len(chunk_N), device=chunk_N.device), chunk_N].double()
    place_N, _ = _first_above(weight_NW, rest_N)
    return chunk_N * weight_NCW.shape[-1] + place_N


def _first_above(weight_NW: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the running sum first exceeds the target, and how much of the target is left at that place.

    A target that rounding put at the whole sum or beyond is moved just below it, so an entry of weight zero is never
    found.
    """
    cumulative_NW = weight_NW.cumsum(dim=-1)
    below_N = torch.nextafter(cumulative_NW[:, -1], torch.zeros_like(target_N))
    target_N = torch.minimum(target_N, below_N)
    place_N = (cumulative_NW <= target_N[:, None]).sum(dim=-1)
    before_NW = cumulative_NW - weight_NW
    return place_N, (target_N - before_NW.gather(-1, place_N[:, None]).squeeze(-1)).clamp(min=0.0)
