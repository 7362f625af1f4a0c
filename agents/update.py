"""What goes into a policy update, what comes out, and the arithmetic in between that needs no model.

    plan = make_plan(samples, settings)        # who is run, with which advantage, and what the sums are divided by
    stats = plan.stats(**tally.figures())

Nothing here runs a model or an optimiser.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch

from agents.grpo import Advantages, group_advantages, update_divisor
from agents.learner_settings import LearnerSettings
from agents.scoring import Row
from agents.tokens import TokenTrajectory, repetition


@dataclass(frozen=True, slots=True)
class Sample:
    """An attempt, what it earned, and the id of the group it competes in (the question, for a solver)."""

    trajectory: TokenTrajectory
    reward: float
    group: Hashable


class Gap(NamedTuple):
    """|sampler - learner| over the written tokens, in nats: its mean, its largest value, and over how many."""

    mean: float
    largest: float
    tokens: int


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What one update saw and did.  A number that could not be measured is None, never zero.

    With several epochs the figures are those of the last one, except the gap, which is measured before any step.

    Attributes:
        loss: the whole objective, KL and entropy included.
        policy_loss: its clipped policy part.
        nll: mean negative log-probability per written token, in nats: the loss of supervised learning.
        kl: mean k3 estimate of KL(policy || reference) per written token, in nats.
        entropy: mean entropy over written tokens, in nats.
        ratio_mean, clip_fraction, approx_kl: see `agents.grpo.PolicyLoss`.
        importance_mean: mean weight of `importance_cap`.
        zero_variance_share: share of groups whose rewards were all equal.
        lr: the step size that was taken.
        grad_norm: before clipping.
        logp_gap_mean, logp_gap_max: |sampler - learner| over written tokens, before the first step.
        tokens, sequences, groups: what the objective is averaged over; groups as they were handed in.
        repetition: mean share of repeated written 4-grams.
        updated: whether the weights moved.
        skipped_flat: nothing had an advantage (or all was masked), and neither KL nor entropy was to pull.
        skipped_nonfinite: a loss or gradient was not finite, and the step it belonged to was not taken.
    """

    zero_variance_share: float
    tokens: int
    sequences: int
    groups: int
    repetition: float
    updated: bool = False
    skipped_flat: bool = False
    skipped_nonfinite: bool = False
    loss: float | None = None
    policy_loss: float | None = None
    nll: float | None = None
    kl: float | None = None
    entropy: float | None = None
    ratio_mean: float | None = None
    clip_fraction: float | None = None
    approx_kl: float | None = None
    importance_mean: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    logp_gap_mean: float | None = None
    logp_gap_max: float | None = None

    def as_dict(self) -> dict[str, float]:
        """Return every number that was measured, flags as 0.0 or 1.0."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: float(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Plan:
    """What an update will run, what its sums are divided by, and what is known of it beforehand.

    `imitates` says that the tokens are a teacher's: they have no log-probabilities of sampling.
    """

    rows: list[Row]
    divisor: float
    known: dict[str, Any]
    imitates: bool = False

    def stats(self, **measured: Any) -> UpdateStats:
        """Return the statistics of this update with what was measured."""
        return UpdateStats(**self.known, **measured)


class Tally:
    """Figures of one pass over all micro-batches: shares of the loss add up, means weigh by tokens."""

    def __init__(self) -> None:
        self.loss = self.policy_loss = self.gap_max = 0.0
        self.tokens = 0
        self._sums: dict[str, float] = {}

    def add(self, means: dict[str, float], *, tokens: int, gap_max: float) -> None:
        """Add a micro-batch: means over its written tokens, how many there are, and its largest gap."""
        self.gap_max = max(self.gap_max, gap_max)
        self.tokens += tokens
        for name, mean in means.items():
            self._sums[name] = self._sums.get(name, 0.0) + mean * tokens

    @property
    def gap(self) -> Gap:
        """The gap over all micro-batches."""
        return Gap(self._sums["gap"] / self.tokens, self.gap_max, self.tokens)

    def figures(self) -> dict[str, float]:
        """Return the losses and the means, without the gap."""
        means = {name: total / self.tokens for name, total in self._sums.items() if name != "gap"}
        return {"loss": self.loss, "policy_loss": self.policy_loss, **means}


def comparable(samples: Iterable[Sample]) -> list[Sample]:
    """Leave out samples that are alone in their group: an infrastructure failure took those they compete with.

    A group that lost some members and still has two goes on with those; groups are never merged.
    """
    samples = list(samples)
    sizes: dict[Hashable, int] = {}
    for sample in samples:
        sizes[sample.group] = sizes.get(sample.group, 0) + 1
    return [sample for sample in samples if sizes[sample.group] >= 2]


def make_plan(samples: Sequence[Sample], settings: LearnerSettings) -> Plan:
    """Compare the samples and leave out those that the settings mask or that nothing pulls on."""
    reward_N = torch.tensor([sample.reward for sample in samples], dtype=torch.float64)
    groups = [sample.group for sample in samples]
    result = group_advantages(reward_N, groups, scale=settings.scale, baseline=settings.baseline)
    rows = _counted_rows(samples, result, settings)
    known = _known(rows, [sample.trajectory for sample in samples], groups=len(set(groups)))
    known["zero_variance_share"] = result.zero_variance_share
    divisor = _divisor(rows, settings)
    if settings.kl_coef == 0 and settings.entropy_coef == 0:
        rows = [row for row in rows if row.advantage != 0.0]  # no need to run what nothing pulls on
    return Plan(rows, divisor, known)


def make_imitation(trajectories: Sequence[TokenTrajectory], settings: LearnerSettings) -> Plan:
    """Plan a step towards what the trajectories wrote: an advantage of 1 each, at the policy's own probabilities."""
    rows = [Row(position, trajectory, 1.0) for position, trajectory in enumerate(trajectories)]
    known = _known(rows, trajectories, groups=len(rows))
    return Plan(rows, _divisor(rows, settings), {**known, "zero_variance_share": 0.0}, imitates=True)


def _known(rows: Sequence[Row], trajectories: Sequence[TokenTrajectory], *, groups: int) -> dict[str, Any]:
    return {
        "tokens": sum(row.trajectory.written_count for row in rows),
        "sequences": len(rows),
        "groups": groups,
        "repetition": sum(map(repetition, trajectories)) / len(trajectories),
    }


def _divisor(rows: Sequence[Row], settings: LearnerSettings) -> float:
    return update_divisor(
        settings.aggregation,
        sequences=len(rows),
        tokens=sum(row.trajectory.written_count for row in rows),
        constant_length=settings.constant_length,
    )


def _counted_rows(samples: Sequence[Sample], result: Advantages, settings: LearnerSettings) -> list[Row]:
    """One effective mask: what is left out here is in no sum, no mean and no denominator."""
    rows = []
    for position, (sample, advantage, flat) in enumerate(
        zip(samples, result.advantage_N.tolist(), result.flat_N.tolist(), strict=True)
    ):
        row = Row(position, sample.trajectory, advantage)
        dropped = settings.mask_truncated and sample.trajectory.truncated
        if not dropped and not (settings.mask_zero_advantage and flat):
            rows.append(row)
    return rows
