"""The mathematics of group-relative policy optimisation: tensors in, tensors out.

An answer is good or bad only in comparison, so a reward is measured against the other attempts at the same question.
A group that is all right or all wrong therefore has advantage zero and no gradient: the very questions a challenger is
penalised for.

    result = group_advantages(reward_N, group_N, scale="group", baseline="group")
    logp_NT, entropy_NT = token_scores(logits_NTV, token_NT, temperature=1.0)
    loss = policy_loss(logp_NT, old_logp_NT, result.advantage_N, mask_NT, clip_low=0.2, clip_high=0.2,
                       aggregation="token", divisor=float(mask_NT.sum())).loss

Dimension key, the same in every file:  N sequence   T token   V vocabulary   M tokens of all sequences, end to end
P tokens of a part.  `mask_NT` is True where the policy wrote
the token and the update counts it; nothing at a False position can reach a result, whatever is stored there.
No model, no tokenizer and no settings object is known here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from sesa_env.errors import InvalidInput

Scale = Literal["group", "batch", "none"]
Baseline = Literal["group", "batch", "none"]
Aggregation = Literal["sequence", "token", "constant"]

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it."""
MAX_LOG_RATIO = 20.0
"""Log ratios are bounded here before `exp`, which keeps value and gradient finite in float32."""
MIN_TEMPERATURE = 0.01
"""Below this a policy is greedy, and log-probabilities say nothing about what it could have written."""
_NUMBERS = 1 << 20
"""Log-probabilities over the vocabulary that are made at a time, few enough to stay in a processor's cache."""
_NUMBERS_ON_GPU = 1 << 26
"""The same on a GPU, where each operation costs a launch."""


class Advantages(NamedTuple):
    """Advantages and where they vanish.

    Attributes:
        advantage_N: float32, exactly 0 throughout a group of equal rewards.
        flat_N: True for the members of such a group; with baseline "none", where the reward is 0.
        zero_variance_share: share of groups (not of sequences) that are flat, in [0, 1].
    """

    advantage_N: Tensor
    flat_N: Tensor
    zero_variance_share: float


class PolicyLoss(NamedTuple):
    """The clipped loss, and means over the written tokens that say how far the policy has moved.

    Attributes:
        loss: scalar with gradient.
        ratio_mean: mean of new over old probability; 1 while the policy has not moved.
        clip_fraction: share of tokens whose gradient the clip cut off; 0 with a single epoch, and rightly so.
        approx_kl: k3 estimate of KL(old || new), in nats per token.
    """

    loss: Tensor
    ratio_mean: float
    clip_fraction: float
    approx_kl: float


def group_advantages(reward_N: Tensor, group_N: Sequence[Hashable], *, scale: Scale, baseline: Baseline) -> Advantages:
    """Compare every reward with those it competes with.

    advantage = (reward - mean) / (std + 1e-6), with the population standard deviation.

    Args:
        reward_N: one finite reward per sequence.
        group_N: the question each sequence is an attempt at, in any order; equal ids compete.
        scale: divide by the standard deviation of the "group" or of the whole "batch", or ("none") only centre.
        baseline: "group" compares within each id; "batch" compares all sequences with each other, as one group
            whatever their ids.  A batch of one has advantage 0.  "none" compares with nothing: the advantage is the
            reward, as in REINFORCE, and every sequence is a group of its own.

    Raises:
        InvalidInput: a reward is not finite, lengths differ, the batch is empty, or a group has fewer than 2 members
            with baseline "group"; or rewards are to be scaled and not centred.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1; scale "none" is Dr. GRPO (arXiv 2503.20783).
    """
    _check_choice("scale", scale, Scale)
    _check_choice("baseline", baseline, Baseline)
    _check_rewards(reward_N, group_N)
    if baseline == "none":
        return _raw(reward_N, scale)
    reward_N = reward_N.double()
    member_sets = _members(group_N) if baseline == "group" else [list(range(len(group_N)))]
    advantage_N, flat_N = torch.zeros_like(reward_N), torch.zeros_like(reward_N, dtype=torch.bool)
    flat_groups = 0
    for members in member_sets:
        reward_G = reward_N[members]
        if (reward_G == reward_G[0]).all():  # a rounded mean would leak a small gradient here
            flat_N[members] = True
            flat_groups += 1
            continue
        advantage_N[members] = (reward_G - reward_G.mean()) / _spread(reward_G, reward_N, scale)
    return Advantages(advantage_N.float(), flat_N, flat_groups / len(member_sets))


def token_scores(logits_NTV: Tensor, token_NT: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token at the sampling temperature, and the entropy of what it was drawn from.

    Both in float32, and the entropy in nats.  Log-probabilities over the vocabulary are made for a few tokens at a
    time, and again in the backward pass, so that little is kept beside the logits.

    Args:
        logits_NTV: that predict the tokens, in any number format and with any dimensions before the vocabulary.
        token_NT: an id for each.
        temperature: what logits are divided by.

    Raises:
        InvalidInput: the temperature is below 0.01.
    """
    if not temperature >= MIN_TEMPERATURE:
        raise InvalidInput(f"temperature must be at least {MIN_TEMPERATURE} for training, got {temperature!r}")
    logp_M, entropy_M = _TokenScores.apply(logits_NTV.flatten(0, -2), token_NT.flatten(), temperature)  # type: ignore[no-untyped-call]
    return logp_M.view(token_NT.shape), entropy_M.view(token_NT.shape)


class _TokenScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_MV: Tensor, token_M: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)  # an entropy that is only looked at has no gradient to compute
        logp_M, entropy_M = logits_MV.new_empty((2, len(logits_MV)), dtype=torch.float32)
        for part in _parts(logits_MV):
            logp_PV = _log_softmax(logits_MV[part], temperature)
            logp_M[part] = logp_PV.gather(-1, token_M[part, None]).squeeze(-1)
            entropy_M[part] = _entropy(logp_PV, logp_PV.exp())
        ctx.save_for_backward(logits_MV, token_M)
        ctx.temperature = temperature
        return logp_M, entropy_M

    @staticmethod
    def backward(ctx: Any, to_logp_M: Tensor | None, to_entropy_M: Tensor | None) -> tuple[Tensor, None, None]:
        logits_MV, token_M = ctx.saved_tensors
        to_logits_MV = torch.empty_like(logits_MV)
        if to_logp_M is None:
            to_logp_M = logits_MV.new_zeros(len(token_M), dtype=torch.float32)
        for part in _parts(logits_MV):
            logp_PV = _log_softmax(logits_MV[part], ctx.temperature)
            p_PV = logp_PV.exp()
            to_PV = p_PV * -to_logp_M[part, None]  # d logp of the token = 1 at the token - p
            to_PV.scatter_add_(-1, token_M[part, None], to_logp_M[part, None])
            if to_entropy_M is not None:  # d entropy = -p * (logp + entropy)
                entropy_P1 = _entropy(logp_PV, p_PV).unsqueeze(-1)
                to_PV -= (logp_PV + entropy_P1) * p_PV * to_entropy_M[part, None]
            to_logits_MV[part] = to_PV / ctx.temperature
        return to_logits_MV, None, None


def _parts(logits_MV: Tensor) -> list[slice]:
    numbers = _NUMBERS if logits_MV.device.type == "cpu" else _NUMBERS_ON_GPU
    rows = max(1, numbers // logits_MV.shape[-1])
    return [slice(start, start + rows) for start in range(0, len(logits_MV), rows)]


def _log_softmax(logits_PV: Tensor, temperature: float) -> Tensor:
    return (logits_PV.float() if temperature == 1.0 else logits_PV.float() / temperature).log_softmax(dim=-1)


def _entropy(logp_PV: Tensor, p_PV: Tensor) -> Tensor:
    return -(p_PV * logp_PV).sum(dim=-1)


def policy_loss(
    logp_NT: Tensor,
    old_logp_NT: Tensor,
    advantage_N: Tensor,
    mask_NT: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    aggregation: Aggregation,
    divisor: float,
    weight_NT: Tensor | None = None,
) -> PolicyLoss:
    """Return the clipped surrogate -min(ratio * A, clip(ratio, 1 - low, 1 + high) * A), aggregated over written tokens.

    `old_logp_NT` are those recorded at sampling.  While they equal `logp_NT` the gradient is that of -A * logp.

    Args:
        logp_NT: log-probabilities under the policy being trained, with gradient.
        old_logp_NT: log-probabilities when the tokens were sampled, or with `weight_NT`, before the first step.
        advantage_N: one advantage per sequence.
        mask_NT: True where the policy wrote the token.
        clip_low: how far below 1 a ratio may fall before its gradient is cut; 1 never cuts.
        clip_high: how far above 1 a ratio may rise before its gradient is cut; infinity never cuts.
        aggregation: see `aggregate`.
        divisor: see `update_divisor`.
        weight_NT: a constant factor per token (see `importance_weights`); None is 1.

    Source: PPO (arXiv 1707.06347), equation 7; asymmetric bounds from DAPO (arXiv 2503.14476), section 3.1.
    """
    log_ratio_NT = masked_difference(logp_NT, old_logp_NT, mask_NT).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_NT = log_ratio_NT.exp()
    advantage_N1 = advantage_N.unsqueeze(-1)
    bounded_NT = ratio_NT.clamp(1.0 - clip_low, 1.0 + clip_high)
    gain_NT = torch.minimum(ratio_NT * advantage_N1, bounded_NT * advantage_N1)
    if weight_NT is not None:
        gain_NT = gain_NT * weight_NT
    too_low_NT = (ratio_NT < 1.0 - clip_low) & (advantage_N1 < 0)
    too_high_NT = (ratio_NT > 1.0 + clip_high) & (advantage_N1 > 0)
    return PolicyLoss(
        loss=aggregate(-gain_NT, mask_NT, aggregation=aggregation, divisor=divisor),
        ratio_mean=masked_mean(ratio_NT, mask_NT),
        clip_fraction=masked_mean(too_low_NT | too_high_NT, mask_NT),
        approx_kl=masked_mean(ratio_NT - 1.0 - log_ratio_NT, mask_NT),
    )


def importance_weights(log_ratio_NT: Tensor, *, cap: float) -> Tensor:
    """Return min(exp(d), cap) per token, without gradient: truncated importance sampling.

    `log_ratio_NT` is d = learner - sampler, of the same tokens under weights that should be the same.

    Source: F. Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (2025).
    """
    return log_ratio_NT.detach().float().clamp(max=MAX_LOG_RATIO).exp().clamp(max=cap)


def k3_kl(log_ratio_NT: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || reference) per token: exp(d) - d - 1, never negative.

    `log_ratio_NT` is d = reference - policy.  It is bounded from above at 20 before `exp`; beyond that the value stays
    put and the gradient is 0, where the plain formula overflows.

    Source: J. Schulman, "Approximating KL Divergence" (2020); DeepSeekMath, equation 4.
    """
    bounded_NT = log_ratio_NT.float().clamp(max=MAX_LOG_RATIO)
    return bounded_NT.exp() - bounded_NT - 1.0


def masked_difference(left_NT: Tensor, right_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Return left - right where the mask is True and exactly 0 elsewhere, even over NaN and infinity."""
    return (left_NT - right_NT).masked_fill(~mask_NT, 0.0)


def masked_mean(value_NT: Tensor, mask_NT: Tensor) -> float:
    """Return the mean over the True positions of the mask, of which there must be at least one.

    Raises:
        InvalidInput: the mask is False everywhere.
    """
    if not mask_NT.any():
        raise InvalidInput("mask_NT must be True somewhere, got a mask that is False everywhere")
    return float(value_NT.detach()[mask_NT].float().mean())


def aggregate(value_NT: Tensor, mask_NT: Tensor, *, aggregation: Aggregation, divisor: float) -> Tensor:
    """Sum per-token values into this micro-batch's share of the objective; the shares of an update add up to it.

    "sequence" averages within each sequence and then over sequences (GRPO); "token" averages over all tokens (DAPO);
    "constant" divides each sequence by one fixed length and averages over sequences (Dr. GRPO).  They are three
    different objectives: only "sequence" makes a token of a short sequence weigh more.

    Args:
        value_NT: a loss per token.
        mask_NT: True where the policy wrote the token.
        aggregation: which of the three.
        divisor: `update_divisor` of the whole update, not of this micro-batch.
    """
    _check_choice("aggregation", aggregation, Aggregation)
    if not divisor > 0:
        raise InvalidInput(f"divisor must be positive, got {divisor!r}")
    value_NT = value_NT.masked_fill(~mask_NT, 0.0)
    if aggregation == "sequence":
        value_NT = value_NT / mask_NT.sum(dim=-1, keepdim=True).clamp(min=1)
    return value_NT.sum() / divisor


def update_divisor(aggregation: Aggregation, *, sequences: int, tokens: int, constant_length: int | None) -> float:
    """Return what the sums of a whole update are divided by.

    Args:
        aggregation: see `aggregate`.
        sequences: sequences in the update.
        tokens: written tokens in the update.
        constant_length: the fixed length of "constant"; the other two ignore it.
    """
    _check_choice("aggregation", aggregation, Aggregation)
    if aggregation != "constant":
        return float(sequences if aggregation == "sequence" else tokens)
    if constant_length is None or constant_length < 1:
        raise InvalidInput(f"constant_length must be at least 1 with aggregation 'constant', got {constant_length!r}")
    return float(sequences * constant_length)


def _raw(reward_N: Tensor, scale: Scale) -> Advantages:
    if scale != "none":
        raise InvalidInput(f"scale must be 'none' with baseline 'none', got {scale!r}")
    flat_N = reward_N == 0.0
    return Advantages(reward_N.float(), flat_N, float(flat_N.double().mean()))


def _spread(reward_G: Tensor, reward_N: Tensor, scale: Scale) -> Tensor | float:
    if scale == "none":
        return 1.0
    return (reward_G if scale == "group" else reward_N).std(correction=0) + EPSILON


def _check_rewards(reward_N: Tensor, group_N: Sequence[Hashable]) -> None:
    if reward_N.ndim != 1 or len(reward_N) != len(group_N) or len(group_N) == 0:
        raise InvalidInput(
            f"reward_N must hold one reward for each of the {len(group_N)} entries of group_N, and at least one, "
            f"got shape {tuple(reward_N.shape)!r}"
        )
    for position, reward in enumerate(reward_N.tolist()):
        if not abs(reward) < float("inf"):
            raise InvalidInput(f"rewards must be finite, got {reward!r} at position {position}")


def _members(group_N: Sequence[Hashable]) -> list[list[int]]:
    members: dict[Hashable, list[int]] = {}
    for position, group in enumerate(group_N):
        members.setdefault(group, []).append(position)
    for group, positions in members.items():
        if len(positions) < 2:
            raise InvalidInput(f"a group needs at least 2 sequences to compare, got 1 in group {group!r}")
    return list(members.values())


def _check_choice(argument: str, value: str, kind: object) -> None:
    if value not in get_args(kind):
        raise InvalidInput(f"{argument} must be one of {get_args(kind)!r}, got {value!r}")
