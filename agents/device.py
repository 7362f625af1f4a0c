"""Where a model computes, in which number format, and by which attention code: what is best depends on the machine.

device = resolve_device("auto")                          # the GPU if there is one
found = number_format(settings, device)                  # measured where the settings say "auto"
settings = replace(settings, dtype=found.dtype)          # stored with a run, so that nothing measures it again
attention_for(settings, device)                          # how transformers attends
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from agents.attention import BLOCKS
from agents.config import ModelSettings
from sesa_env.errors import SettingsError

log = logging.getLogger(__name__)

_ROWS, _INNER, _COLUMNS = 512, 576, 1536
"""The matrix product that is measured: one of a small model's, over as many tokens as run at once."""
_WORTHWHILE = 2.0
"""How many times as fast bfloat16's matrix products must be: the rest of a model gains nothing, and casts cost time."""


class NumberFormat(NamedTuple):
    """The number format to compute in, and what was measured to choose it."""

    dtype: str
    gflops: dict[str, float]
    """Billion operations per second of a matrix product, by number format; empty where nothing had to be measured."""


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


def matrix_rate(
    *,
    rows: int,
    inner: int,
    columns: int,
    dtype: torch.dtype,
    device: torch.device = torch.device("cpu"),  # noqa: B008  (a device cannot be changed)
    seconds: float = 0.3,
) -> float:
    """Return how many operations per second the device reaches in a matrix product of this shape, at best."""
    generator = torch.Generator().manual_seed(0)  # its own: a measurement must not move a run's random stream
    shapes = ((rows, inner), (inner, columns))
    left, right = (torch.rand(shape, generator=generator).to(device, dtype) for shape in shapes)
    best, until = 0.0, time.perf_counter() + seconds
    while (started := time.perf_counter()) < until:
        left @ right
        finish(device)
        best = max(best, 2.0 * rows * inner * columns / (time.perf_counter() - started))
    return best


def finish(device: torch.device) -> None:
    """Wait for what the device was given to do, before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def number_format(
    settings: ModelSettings, device: torch.device, *, rate: Callable[..., float] = matrix_rate
) -> NumberFormat:
    """Return the number format of the settings; for "auto", the one that suits the device.

    A GPU computes in bfloat16 if it can.  A processor does so where a short measurement finds its matrix products at
    least twice as fast as in float32; many have no instructions for it, and are then many times slower.

    Args:
        settings: what is asked for.
        device: where the model computes.
        rate: measures a matrix product, as `matrix_rate` does.
    """
    if settings.dtype != "auto":
        return NumberFormat(settings.dtype, {})
    if device.type == "cuda":
        return NumberFormat("bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32", {})
    gflops = {
        name: rate(rows=_ROWS, inner=_INNER, columns=_COLUMNS, dtype=getattr(torch, name), seconds=0.1) / 1e9
        for name in ("float32", "bfloat16")
    }
    chosen = "bfloat16" if gflops["bfloat16"] >= _WORTHWHILE * gflops["float32"] else "float32"
    rates = ", ".join(f"{name} {value:.0f} GFLOP/s" for name, value in gflops.items())
    log.info("model.dtype=auto: matrix products at %s, so %s", rates, chosen)
    return NumberFormat(chosen, gflops)


def attention_for(settings: ModelSettings, device: torch.device) -> str:
    """Return which attention of transformers to use, for settings whose number format is chosen.

    "auto" takes torch's fused attention ("sdpa"), except where a CPU computes in bfloat16: its backward pass is then
    slow, and our own takes its place (`agents.attention`).
    """
    if settings.attention != "auto":
        return settings.attention
    return BLOCKS if device.type == "cpu" and settings.dtype == "bfloat16" else "sdpa"
