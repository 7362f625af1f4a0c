"""The settings of a run: one frozen dataclass per part, read from presets and `key=value` overrides.

    settings = resolve({"memory": {"kind": "none"}}, ["steps=4", "game.attempts=5"])

A method is nothing but values for these fields, so the difference between two methods is the difference between two
settings files.  Unknown keys are refused and the known ones listed; what was resolved is saved with the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from agents.guards import GuardSettings
from agents.learner_settings import LearnerSettings
from agents.policies import recommended_settings
from sesa_env.checks import CheckSettings
from sesa_env.errors import SesaError, SettingsError
from sesa_env.game import GameSettings
from sesa_env.replay import ReplaySettings
from sesa_env.targets import CORPUS
from skill_memory.settings import MemorySettings


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How a language model is loaded, how it writes, and what of it is trained.

    Raises:
        SettingsError: a value is out of range.
    """

    train: str = "lora"
    """What is trained: "lora", an adapter per role on one frozen base; or "full", a whole model per role."""
    dtype: str = "auto"
    """"float32", "bfloat16", or what a short measurement finds best on this machine (`agents.device`), which a run then
    stores in its settings.  What is trained stays in float32."""
    attention: str = "auto"
    """"eager", "sdpa", or what is fastest for the device and the number format (`agents.device`)."""
    device: str = "auto"
    """"cpu", "cuda", or the GPU if there is one."""
    lora_rank: int = 16
    lora_alpha: int = 32
    max_context: int = 2048
    """Most tokens of one attempt, prompt and observations included."""
    max_new_tokens: int = 48
    """Most tokens written in one turn."""
    solver_temperature: float = 1.0
    challenger_temperature: float = 0.8
    demonstrations: bool = True
    """Whether prompts begin with instructions and demonstrations; a policy trained on the protocol needs none."""
    rollout_batch: int = 40
    """Attempts that are written side by side."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("train", ("lora", "full")),
            ("dtype", ("auto", "bfloat16", "float32")),
            ("attention", ("auto", "eager", "sdpa")),
            ("device", ("auto", "cpu", "cuda")),
        ):
            _require(name, getattr(self, name), getattr(self, name) in choices, f"be one of {choices!r}")
        for name in ("lora_rank", "lora_alpha", "max_new_tokens", "rollout_batch"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "be at least 1")
        _require("max_context", self.max_context, self.max_context > self.max_new_tokens, "exceed max_new_tokens")


@dataclass(frozen=True, slots=True)
class SeatSettings(LearnerSettings):
    """How a seat's policy is updated, and where it starts; `lr=0` freezes it there."""

    start: str | None = None
    """Where the policy's weights start, if not as `policy` has them: a checkpoint's folder (RUN/checkpoints/step-N, or
    one of `sesa sft`); with `model.train=full` also another policy with the same architecture and tokenizer, by its
    name or folder."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides what a run does; the same settings and seed give the same run.

    Raises:
        SettingsError: a value is out of range.
    """

    method: str = "sesa"
    """Name of the preset, for tables; nothing branches on it."""
    seed: int = 0
    steps: int = 10
    """Training steps; 0 saves the untrained policies and the primed memory."""
    rounds: int = 8
    """Questions posed per step."""
    proposals: int = 1
    """Rounds that begin with the same target; with more than one, proposals can be compared with those about the same
    target (`challenger.baseline=group`), which differ in how they were made and not in how hard the target is."""
    resample: int = 0
    """Most further batches of `rounds` questions, while fewer than `rounds` of them have attempts of unequal reward."""
    corpus: str = "atlas"
    """"atlas", "atlas:SEED", or the path of a JSON-lines corpus."""
    targets: str = CORPUS
    """Where targets are drawn from: "corpus", or "NAME:SOURCE" with a name in `TARGETS`; `game.checks.test_questions`
    are questions whose answers are none."""
    questions: tuple[str, ...] = ()
    """Question files, or "atlas:SEED": the solvers are given these, and no challenger poses any.  Without those that
    `game.checks.test_questions` holds, too."""
    retriever: str = "bm25"
    index: str | None = None
    """Folder of an index made by `sesa index`; None builds or reuses one in the user cache."""
    retrieval_cache: str | None = None
    """File in which search results are kept, by any number of runs; None keeps none."""
    judge: str = "exact"
    """Name in `JUDGES`: what an answer earns in training.  Evaluations always report exact match and F1."""
    policy: str = "smollm2"
    """Name of a registered policy, the path of a model folder, or a hub id.  A policy can bring settings of its own."""
    shared_weights: bool = False
    """Whether challenger and solver write through the same weights."""
    checkpoint_every: int = 10
    """Steps between two checkpoints; the last step always makes one."""
    game: GameSettings = field(default_factory=GameSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    solver: SeatSettings = field(default_factory=lambda: SeatSettings(lr=2e-4))
    challenger: SeatSettings = field(
        default_factory=lambda: SeatSettings(lr=2e-4, baseline="batch", scale="batch", temperature=0.8)
    )
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    guard: GuardSettings = field(default_factory=GuardSettings)

    def __post_init__(self) -> None:
        for name in ("steps", "seed", "resample"):
            _require(name, getattr(self, name), getattr(self, name) >= 0, "be at least 0")
        _require("rounds", self.rounds, self.rounds >= 2, "be at least 2, or a challenger has nobody to compare with")
        rule = f"be a divisor of rounds, {self.rounds}"
        _require("proposals", self.proposals, self.proposals >= 1 and self.rounds % self.proposals == 0, rule)
        rule = "be 1 with questions: there is nothing to pose"
        _require("proposals", self.proposals, self.proposals == 1 or not self.questions, rule)
        _require("checkpoint_every", self.checkpoint_every, self.checkpoint_every >= 1, "be at least 1")
        start = self.challenger.start
        rule = "be None with shared_weights: the weights are the solver's"
        _require("challenger.start", start, start is None or not self.shared_weights, rule)
        baseline = self.challenger.baseline
        rule = 'be "batch" or "none" where a target is posed once (proposals=1)'
        _require("challenger.baseline", baseline, baseline != "group" or self.proposals > 1, rule)
        lr = self.challenger.lr
        _require("challenger.lr", lr, lr == 0 or not self.questions, "be 0 with questions: there is nothing to pose")
        for role in ("solver", "challenger"):
            sampled, learned = getattr(self.model, f"{role}_temperature"), getattr(self, role).temperature
            _require(f"{role}.temperature", learned, learned == sampled, f"equal model.{role}_temperature ({sampled})")


def resolve(preset: Mapping[str, Any], overrides: Sequence[str] = ()) -> Settings:
    """Return the default settings with the policy's own, then a preset's, then the overrides, put over them.

    Args:
        preset: nested values, as a method states them.
        overrides: "key=value" or "part.key=value", values in YAML.

    Raises:
        SettingsError: a key is unknown, a value has the wrong type or breaks its rule.
    """
    for override in overrides:
        if "=" not in override or override.startswith("="):
            raise SettingsError(f"a setting must be written key=value, got {override!r}")
    try:
        asked = [dict(preset), OmegaConf.from_dotlist(list(overrides))]
        policy = OmegaConf.select(OmegaConf.merge(OmegaConf.structured(Settings), *asked), "policy")
        merged = OmegaConf.merge(OmegaConf.structured(Settings), recommended_settings(str(policy)), *asked)
        settings: Settings = _build(Settings, OmegaConf.to_container(merged, resolve=True))
    except SesaError:
        raise
    except (OmegaConfBaseException, YAMLError) as error:
        raise SettingsError(_explain(error)) from error
    return settings


def save_settings(settings: Settings, path: Path) -> None:
    """Write settings as YAML."""
    path.write_text(OmegaConf.to_yaml(OmegaConf.structured(settings)), encoding="utf-8")


def load_settings(path: Path) -> Settings:
    """Read what `save_settings` wrote.

    Raises:
        SettingsError: the file is missing or is not what `save_settings` writes.
    """
    if not path.is_file():
        raise SettingsError(f"no settings at {path}; a run folder has a settings.yaml")
    try:
        values = OmegaConf.to_container(OmegaConf.load(path))
    except (OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold a mapping of settings, got {type(values).__name__}")
    return resolve({str(key): value for key, value in values.items()})


def _build(cls: Any, values: Any) -> Any:
    """Turn nested mappings into nested dataclasses, lists into tuples."""
    parts = {"game": GameSettings, "memory": MemorySettings, "model": ModelSettings}
    parts |= {"solver": SeatSettings, "challenger": SeatSettings, "guard": GuardSettings, "checks": CheckSettings}
    parts |= {"replay": ReplaySettings}
    arguments = {}
    for name, value in values.items():
        if isinstance(value, dict) and name in parts:  # any other mapping is a value, such as a part's options
            value = _build(parts[name], value)
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return cls(**arguments)


def _explain(error: OmegaConfBaseException | YAMLError) -> str:
    """Say which key is wrong and which would have been right."""
    if isinstance(error, YAMLError):
        return f"a setting's value must be YAML: {' '.join(str(error).split())}"
    key = str(getattr(error, "full_key", "") or getattr(error, "key", ""))
    if isinstance(error, ConfigKeyError):
        parent = error.object_type if is_dataclass(error.object_type) else Settings
        return f"unknown setting {key!r}; known: {', '.join(item.name for item in fields(parent))}"
    return f"setting {key!r}: {str(error.msg).splitlines()[0]}"


def _require(name: str, value: object, holds: bool, rule: str) -> None:
    if not holds:
        raise SettingsError(f"{name} must {rule}, got {value!r}")
