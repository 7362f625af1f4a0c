"""Search-R1 (arXiv 2503.09516): the solver learns from given questions by GRPO; nobody poses any, nothing is kept.

The questions of a file take the place of the Atlas's with `questions=[FILE.jsonl]`.
"""

from typing import Any

SEARCH_R1: dict[str, Any] = {
    "questions": ["atlas"],
    "memory": {"kind": "none"},
    "solver": {"kl_coef": 0.001},
    "challenger": {"lr": 0.0},
}
