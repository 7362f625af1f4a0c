"""SSP, search self-play (arXiv 2510.18821): one set of weights in both roles, reward 1 - p, no memory.

An invalid proposal earns 0: a negative reward drove the valid share to zero in the authors' runs.  Our challenger's
update subtracts the mean reward of the batch, where theirs is plain REINFORCE.  Their replay pool, and their check of
each question by a frozen model that answers from the retrieved documents, are not part of this preset.
"""

from typing import Any

SSP: dict[str, Any] = {
    "shared_weights": True,
    "game": {"challenger_reward": "one_minus_solve_rate", "invalid_reward": 0.0},
    "memory": {"kind": "none"},
    "solver": {"clip_high": 0.285},
    "challenger": {"clip_high": 0.285, "scale": "none"},
}
