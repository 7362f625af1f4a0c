"""A checkpoint: one folder that holds everything a run needs to go on, or does not exist.

    save_checkpoint(run / "checkpoints", step=10, model=model, seats=seats, memory=memory)
    step = load_checkpoint(latest_checkpoint(run / "checkpoints"), model=model, seats=seats)

    step-000010/
      weights.safetensors    both policies' weights
      optimizers.pt          both optimisers
      memory.sqlite          skills, counters, failure queue
      loop.json              what the validators remember, and the replay pool
      state.json             the completed step and every random stream

It is written beside its place and renamed when complete, so a killed process leaves the last good one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from agents.policies.hf import HFPolicy, LanguageModel
from agents.prompts import PROMPT_VERSION
from agents.selfplay import Seat
from sesa_env.errors import InvalidInput
from sesa_env.registry import POLICIES
from skill_memory.base import SkillMemory

SCHEMA = 2
MEMORY_FILE, LOOP_FILE = "memory.sqlite", "loop.json"
WEIGHTS_FILE = "weights.safetensors"
SHARED = "shared"
"""Name of weights that both roles play with."""


def save_checkpoint(
    folder: Path,
    *,
    step: int,
    model: LanguageModel,
    seats: Mapping[str, Seat],
    memory: SkillMemory,
    loop: Mapping[str, Any] | None = None,
) -> Path:
    """Write the state after `step` completed steps, with that of the loop if there is one, and return its folder."""
    place = folder / f"step-{step:06d}"
    draft = folder / f".{place.name}.partial"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    policies = _policies(seats)
    save_weights(draft, model, names={policy.adapter for policy in policies.values()})
    learners = {role: seat.learner for role, seat in seats.items() if seat.learner is not None}
    torch.save({role: learner.state_dict() for role, learner in learners.items()}, draft / "optimizers.pt")
    memory.save(draft / MEMORY_FILE)
    (draft / LOOP_FILE).write_text(json.dumps(loop or {}), encoding="utf-8")
    streams = {role: policy.generator.get_state().numpy().tobytes().hex() for role, policy in policies.items()}
    (draft / "state.json").write_text(
        json.dumps({"schema": SCHEMA, "prompts": PROMPT_VERSION, "step": step, "generators": streams})
    )
    shutil.rmtree(place, ignore_errors=True)
    os.replace(draft, place)
    return place


def save_weights(folder: Path, model: LanguageModel, *, names: Collection[str]) -> None:
    """Write the trained weights of these names into a folder."""
    weights = {
        f"{name}/{key}": tensor.contiguous()
        for name in sorted(names)
        for key, tensor in model.weights.state(name).items()
    }
    save_file(weights, folder / WEIGHTS_FILE)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a complete checkpoint."""
    return bool(_complete(folder))


def first_checkpoint(folder: Path) -> Path:
    """Return the oldest complete checkpoint, which a run makes before its first step.

    Raises:
        InvalidInput: there is none.
    """
    return _require_complete(folder)[0]


def latest_checkpoint(folder: Path) -> Path:
    """Return the newest complete checkpoint.

    Raises:
        InvalidInput: there is none.
    """
    return _require_complete(folder)[-1]


def _require_complete(folder: Path) -> list[Path]:
    if not has_checkpoint(folder):
        raise InvalidInput(f"no complete checkpoint in {folder}")
    return _complete(folder)


def _complete(folder: Path) -> list[Path]:
    return sorted(place for place in folder.glob("step-*") if (place / "state.json").is_file())


def load_checkpoint(place: Path, *, model: LanguageModel, seats: Mapping[str, Seat]) -> int:
    """Put weights, optimisers and random streams back and return the number of completed steps.

    The memory is not loaded here: its file is `MEMORY_FILE` in the same folder, to be opened by whoever makes it.
    """
    state = load_weights(place, model)
    optimizers = torch.load(place / "optimizers.pt", weights_only=True)
    for role, policy in _policies(seats).items():
        learner = seats[role].learner
        if learner is not None:
            learner.load_state_dict(optimizers[role])
        stream = bytearray.fromhex(state["generators"][role])
        policy.generator.set_state(torch.frombuffer(stream, dtype=torch.uint8))
    return int(state["step"])


def load_loop(place: Path) -> dict[str, Any]:
    """Return the loop's state that a checkpoint holds, for `SelfPlay.set_state`.

    Raises:
        InvalidInput: the file is missing or damaged.
    """
    try:
        state: dict[str, Any] = json.loads((place / LOOP_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"checkpoint {place} is missing or damaged: {error}") from error
    return state


def load_weights(place: Path, model: LanguageModel) -> dict[str, Any]:
    """Put only the policies' weights back, as an evaluation needs them, and return the checkpoint's state.

    Raises:
        InvalidInput: the checkpoint is damaged, or of another schema, prompt version, model or LoRA rank.
    """
    state, weights = _read(place)
    for name, tensors in weights.items():
        model.weights.load(name, tensors)
    return state


def save_start(folder: Path, model: LanguageModel, *, name: str) -> None:
    """Write one set of weights as a checkpoint that any seat can start from, and no run can go on from."""
    folder.mkdir()
    save_file(
        {f"{SHARED}/{key}": tensor.contiguous() for key, tensor in model.weights.state(name).items()},
        folder / WEIGHTS_FILE,
    )
    (folder / "state.json").write_text(json.dumps({"schema": SCHEMA, "prompts": PROMPT_VERSION, "step": 0}))


def load_start(start: str, model: LanguageModel, *, name: str, role: str) -> None:
    """Let the weights `name` start as those with which a role plays in a checkpoint, its own or shared ones.

    Args:
        start: the checkpoint's folder, or a policy by its name or folder.
        model: what has the weights.
        name: of the weights.
        role: who plays with them.

    Raises:
        InvalidInput: there is no checkpoint, it holds no such weights, or they do not fit this model.
        ModelNotFound: the policy cannot be loaded.
    """
    place, known = Path(start).expanduser(), POLICIES.names()
    if start in known or (place / "config.json").is_file():
        model.start_from(start, name=name)
        return
    if not place.is_dir():
        rule = f"the folder of a checkpoint or model, or a policy of {', '.join(known)}"
        raise InvalidInput(f"start must be {rule}, got {start!r}")
    _, weights = _read(place)
    found = weights.get(role, weights.get(SHARED))
    if found is None:
        raise InvalidInput(f"checkpoint {place} holds no weights of the {role}, but of {', '.join(weights)}")
    model.weights.load(name, found)


def _read(place: Path) -> tuple[dict[str, Any], dict[str, dict[str, torch.Tensor]]]:
    """Return a checkpoint's state and its weights by name."""
    try:
        state: dict[str, Any] = json.loads((place / "state.json").read_text())
        for key, own in (("schema", SCHEMA), ("prompts", PROMPT_VERSION)):
            if state.get(key) != own:
                raise InvalidInput(f"{place} was saved with {key} {state.get(key)!r}, this version plays {own!r}")
        flat = load_file(place / WEIGHTS_FILE)
    except (OSError, json.JSONDecodeError, SafetensorError) as error:
        raise InvalidInput(f"checkpoint {place} is missing or damaged: {error}") from error
    weights: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in flat.items():
        name, _, rest = key.partition("/")
        weights.setdefault(name, {})[rest] = tensor
    return state, weights


def _policies(seats: Mapping[str, Seat]) -> dict[str, HFPolicy]:
    policies = {role: seat.agent.policy for role, seat in seats.items()}
    for role, policy in policies.items():
        if not isinstance(policy, HFPolicy):
            raise InvalidInput(f"only transformers policies can be saved, {role} has {type(policy).__name__}")
    return policies  # type: ignore[return-value]
