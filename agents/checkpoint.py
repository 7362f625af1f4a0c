"""A checkpoint: one folder that holds everything a run needs to go on, or does not exist.

    save_checkpoint(run / "checkpoints", step=10, model=model, seats=seats, memory=memory)
    step = load_checkpoint(latest_checkpoint(run / "checkpoints"), model=model, seats=seats)

    step-000010/
      adapters.safetensors   both policies' weights
      optimizers.pt          both optimisers
      memory.sqlite          skills, counters, failure queue
      state.json             the completed step and every random stream

It is written beside its place and renamed when complete, so a killed process leaves the last good one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from agents.policies.hf import HFPolicy, LanguageModel
from agents.prompts import PROMPT_VERSION
from agents.selfplay import Seat
from sesa_env.errors import InvalidInput
from skill_memory.base import SkillMemory

SCHEMA = 1
MEMORY_FILE = "memory.sqlite"


def save_checkpoint(
    folder: Path, *, step: int, model: LanguageModel, seats: Mapping[str, Seat], memory: SkillMemory
) -> Path:
    """Write the state after `step` completed steps and return its folder."""
    place = folder / f"step-{step:06d}"
    draft = folder / f".{place.name}.partial"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    policies = _policies(seats)
    adapters = {policy.adapter for policy in policies.values()}
    weights = {
        f"{adapter}/{name}": tensor.contiguous()
        for adapter in sorted(adapters)
        for name, tensor in model.adapter_state(adapter).items()
    }
    save_file(weights, draft / "adapters.safetensors")
    torch.save({role: seat.learner.state_dict() for role, seat in seats.items()}, draft / "optimizers.pt")
    memory.save(draft / MEMORY_FILE)
    streams = {role: policy.generator.get_state().numpy().tobytes().hex() for role, policy in policies.items()}
    (draft / "state.json").write_text(
        json.dumps({"schema": SCHEMA, "prompts": PROMPT_VERSION, "step": step, "generators": streams})
    )
    shutil.rmtree(place, ignore_errors=True)
    os.replace(draft, place)
    return place


def latest_checkpoint(folder: Path) -> Path:
    """Return the newest complete checkpoint.

    Raises:
        InvalidInput: there is none.
    """
    complete = sorted(place for place in folder.glob("step-*") if (place / "state.json").is_file())
    if not complete:
        raise InvalidInput(f"no complete checkpoint in {folder}")
    return complete[-1]


def load_checkpoint(place: Path, *, model: LanguageModel, seats: Mapping[str, Seat]) -> int:
    """Put weights, optimisers and random streams back and return the number of completed steps.

    The memory is not loaded here: its file is `MEMORY_FILE` in the same folder, to be opened by whoever makes it.
    """
    state = load_weights(place, model)
    optimizers = torch.load(place / "optimizers.pt", weights_only=True)
    for role, policy in _policies(seats).items():
        seats[role].learner.load_state_dict(optimizers[role])
        stream = bytearray.fromhex(state["generators"][role])
        policy.generator.set_state(torch.frombuffer(stream, dtype=torch.uint8))
    return int(state["step"])


def load_weights(place: Path, model: LanguageModel) -> dict[str, Any]:
    """Put only the policies' weights back, as an evaluation needs them, and return the checkpoint's state.

    Raises:
        InvalidInput: the checkpoint is damaged, or of another schema, prompt version, model or LoRA rank.
    """
    try:
        state: dict[str, Any] = json.loads((place / "state.json").read_text())
        weights = load_file(place / "adapters.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidInput(f"checkpoint {place} is damaged: {error}") from error
    for name, own in (("schema", SCHEMA), ("prompts", PROMPT_VERSION)):
        if state.get(name) != own:
            raise InvalidInput(f"{place} was saved with {name} {state.get(name)!r}, this version plays {own!r}")
    by_adapter: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in weights.items():
        adapter, _, name = key.partition("/")
        by_adapter.setdefault(adapter, {})[name] = tensor
    for adapter, tensors in by_adapter.items():
        model.load_adapter_state(adapter, tensors)
    return state


def _policies(seats: Mapping[str, Seat]) -> dict[str, HFPolicy]:
    policies = {role: seat.agent.policy for role, seat in seats.items()}
    for role, policy in policies.items():
        if not isinstance(policy, HFPolicy):
            raise InvalidInput(f"only transformers policies can be saved, {role} has {type(policy).__name__}")
    return policies  # type: ignore[return-value]
