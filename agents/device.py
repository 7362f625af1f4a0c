"""Where a model computes, and by which attention code: two settings whose best value depends on the machine.

device = resolve_device("auto")                  # the GPU if there is one
attention_for(settings, device)                  # "eager" or "sdpa"
"""

from __future__ import annotations

import torch

from agents.config import ModelSettings
from sesa_env.errors import SettingsError


def resolve_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is the first GPU if there is one, else the CPU.

    Raises:
        SettingsError: the device is not there.
    """
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("device must be 'cpu' or 'auto' where torch sees no GPU, got 'cuda'")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


def attention_for(settings: ModelSettings, device: torch.device) -> str:
    """Return which attention of transformers to use.

    "auto" takes torch's fused attention ("sdpa"), except where a CPU computes in bfloat16: its backward pass is then
    slower than the plain matrix products of "eager", by up to three times on short sequences.
    """
    if settings.attention != "auto":
        return settings.attention
    return "eager" if device.type == "cpu" and settings.dtype == "bfloat16" else "sdpa"
