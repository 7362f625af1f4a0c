"""One policy update from a batch of attempts, in tokens.

The learner knows rewards, groups and log-probabilities; it knows neither roles nor where a reward came from.  What is
specific to a policy reaches it through two contexts: `activate` selects the weights to train (an adapter, say) and
`reference` turns the model into the frozen one that KL is measured against.

    learner = Learner(model, parameters, LearnerSettings(lr=1e-4), reference=model.disable_adapter)
    stats = learner.update([Sample(trajectory, reward=1.0, group="q7"), Sample(other, reward=0.0, group="q7")])

Old log-probabilities are always those recorded at sampling, so several learners may update shared weights one after the
other.  A loss or gradient that is not finite never reaches the weights: the step is skipped and counted.
Nothing here samples, scores answers or writes files.

Dimension key:  N sequence   T token.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from math import inf, isfinite
from typing import Any, get_args

import torch
from torch import Tensor, nn

from agents.grpo import (
    MIN_TEMPERATURE,
    Advantages,
    Aggregation,
    Baseline,
    Scale,
    aggregate,
    group_advantages,
    k3_kl,
    masked_difference,
    masked_mean,
    policy_loss,
    update_divisor,
)
from agents.scoring import Batch, Row, Scorer, collate, micro_batches, without_dropout
from agents.tokens import TokenTrajectory, repetition
from sesa_env.errors import InvalidInput, PolicyMismatch, SettingsError

Context = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How a policy is updated; one field per decision.

    Raises:
        SettingsError: a value is out of range.
    """

    lr: float = 1e-6
    """Step size of AdamW, for full weights; adapters need more (1e-5 to 1e-4)."""
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coef: float = 0.01
    """Weight of KL(policy || reference); 0 needs no reference."""
    entropy_coef: float = 0.0
    aggregation: Aggregation = "token"
    constant_length: int | None = None
    """The fixed length of aggregation "constant", which needs it."""
    scale: Scale = "group"
    baseline: Baseline = "group"
    temperature: float = 1.0
    """The temperature the tokens were sampled at."""
    epochs: int = 1
    """Optimiser steps on the same batch."""
    micro_batch_tokens: int = 1024
    """Tokens, padding included, in one forward pass; a longer sequence runs alone.  It does not change the result."""
    mask_zero_advantage: bool = False
    """Leave groups of equal rewards out of the update altogether, KL and denominators included."""
    mask_truncated: bool = False
    """Leave truncated attempts out of the update; their rewards still count in the baseline of their group."""
    max_logp_gap: float | None = None
    """Refuse an update when sampler and learner differ by more on any token; None only records the gap."""

    def __post_init__(self) -> None:
        for name in ("lr", "max_grad_norm", "clip_low", "clip_high"):
            _require(self, name, 0 < getattr(self, name) < inf, "be positive and finite")
        for name in ("weight_decay", "kl_coef", "entropy_coef"):
            _require(self, name, 0 <= getattr(self, name) < inf, "be finite and not negative")
        for name in ("epochs", "micro_batch_tokens"):
            _require(self, name, getattr(self, name) >= 1, "be at least 1")
        for name, kind in (("aggregation", Aggregation), ("scale", Scale), ("baseline", Baseline)):
            _require(self, name, getattr(self, name) in get_args(kind), f"be one of {get_args(kind)!r}")
        _require(self, "clip_low", self.clip_low < 1, "be below 1")
        _require(self, "temperature", self.temperature >= MIN_TEMPERATURE, f"be at least {MIN_TEMPERATURE}")
        _require(self, "max_logp_gap", self.max_logp_gap is None or self.max_logp_gap > 0, "be positive or None")
        wants_length = self.aggregation == "constant"
        has_length = self.constant_length is not None and self.constant_length >= 1
        _require(self, "constant_length", has_length or not wants_length, "be at least 1 with aggregation 'constant'")


@dataclass(frozen=True, slots=True)
class Sample:
    """An attempt, what it earned, and the id of the group it competes in (the question, for a solver)."""

    trajectory: TokenTrajectory
    reward: float
    group: Hashable


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What one update saw and did.  A number that could not be measured is None, never zero.

    With several epochs the figures are those of the last one, except the gap, which is measured before any step.

    Attributes:
        loss: the whole objective, KL and entropy included.
        policy_loss: its clipped policy part.
        kl: mean k3 estimate of KL(policy || reference) per written token, in nats.
        entropy: mean entropy over written tokens, in nats.
        ratio_mean, clip_fraction, approx_kl: see `agents.grpo.PolicyLoss`.
        zero_variance_share: share of groups whose rewards were all equal.
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
    kl: float | None = None
    entropy: float | None = None
    ratio_mean: float | None = None
    clip_fraction: float | None = None
    approx_kl: float | None = None
    grad_norm: float | None = None
    logp_gap_mean: float | None = None
    logp_gap_max: float | None = None

    def as_dict(self) -> dict[str, float]:
        """Return every number that was measured, flags as 0.0 or 1.0."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: float(value) for name, value in values.items() if value is not None}


def comparable(samples: Iterable[Sample]) -> list[Sample]:
    """Leave out samples that are alone in their group: an infrastructure failure took those they compete with.

    A group that lost some members and still has two goes on with those; groups are never merged.
    """
    samples = list(samples)
    sizes: dict[Hashable, int] = {}
    for sample in samples:
        sizes[sample.group] = sizes.get(sample.group, 0) + 1
    return [sample for sample in samples if sizes[sample.group] >= 2]


class Learner:
    """Updates one set of weights with AdamW.

    Args:
        model: a causal model of transformers, with or without peft adapters; dropout is off while it is used here.
        parameters: the float32 tensors to train; nothing else is changed.
        settings: how.
        activate: a context in which the model is the policy to train.
        reference: a context in which the model is the reference of the KL term.
        optimizer: another learner's, when both train the same parameters; None makes one.

    Attributes:
        updates: calls of `update` so far, skipped ones included.
        skipped_flat: how many of them had nothing to learn from.
        skipped_nonfinite: how many met a loss or gradient that was not finite.

    Raises:
        SettingsError: `kl_coef` is positive and there is no reference.
        InvalidInput: there are no parameters, one is not float32 (steps this small vanish in half precision), or
            `optimizer` steps other tensors.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Iterable[nn.Parameter],
        settings: LearnerSettings,
        *,
        activate: Context = nullcontext,
        reference: Context | None = None,
        optimizer: torch.optim.AdamW | None = None,
    ) -> None:
        self._parameters = list(parameters)
        _check_parameters(self._parameters, optimizer)
        if settings.kl_coef > 0 and reference is None:
            raise SettingsError(f"kl_coef must be 0 without a reference, got {settings.kl_coef!r}")
        self.settings = settings
        self.optimizer = optimizer or torch.optim.AdamW(
            self._parameters, lr=settings.lr, weight_decay=settings.weight_decay
        )
        self.updates = self.skipped_flat = self.skipped_nonfinite = 0
        self._model, self._activate, self._reference = model, activate, reference or nullcontext
        self._device = self._parameters[0].device
        with activate():
            self._scorer = Scorer(model, temperature=settings.temperature, device=self._device)

    def update(self, samples: Sequence[Sample]) -> UpdateStats:
        """Take one optimiser step per epoch towards the better samples of each group.

        Args:
            samples: the whole update; groups may be of any size from 2 and in any order.

        Raises:
            InvalidInput: a sample wrote nothing, a reward is not finite, or a group has fewer than 2 members.
            PolicyMismatch: a log-probability differs by more than `max_logp_gap` from the sampler's; no weight moved.
        """
        plan = _plan(samples, self.settings)
        self.updates += 1
        if not plan.rows:
            self.skipped_flat += 1
            return plan.stats(skipped_flat=True)
        batches = self._batches(plan.rows)
        stats = self._steps(batches, self._reference_logps(batches), plan)
        self.skipped_nonfinite += stats.skipped_nonfinite
        return stats

    def score(self, trajectories: Sequence[TokenTrajectory]) -> list[tuple[float, ...]]:
        """Return the log-probability the current weights give each written token of each trajectory; 0.0 elsewhere."""
        rows = [Row(position, trajectory) for position, trajectory in enumerate(trajectories)]
        scores: dict[int, tuple[float, ...]] = {}
        for batch in self._batches(rows):
            with self._scoring(self._activate):
                logp_NT, _ = self._scorer.logps(batch)
            for row, logp_T in zip(batch.rows, logp_NT.tolist(), strict=True):
                scores[row.position] = tuple(logp_T[: len(row.trajectory)])
        return [scores[position] for position in range(len(rows))]

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state and the counters; the weights are the policy's to save."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        return {"optimizer": self.optimizer.state_dict(), **counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; step size and weight decay stay those of the settings.

        Raises:
            InvalidInput: the keys differ.
        """
        if set(state) != {"optimizer", *_COUNTERS}:
            raise InvalidInput(f"state must have the keys {['optimizer', *_COUNTERS]!r}, got {sorted(state)!r}")
        self.optimizer.load_state_dict(state["optimizer"])
        for name in _COUNTERS:
            setattr(self, name, int(state[name]))

    def _steps(self, batches: list[Batch], reference_logps: list[Tensor | None], plan: _Plan) -> UpdateStats:
        gap: dict[str, float] = {}
        updated = False
        for _ in range(self.settings.epochs):
            tally = self._accumulate(batches, reference_logps, plan.divisor)
            if not isfinite(tally.loss):
                self.optimizer.zero_grad(set_to_none=True)
                return plan.stats(**gap, updated=updated, skipped_nonfinite=True)
            gap = gap or self._checked_gap(tally, batches)
            grad_norm = self._step()
            if not isfinite(grad_norm):
                return plan.stats(**gap, updated=updated, skipped_nonfinite=True)
            updated = True
        return plan.stats(**gap, **tally.figures(), grad_norm=grad_norm, updated=updated)

    def _accumulate(self, batches: list[Batch], reference_logps: list[Tensor | None], divisor: float) -> _Tally:
        self.optimizer.zero_grad(set_to_none=True)
        tally = _Tally()
        with self._activate(), without_dropout(self._model), torch.enable_grad():
            for batch, reference_NT in zip(batches, reference_logps, strict=True):
                loss = self._objective(batch, reference_NT, divisor, tally)
                if not isfinite(tally.loss):
                    break
                loss.backward()  # type: ignore[no-untyped-call]
        return tally

    def _objective(self, batch: Batch, reference_NT: Tensor | None, divisor: float, tally: _Tally) -> Tensor:
        settings, mask_NT = self.settings, batch.mask_NT
        total = partial(aggregate, mask_NT=mask_NT, aggregation=settings.aggregation, divisor=divisor)
        logp_NT, entropy_NT = self._scorer.logps(batch, entropy_gradient=settings.entropy_coef > 0)
        policy = policy_loss(
            logp_NT,
            batch.old_logp_NT,
            batch.advantage_N,
            mask_NT,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            aggregation=settings.aggregation,
            divisor=divisor,
        )
        gap_NT = masked_difference(logp_NT.detach(), batch.old_logp_NT, mask_NT).abs()
        means = {"entropy": masked_mean(entropy_NT, mask_NT), "logp_gap_mean": masked_mean(gap_NT, mask_NT)}
        means |= {name: getattr(policy, name) for name in ("ratio_mean", "clip_fraction", "approx_kl")}
        loss = policy.loss
        if settings.entropy_coef > 0:
            loss = loss - settings.entropy_coef * total(entropy_NT)
        if reference_NT is not None:
            kl_NT = k3_kl(masked_difference(reference_NT, logp_NT, mask_NT))
            loss = loss + settings.kl_coef * total(kl_NT)
            means["kl"] = masked_mean(kl_NT, mask_NT)
        tally.add(float(loss.detach()), float(policy.loss.detach()), float(gap_NT.max()), means, int(mask_NT.sum()))
        return loss

    def _checked_gap(self, tally: _Tally, batches: list[Batch]) -> dict[str, float]:
        limit, mean = self.settings.max_logp_gap, tally.means()["logp_gap_mean"]
        if limit is None or tally.gap_max <= limit:
            return {"logp_gap_mean": mean, "logp_gap_max": tally.gap_max}
        self.optimizer.zero_grad(set_to_none=True)
        shapes = [tuple(batch.token_NT.shape) for batch in batches]
        raise PolicyMismatch(
            f"log-probabilities recorded at sampling differ from the learner's by up to {tally.gap_max:.3g} (mean "
            f"{mean:.3g}) over {tally.tokens} tokens, max_logp_gap is {limit!r}: weights, temperature, number format "
            f"or prompt are not the same; learner's batch shapes {shapes!r}"
        )

    def _step(self) -> float:
        if all(parameter.grad is None for parameter in self._parameters):
            raise InvalidInput("activate must select this learner's parameters, but none of them received a gradient")
        norm = float(nn.utils.clip_grad_norm_(self._parameters, self.settings.max_grad_norm))
        for group in self.optimizer.param_groups:  # a loaded state or a learner that shares it may have set others
            group.update(lr=self.settings.lr, weight_decay=self.settings.weight_decay)
        if isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _reference_logps(self, batches: list[Batch]) -> list[Tensor | None]:
        if self.settings.kl_coef == 0:
            return [None] * len(batches)
        with self._scoring(self._reference):
            return [self._scorer.logps(batch)[0] for batch in batches]

    def _batches(self, rows: Sequence[Row]) -> list[Batch]:
        return [
            collate(part, device=self._device) for part in micro_batches(rows, tokens=self.settings.micro_batch_tokens)
        ]

    @contextmanager
    def _scoring(self, context: Context) -> Iterator[None]:
        with context(), without_dropout(self._model), torch.no_grad():
            yield


_COUNTERS = ("updates", "skipped_flat", "skipped_nonfinite")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an update will run, what its sums are divided by, and what is known of it beforehand."""

    rows: list[Row]
    divisor: float
    known: dict[str, Any]

    def stats(self, **measured: Any) -> UpdateStats:
        return UpdateStats(**self.known, **measured)


class _Tally:
    """Figures of one pass over all micro-batches: shares of the loss add up, means weigh by tokens."""

    def __init__(self) -> None:
        self.loss = self.policy_loss = self.gap_max = 0.0
        self.tokens = 0
        self._sums: dict[str, float] = {}

    def add(self, loss: float, policy: float, gap_max: float, means: dict[str, float], tokens: int) -> None:
        self.loss += loss
        self.policy_loss += policy
        self.gap_max = max(self.gap_max, gap_max)
        self.tokens += tokens
        for name, mean in means.items():
            self._sums[name] = self._sums.get(name, 0.0) + mean * tokens

    def means(self) -> dict[str, float]:
        return {name: total / self.tokens for name, total in self._sums.items()}

    def figures(self) -> dict[str, float]:
        means = {name: mean for name, mean in self.means().items() if name != "logp_gap_mean"}
        return {"loss": self.loss, "policy_loss": self.policy_loss, **means}


def _plan(samples: Sequence[Sample], settings: LearnerSettings) -> _Plan:
    reward_N = torch.tensor([sample.reward for sample in samples], dtype=torch.float64)
    groups = [sample.group for sample in samples]
    result = group_advantages(reward_N, groups, scale=settings.scale, baseline=settings.baseline)
    rows = _counted_rows(samples, result, settings)
    tokens = sum(row.trajectory.written_count for row in rows)
    known = {
        "zero_variance_share": result.zero_variance_share,
        "tokens": tokens,
        "sequences": len(rows),
        "groups": len(set(groups)),
        "repetition": sum(repetition(sample.trajectory) for sample in samples) / len(samples),
    }
    divisor = update_divisor(
        settings.aggregation, sequences=len(rows), tokens=tokens, constant_length=settings.constant_length
    )
    if settings.kl_coef == 0 and settings.entropy_coef == 0:
        rows = [row for row in rows if row.advantage != 0.0]  # nothing pulls on the others: no need to run them
    return _Plan(rows, divisor, known)


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


def _check_parameters(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer | None) -> None:
    if not parameters:
        raise InvalidInput("parameters must hold at least one tensor to train, got none")
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise InvalidInput(f"parameters must be float32 to be trained, got {parameter.dtype!r}")
    stepped = {id(one) for group in optimizer.param_groups for one in group["params"]} if optimizer else None
    if stepped not in (None, {id(one) for one in parameters}):
        raise InvalidInput("optimizer must step exactly the tensors in parameters, got one of other tensors")


def _require(settings: LearnerSettings, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise SettingsError(f"{name} must {rule}, got {getattr(settings, name)!r}")
