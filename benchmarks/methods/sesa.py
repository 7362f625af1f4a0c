"""SESA, self-evolving skill-augmented agent (arXiv 2607.29468): two sets of weights, frontier reward, a living bank.

The penalty at solve rates 0 and 1 is a symbol without a value in the article; 0.5 is our choice.
"""

from typing import Any

SESA: dict[str, Any] = {
    "shared_weights": False,
    "game": {"challenger_reward": "frontier", "penalty": 0.5},
    "memory": {"kind": "bank"},
    "solver": {"clip_high": 0.285},
    "challenger": {"clip_high": 0.285},
}
