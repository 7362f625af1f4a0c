"""A skill bank at work: made-up failures and skills, a loop that learns from them, and a check that nothing is lost.

    acks = []
    for _ in learn(bank, seed=0, step=1, tell=acks.append): ...
    losses(path, acks)           # [] when all that was acknowledged is in the file

The skills come from the rule distiller.  SETTINGS let near-copies in; without them it would soon have nothing to add.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from sesa_env.types import Action, EndReason, Passage, Trajectory, Turn
from skill_memory import Failure, MemorySettings, SkillBank
from skill_memory.relations import RELATIONS
from skill_memory.skill import Skill
from skill_memory.store import Store

SETTINGS = MemorySettings(distil_every=1, min_waiting=1, max_cards=6, cap=100, max_similarity=0.999)
_OFFERS = (4, 8)
"""Fewest and most failures of a step; on average as many as a consolidation takes, so that the queue comes and goes."""

Ack = tuple[Any, ...]
"""What whoever learns has done, told once it is done; see `learn`."""


def make_failures(rng: random.Random, *, first: int = 0) -> Iterator[Failure]:
    """Yield failures without end, with ids of their own, at questions about two relations, by one of four faults."""
    page = Passage("p", "Orl", "Orl is a town.")
    for number in itertools.count(first):
        last, first_ = rng.sample(RELATIONS, 2)
        words = [f"Orl {first_.noun}", f"Orl {last.noun}"][: rng.randint(0, 2)]
        found = (page,) if rng.random() < 0.5 else ()
        turns = tuple(Turn(f"<search>{query}</search>", Action("search", query), passages=found) for query in words)
        end: EndReason = "answered" if rng.random() < 0.5 else "turn_limit"
        trajectory = Trajectory(f"e{number}", "solver_0", turns, end, "Velt" if end == "answered" else None)
        question = f"What is the {last.noun} of the {first_.noun} of Orl?"
        yield Failure(f"q{number}", question, ("Anna Berg",), trajectory, 0.4)


def learn(bank: SkillBank, *, seed: int, step: int, tell: Callable[[Ack], None]) -> Iterator[None]:
    """Offer failures and consolidate, step by step, and tell of each act once it is done; yields after each step.

    Args:
        bank: what learns.
        seed: of the failures; another seed gives other ids.
        step: the first step.
        tell: hears ("offered", id), ("consolidating", step), and ("consolidated", step, drained, ids).
    """
    rng = random.Random(seed)
    failures = make_failures(rng, first=seed * 1_000_000)
    for now in itertools.count(step):
        for failure in itertools.islice(failures, rng.randint(*_OFFERS)):
            if bank.offer(failure):
                tell(("offered", failure.question_id))
        tell(("consolidating", now))
        done = bank.consolidate(step=now)
        if done:
            tell(("consolidated", now, done.drained, done.admitted))
        yield


def losses(path: Path, acks: list[Ack]) -> list[str]:
    """Return what is wrong with a bank's file: with itself, or with what was acknowledged."""
    with closing(SkillBank(SETTINGS, path)) as bank:
        problems = bank.check()
        skills, waiting = list(bank), bank.waiting
    with closing(Store.read(path)) as store:
        events, queue = list(store.events()), [row.failure.question_id for row in store.failures()]
    offered = {event.data["question_id"] for event in events if event.kind == "offer"}
    issued = {event.skill_id for event in events if event.kind == "admit"}
    rounds = {event.step: event.data for event in events if event.kind == "consolidate"}
    dropped = sum(event.data["failures"] for event in events if event.kind == "drop")
    for ack in acks:
        if ack[0] == "offered" and ack[1] not in offered:
            problems.append(f"failure {ack[1]} was acknowledged and is lost")
        if ack[0] == "consolidated":
            _, step, drained, ids = ack
            if step not in rounds or (rounds[step]["drained"], rounds[step]["admitted"]) != (drained, len(ids)):
                problems.append(f"the consolidation of step {step} was acknowledged and is lost")
            problems += [f"skill {id} was acknowledged and is lost" for id in ids if id not in issued]
    gone = sum(data["drained"] for data in rounds.values()) + dropped
    if len(queue) != waiting or len(offered) - len(queue) != gone:
        problems.append(f"{len(offered)} failures were queued, {gone} were taken out and {len(queue)} wait")
    problems += [f"failure {skill.source} taught {skill.id} and waits" for skill in skills if skill.source in queue]
    return problems


def make_skills(count: int, *, seed: int = 0) -> list[Skill]:
    """Return skills of made-up words, all different."""
    rng = random.Random(seed)
    parts = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]

    def words(most: int) -> str:
        return " ".join("".join(rng.choices(parts, k=3)) for _ in range(most))

    return [Skill("", words(9), (words(1), words(2)), words(4), (f"{{name}} {words(1)}",)) for _ in range(count)]
