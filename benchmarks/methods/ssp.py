"""SSP, search self-play (arXiv 2510.18821): one set of weights in both roles, reward 1 - p, no memory.

A question is checked by rules, and at last by a reader, which must answer it from the challenger's passages among four
blocks of other rounds' (`rag`).  The reader is a large frozen model in the article, and the run's own solver here, so
that nothing else is needed; `game.checks.answerer=chat` takes an endpoint.  The place of a refused question is taken by
an earlier one, and the pool of those is emptied every ten steps.  An invalid proposal earns 0: a negative reward drove
the valid share to zero in the authors' runs.  The challenger's update is plain REINFORCE: its reward is its advantage.
"""

from typing import Any

SSP: dict[str, Any] = {
    "shared_weights": True,
    "game": {
        "challenger_reward": "one_minus_solve_rate",
        "invalid_reward": 0.0,
        "validators": ["format", "length", "leak", "information", "searches", "repeated_query", "rag"],
        "min_searches": 2,
        "min_question_words": 10,
        "max_question_chars": 1000,
        "checks": {"answerer": "solver", "noise": 4},
    },
    "replay": {"max_solve_rate": 1.0, "reset_every": 10},
    "memory": {"kind": "none"},
    "solver": {"clip_high": 0.285},
    "challenger": {"clip_high": 0.285, "baseline": "none", "scale": "none"},
}
