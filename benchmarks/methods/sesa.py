"""SESA, self-evolving skill-augmented agent (arXiv 2607.29468): two sets of weights, frontier reward, a living bank.

All else is SSP's: its checks of a question, its replay, its rules.  The penalty at solve rates 0 and 1 is a symbol
without a value in the article; 0.5 is our choice, and a refused proposal costs the same.
"""

from typing import Any

from benchmarks.methods.ssp import SSP

SESA: dict[str, Any] = {
    **SSP,
    "shared_weights": False,
    "game": {**SSP["game"], "challenger_reward": "frontier", "penalty": 0.5, "invalid_reward": None},
    "memory": {"kind": "bank"},
    "challenger": {"clip_high": 0.285},
}
