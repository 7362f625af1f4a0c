"""SkillRL (arXiv 2602.08234): one learner, and a bank of general principles, task skills and common mistakes.

SkillRL learns from given questions; here a challenger that does not learn poses them, so that it stands on the same
backend as the others.  Its bank grows where a kind of question fails too often, by at most three skills at a time, from
training questions: nothing here learns from what it is evaluated on, where the original grows by validation.
"""

from typing import Any

SKILLRL: dict[str, Any] = {
    "shared_weights": False,
    "memory": {
        "kind": "skillrl",
        "k": 6,
        "lookup": "keyword",
        "distil_every": 5,
        "frontier_only": False,
        "token_budget": 1000,
    },
    "challenger": {"lr": 0.0},
}
