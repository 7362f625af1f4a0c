"""Failures and banks for the tests; every bank a test opened must be consistent when the test ends."""

import re

import numpy as np
import pytest

from sesa_env.types import Action, Passage, Trajectory, Turn
from skill_memory import Failure, MemorySettings, Skill, SkillBank

WORDS = re.findall(
    r"\w+",
    "river mountain valley castle bridge harbour island forest desert museum theatre library market temple tower garden"
    " engine rocket guitar violin piano drum novel poem statue painting bishop general captain doctor lawyer painter"
    " singer dancer farmer miner sailor pilot baker tailor copper silver marble cotton amber velvet garlic pepper"
    " ginger saffron walnut almond cherry falcon heron badger otter beaver lizard salmon mackerel beetle cricket",
)
FILM = Passage("p1", "Polar Sky", "Polar Sky is a film directed by Jon Falk.")


def search_turn(query, passages=()):
    return Turn(text=f"<search>{query}</search>", action=Action("search", query), passages=tuple(passages))


@pytest.fixture(scope="session")
def make_failure():
    def make(
        question_id="q1",
        question="Who is the mother of the director of Polar Sky?",
        *,
        answers=("Anna Berg",),
        output="Jon Falk",
        queries=("Polar Sky director",),
        passages=(FILM,),
        end_reason="answered",
        reward=0.0,
        usable=True,
        **fields,
    ):
        turns = [search_turn(query, passages) for query in queries]
        if output is not None:
            turns.append(Turn(text=f"<answer>{output}</answer>", action=Action("answer", output)))
        trajectory = Trajectory(
            f"{question_id}/solver_0", "solver_0", tuple(turns), end_reason, output, reward=reward, usable=usable
        )
        return Failure(question_id, question, answers, trajectory, fields.pop("solve_rate", 0.4), **fields)

    return make


@pytest.fixture(scope="session")
def make_skill():
    """Skills of random words, so unlike each other that a bank takes them all."""

    def make(seed, **fields):
        rng = np.random.default_rng(seed)
        words = [str(word) for word in rng.choice(WORDS, size=12, replace=False)]
        parts = {
            "id": "",
            "description": f"Search {' '.join(words[:6])} first.",
            "triggers": tuple(words[6:9]),
            "avoid": " ".join(words[9:]),
            "queries": ("{name} " + words[0],),
        }
        return Skill(**(parts | fields))

    return make


class Recorded:
    """A distiller that gives each failure the skills it was told to, and remembers what it was asked."""

    def __init__(self, write):
        self.write = write
        self.asked = []

    def distill(self, failures):
        self.asked.append(list(failures))
        return [self.write(failure) for failure in failures]


@pytest.fixture
def recorded():
    return Recorded


@pytest.fixture
def open_bank(tmp_path):
    banks = []

    def open_(name="bank.sqlite", *, encoder=None, distiller=None, **settings):
        defaults = {"priming": False, "distil_every": 1, "min_waiting": 1}
        bank = SkillBank(MemorySettings(**(defaults | settings)), tmp_path / name, encoder=encoder, distiller=distiller)
        banks.append(bank)
        return bank

    yield open_
    for bank in banks:
        if not bank.closed:
            assert bank.check() == []
            bank.close()
