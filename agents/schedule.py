"""How the step size of a run rises and falls: linear warm-up, then constant, linear or cosine decay.

lr = settings.lr * lr_factor("cosine", number=7, warmup=5, total=100)
"""

from __future__ import annotations

from math import cos, pi
from typing import Literal, get_args

from sesa_env.errors import InvalidInput

Schedule = Literal["constant", "linear", "cosine"]


def lr_factor(schedule: Schedule, *, number: int, warmup: int, total: int | None) -> float:
    """Return what the step size is multiplied by in an update: in (0, 1], and 1 once the warm-up is over.

    The first update already moves, the last one still does: with W updates of warm-up the factors are 1/W, 2/W, ..., 1,
    and a decay over the remaining D updates goes from 1 to 1/D (linear) or along half a cosine sampled at the same
    places.  Updates beyond `total` keep its factor.

    Args:
        schedule: what follows the warm-up.
        number: which update, from 1.
        warmup: updates until the full step size; 0 and 1 start with it.
        total: updates in the whole run; "constant" does not need it.

    Raises:
        InvalidInput: there is no such schedule, or a decay without a total.
    """
    if schedule not in get_args(Schedule):
        raise InvalidInput(f"schedule must be one of {get_args(Schedule)!r}, got {schedule!r}")
    if number <= warmup:
        return number / warmup
    if schedule == "constant":
        return 1.0
    if total is None:
        raise InvalidInput(f"total must be given with schedule {schedule!r}, got None")
    length = max(total - warmup, 1)
    left = max(total - number + 1, 1) / length
    return left if schedule == "linear" else 0.5 - 0.5 * cos(pi * left)
