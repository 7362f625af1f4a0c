"""The mini policy: a language model of four million parameters that was taught to search, on two CPU cores.

It knows nothing but how to play: to plan the hops of a question, search, read, follow a hint it has never seen, and
pose questions.  `sesa mini train` makes it from scratch out of fictional worlds.

    lessons.py     what it imitates: scripted conversations of a solver in training worlds
    walks.py       those of a challenger
    drills.py      exercises beside them, dense in what is hard
    hints.py       the skills in those conversations, relevant and irrelevant
    tokenizer.py   its vocabulary
    model.py       its architecture and its structured start
    train.py       the supervised training
    models/        two policies that it made, and their card
"""

from __future__ import annotations

from pathlib import Path

MODELS = Path(__file__).with_name("models")


def trained() -> Path:
    """Return the folder of the policy after its whole training."""
    return MODELS / "mini"


def early() -> Path:
    """Return the folder of the policy as it was half-way, for reinforcement learning to begin with."""
    return MODELS / "mini-start"
