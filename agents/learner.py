"""One policy update from a batch of attempts, in tokens.

The learner knows rewards, groups and log-probabilities; it knows neither roles nor where a reward came from.  What is
specific to a policy reaches it through two contexts: `activate` selects the weights to train (an adapter, say) and
`reference` the frozen ones that KL is measured against.

    learner = Learner(model, parameters, LearnerSettings(lr=1e-4), reference=model.disable_adapter)
    stats = learner.update([Sample(trajectory, reward=1.0, group="q7"), Sample(other, reward=0.0, group="q7")])
    stats = learner.imitate(teacher_trajectories)

Old log-probabilities are always those recorded at sampling, so several learners may update shared weights one after the
other.  A loss or gradient that is not finite never reaches the weights: the step is skipped and counted.
Nothing here samples, scores answers or writes files.

Dimension key:  N sequence   T token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor, nn

from agents.grpo import aggregate, importance_weights, k3_kl, masked_difference, masked_mean, policy_loss
from agents.learner_settings import LearnerSettings as LearnerSettings
from agents.schedule import lr_factor
from agents.scoring import Batch, Row, Scorer, without_dropout
from agents.tokens import TokenTrajectory
from agents.update import Gap, Plan, Tally, make_imitation, make_plan
from agents.update import Sample as Sample
from agents.update import UpdateStats as UpdateStats
from agents.update import comparable as comparable
from sesa_env.errors import InvalidInput, PolicyMismatch, SettingsError

Context = Callable[[], AbstractContextManager[Any]]


class Learner:
    """Updates one set of weights with AdamW.

    Args:
        model: a causal model of transformers, with or without peft adapters; dropout is off while it is used here.
        parameters: the float32 tensors to train; nothing else is changed.
        settings: how.
        activate: a context in which the model is the policy to train.
        reference: a context in which `reference_model` is the reference of the KL term.
        reference_model: the model to run in that context; None is `model` itself.
        optimizer: another learner's, when both train the same parameters; None makes one.

    Attributes:
        updates: calls of `update` and `imitate` so far, skipped ones included.
        skipped_flat: how many of them had nothing to learn from.
        skipped_nonfinite: how many met a loss or gradient that was not finite.

    Raises:
        SettingsError: the settings freeze the policy; `kl_coef` is positive and there is no reference; or gradient
            checkpointing is asked of a model without layers that can do it.
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
        reference_model: nn.Module | None = None,
        optimizer: torch.optim.AdamW | None = None,
    ) -> None:
        self._parameters = list(parameters)
        _check_parameters(self._parameters, optimizer)
        if settings.frozen:
            raise SettingsError(f"lr must be positive to learn, got {settings.lr!r}; a frozen seat has no learner")
        if settings.kl_coef > 0 and reference is None:
            raise SettingsError(f"kl_coef must be 0 without a reference, got {settings.kl_coef!r}")
        self.settings = settings
        self.optimizer = optimizer or torch.optim.AdamW(
            self._parameters, lr=settings.lr, weight_decay=settings.weight_decay
        )
        self.updates = self.skipped_flat = self.skipped_nonfinite = 0
        self._model, self._activate, self._reference = model, activate, reference or nullcontext
        self._device = self._parameters[0].device
        scorer = partial(Scorer, temperature=settings.temperature, device=self._device)
        with activate():
            self._scorer = scorer(model, checkpointing=settings.gradient_checkpointing)
        with self._reference():
            self._reference_scorer = scorer(reference_model or model)

    def update(self, samples: Sequence[Sample], *, gap: Gap | None = None) -> UpdateStats:
        """Take one optimiser step per epoch towards the better samples of each group.

        Args:
            samples: the whole update; groups may be of any size from 2 and in any order.
            gap: what `gap` returned for these samples before another learner moved the same weights; None measures it.

        Raises:
            InvalidInput: a sample wrote nothing, a reward is not finite, or a group has fewer than 2 members.
            PolicyMismatch: a log-probability differs by more than `max_logp_gap` from the sampler's; no weight moved.
        """
        return self._run(make_plan(samples, self.settings), gap)

    def imitate(self, trajectories: Sequence[TokenTrajectory]) -> UpdateStats:
        """Take one optimiser step per epoch towards what a teacher wrote: the mean of -logp over the written tokens.

        Whatever log-probabilities are recorded in the trajectories play no part.

        Raises:
            InvalidInput: there is no trajectory, or one holds nothing to imitate.
        """
        if not trajectories:
            raise InvalidInput("trajectories must hold at least one to imitate, got none")
        return self._run(make_imitation(trajectories, self.settings), None)

    def gap(self, samples: Sequence[Sample]) -> Gap | None:
        """Measure how far the weights are from those that sampled; None when an update would run nothing.

        Raises:
            InvalidInput, PolicyMismatch: as `update` does.
        """
        tally = Tally()
        batches = self._batches(make_plan(samples, self.settings).rows)
        for batch, logp_NT in zip(batches, self._logps(batches, self._scorer, self._activate), strict=True):
            gap_NT = masked_difference(logp_NT, batch.old_logp_NT, batch.mask_NT).abs()
            means = {"gap": masked_mean(gap_NT, batch.mask_NT)}
            tally.add(means, tokens=int(batch.mask_NT.sum()), gap_max=float(gap_NT.max()))
        return self._checked(tally.gap, batches) if batches else None

    def score(self, trajectories: Sequence[TokenTrajectory]) -> list[tuple[float, ...]]:
        """Return the log-probability the current weights give each written token of each trajectory; 0.0 elsewhere."""
        rows = [Row(position, trajectory) for position, trajectory in enumerate(trajectories)]
        scores: dict[int, tuple[float, ...]] = {}
        batches = self._batches(rows)
        for batch, logp_NT in zip(batches, self._logps(batches, self._scorer, self._activate), strict=True):
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

    def _run(self, plan: Plan, gap: Gap | None) -> UpdateStats:
        self.updates += 1
        if not plan.rows:
            self.skipped_flat += 1
            return plan.stats(skipped_flat=True)
        batches = self._batches(plan.rows)
        stats = self._steps(batches, self._reference_logps(batches), plan, gap)
        self.skipped_nonfinite += stats.skipped_nonfinite
        return stats

    def _steps(
        self, batches: list[Batch], reference_logps: list[Tensor | None], plan: Plan, gap: Gap | None
    ) -> UpdateStats:
        updated = False
        about: dict[str, float] = {}
        olds: list[Tensor] = []  # what the learner itself gave the tokens before its first step
        for _ in range(self.settings.epochs):
            tally = self._accumulate(batches, reference_logps, plan, olds)
            if not isfinite(tally.loss):
                self.optimizer.zero_grad(set_to_none=True)
                return plan.stats(**about, updated=updated, skipped_nonfinite=True)
            if not plan.imitates and not about:
                gap = gap or self._checked(tally.gap, batches)
                about = {"logp_gap_mean": gap.mean, "logp_gap_max": gap.largest}
            lr, grad_norm = self._step()
            if not isfinite(grad_norm):
                return plan.stats(**about, updated=updated, skipped_nonfinite=True)
            updated = True
        return plan.stats(**about, **tally.figures(), lr=lr, grad_norm=grad_norm, updated=updated)

    def _accumulate(
        self, batches: list[Batch], reference_logps: list[Tensor | None], plan: Plan, olds: list[Tensor]
    ) -> Tally:
        self.optimizer.zero_grad(set_to_none=True)
        tally = Tally()
        with self._activate(), without_dropout(self._model), torch.enable_grad():
            root = self._scorer.root(batches)
            for number, (batch, reference_NT) in enumerate(zip(batches, reference_logps, strict=True)):
                logp_NT, entropy_NT = self._scorer.logps(batch, root)
                if len(olds) == number:
                    olds.append(logp_NT.detach())
                loss = self._objective(batch, logp_NT, entropy_NT, reference_NT, olds[number], plan, tally)
                if not isfinite(tally.loss):
                    return tally
                loss.backward()  # type: ignore[no-untyped-call]
            root.backward()
        return tally

    def _objective(
        self,
        batch: Batch,
        logp_NT: Tensor,
        entropy_NT: Tensor,
        reference_NT: Tensor | None,
        own_NT: Tensor,
        plan: Plan,
        tally: Tally,
    ) -> Tensor:
        """Return the micro-batch's share of the loss; `own_NT` is the learner's own before its first step."""
        settings, mask_NT = self.settings, batch.mask_NT
        total = partial(aggregate, mask_NT=mask_NT, aggregation=settings.aggregation, divisor=plan.divisor)
        mean = partial(masked_mean, mask_NT=mask_NT)
        gap_NT = masked_difference(logp_NT.detach(), batch.old_logp_NT, mask_NT).abs()
        means = {"entropy": mean(entropy_NT), "nll": -mean(logp_NT), "gap": mean(gap_NT)}
        old_NT, weight_NT = batch.old_logp_NT, None
        if plan.imitates:
            old_NT = own_NT
        elif settings.importance_cap is not None:
            drift_NT = masked_difference(own_NT, batch.old_logp_NT, mask_NT)
            old_NT, weight_NT = own_NT, importance_weights(drift_NT, cap=settings.importance_cap)
            means["importance_mean"] = mean(weight_NT)
        policy = policy_loss(
            logp_NT,
            old_NT,
            batch.advantage_N,
            mask_NT,
            clip_low=settings.clip_low,
            clip_high=inf if settings.clip_high is None else settings.clip_high,
            aggregation=settings.aggregation,
            divisor=plan.divisor,
            weight_NT=weight_NT,
        )
        means |= {name: getattr(policy, name) for name in ("ratio_mean", "clip_fraction", "approx_kl")}
        loss = policy.loss
        if settings.entropy_coef > 0:
            loss = loss - settings.entropy_coef * total(entropy_NT)
        if reference_NT is not None:
            kl_NT = k3_kl(masked_difference(reference_NT, logp_NT, mask_NT))
            loss = loss + settings.kl_coef * total(kl_NT)
            means["kl"] = mean(kl_NT)
        tally.loss += float(loss.detach())
        tally.policy_loss += float(policy.loss.detach())
        tally.add(means, tokens=int(mask_NT.sum()), gap_max=float(gap_NT.max()))
        return loss

    def _checked(self, gap: Gap, batches: list[Batch]) -> Gap:
        limit = self.settings.max_logp_gap
        if limit is None or gap.largest <= limit:
            return gap
        self.optimizer.zero_grad(set_to_none=True)
        shapes = [tuple(batch.token_NT.shape) for batch in batches]
        raise PolicyMismatch(
            f"log-probabilities recorded at sampling differ from the learner's by up to {gap.largest:.3g} (mean "
            f"{gap.mean:.3g}) over {gap.tokens} tokens, max_logp_gap is {limit!r}: weights, temperature, number format "
            f"or prompt are not the same; learner's batch shapes {shapes!r}"
        )

    def _step(self) -> tuple[float, float]:
        """Step unless the gradient is not finite, and return the step size and the gradient's norm."""
        if all(parameter.grad is None for parameter in self._parameters):
            raise InvalidInput("activate must select this learner's parameters, but none of them received a gradient")
        settings = self.settings
        norm = float(nn.utils.clip_grad_norm_(self._parameters, settings.max_grad_norm))
        lr = settings.lr * lr_factor(
            settings.schedule, number=self.updates, warmup=settings.warmup_updates, total=settings.total_updates
        )
        for group in self.optimizer.param_groups:  # a loaded state or a learner that shares it may have set others
            group.update(lr=lr, weight_decay=settings.weight_decay)
        if isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return lr, norm

    def _reference_logps(self, batches: list[Batch]) -> list[Tensor | None]:
        if self.settings.kl_coef == 0:
            return [None] * len(batches)
        return list(self._logps(batches, self._reference_scorer, self._reference))

    def _logps(self, batches: list[Batch], scorer: Scorer, context: Context) -> list[Tensor]:
        with context(), without_dropout(self._model), torch.no_grad():
            root = scorer.root(batches)
            return [scorer.logps(batch, root)[0] for batch in batches]

    def _batches(self, rows: Sequence[Row]) -> list[Batch]:
        return self._scorer.batches(rows, tokens=self.settings.micro_batch_tokens)


_COUNTERS = ("updates", "skipped_flat", "skipped_nonfinite")


def _check_parameters(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer | None) -> None:
    if not parameters:
        raise InvalidInput("parameters must hold at least one tensor to train, got none")
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise InvalidInput(f"parameters must be float32 to be trained, got {parameter.dtype!r}")
    stepped = {id(one) for group in optimizer.param_groups for one in group["params"]} if optimizer else None
    if stepped not in (None, {id(one) for one in parameters}):
        raise InvalidInput("optimizer must step exactly the tensors in parameters, got one of other tensors")
