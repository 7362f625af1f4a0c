"""The decisions of a policy update, as values: which algorithm it is, is nothing else.

REINFORCE      baseline="none"  scale="none"            one epoch, so that the clip never acts
GRPO           baseline="group" scale="group"           aggregation="sequence"
Dr. GRPO       baseline="group" scale="none"            aggregation="constant" constant_length=...
DAPO           clip_high=0.28   mask_zero_advantage     aggregation="token"
PPO's clip     clip_low=0.2     clip_high=0.2           epochs=4
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import get_args

from agents.grpo import MIN_TEMPERATURE, Aggregation, Baseline, Scale
from agents.schedule import Schedule
from sesa_env.errors import SettingsError


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How a policy is updated; one field per decision.

    Raises:
        SettingsError: a value is out of range, or two contradict each other.
    """

    lr: float = 1e-6
    """Step size of AdamW, for full weights; adapters need more (1e-5 to 1e-4).  0 freezes the policy: no update."""
    schedule: Schedule = "constant"
    """What the step size does after the warm-up: "constant", "linear" or "cosine"."""
    warmup_updates: int = 0
    total_updates: int | None = None
    """Where "linear" and "cosine" end; None is the run's number of steps."""
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    """How far a ratio may fall below 1; 1 never clips."""
    clip_high: float | None = 0.2
    """How far a ratio may rise above 1; None never clips."""
    importance_cap: float | None = None
    """Weigh each token by the learner's over the sampler's probability, at most this; None takes them as equal."""
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
    """Tokens in one forward pass, padding included and what the whole update begins with left out.

    A longer sequence runs alone, and each holds a copy of the keys it shares.  It does not change the result.
    """
    gradient_checkpointing: bool = False
    """Run each layer again in the backward pass instead of keeping what it computed: less memory, more time."""
    mask_zero_advantage: bool = False
    """Leave groups of equal rewards out of the update altogether, KL and denominators included."""
    mask_truncated: bool = False
    """Leave truncated attempts out of the update; their rewards still count in the baseline of their group."""
    max_logp_gap: float | None = None
    """Refuse an update when sampler and learner differ by more on any token; None only records the gap."""

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay", "kl_coef", "entropy_coef"):
            _require(self, name, 0 <= getattr(self, name) < inf, "be finite and not negative")
        _require(self, "max_grad_norm", 0 < self.max_grad_norm < inf, "be positive and finite")
        _require(self, "clip_low", 0 < self.clip_low <= 1, "lie in (0, 1]")
        _require(
            self, "clip_high", self.clip_high is None or 0 < self.clip_high < inf, "be positive and finite, or None"
        )
        for name in ("epochs", "micro_batch_tokens"):
            _require(self, name, getattr(self, name) >= 1, "be at least 1")
        for name, kind in (
            ("aggregation", Aggregation),
            ("scale", Scale),
            ("baseline", Baseline),
            ("schedule", Schedule),
        ):
            _require(self, name, getattr(self, name) in get_args(kind), f"be one of {get_args(kind)!r}")
        _require(self, "scale", self.baseline != "none" or self.scale == "none", "be 'none' with baseline 'none'")
        _require(self, "temperature", self.temperature >= MIN_TEMPERATURE, f"be at least {MIN_TEMPERATURE}")
        for name in ("max_logp_gap", "importance_cap"):
            value = getattr(self, name)
            _require(self, name, value is None or value > 0, "be positive or None")
        _require(self, "warmup_updates", self.warmup_updates >= 0, "be at least 0")
        _require(self, "total_updates", self.total_updates is None or self.total_updates >= 1, "be at least 1 or None")
        wants_length = self.aggregation == "constant"
        has_length = self.constant_length is not None and self.constant_length >= 1
        _require(self, "constant_length", has_length or not wants_length, "be at least 1 with aggregation 'constant'")

    @property
    def frozen(self) -> bool:
        """Whether the policy is never updated, and so needs no optimiser."""
        return self.lr == 0


def _require(settings: LearnerSettings, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise SettingsError(f"{name} must {rule}, got {getattr(settings, name)!r}")
