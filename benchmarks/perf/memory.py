"""What a skill memory costs: finding skills, letting them in, a million of them, and its share of a rollout step.

    python -m benchmarks.perf.memory                                       # everything; the million takes minutes
    python -m benchmarks.perf.memory --sizes 10000,100000 --policy ""      # a smaller search, and no policy

Vectors are given, not made, except where the encoder is named: what is timed is the memory.  What is compared takes
turns, so that a busy machine slows all of it; figures are medians with the smallest and the largest, and the median of
the processor's time, which is what an idle machine would need.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from agents.base import Completion, Policy
from benchmarks.perf.search import DIMENSION, time_search, unit
from benchmarks.perf.timing import Row, Taken, Work, in_turns, line_of, row_of, timed
from benchmarks.perf.workload import make_failures, make_skills
from sesa_env.errors import MissingDependency, StoreError
from sesa_env.types import SOLVER
from skill_memory import Failure, MemorySettings, NoMemory, SkillBank, SkillMemory, restore
from skill_memory.encode import Vectors
from skill_memory.records import write_skills
from skill_memory.skill import Skill

try:
    import typer
except ImportError as error:
    raise MissingDependency("this benchmark needs the extra `cli`: pip install 'sesa-env[cli]'") from error

BANK, CARDS, QUESTIONS = 800, 30, 64


class Given:
    """An encoder that looks its vectors up: random ones, drawn once for each text."""

    max_similarity = 0.93

    def __init__(self, dimension: int) -> None:
        self.fingerprint = f"given-{dimension}"
        self._dimension = dimension
        self._rng = np.random.default_rng(0)
        self._vector_of: dict[str, Vectors] = {}

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Return (N, D) vectors."""
        for text in texts:
            if text not in self._vector_of:
                self._vector_of[text] = unit(self._rng.standard_normal((1, self._dimension)))[0]
        return np.array([self._vector_of[text] for text in texts], dtype=np.float32).reshape(-1, self._dimension)

    encode_queries = encode_passages

    def truncates(self, text: str) -> bool:
        """Return False."""
        return False


class Cards:
    """A distiller that deals cards it was given."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = itertools.cycle(skills)

    def distill(self, failures: Sequence[Failure]) -> list[list[Skill]]:
        """Return one card for each failure."""
        return [[next(self._skills)] for _ in failures]


# --- a bank of SESA's size -------------------------------------------------------------------------------------------


def time_bank(*, repeats: int) -> list[Row]:
    """Time retrieval from 800 skills and the admission of 30 cards, beside room for them and in place of others.

    Vectors have the length of MiniLM's and of the hashing encoder's.
    """
    skills, questions = make_skills(BANK + CARDS), [f"question {number}" for number in range(QUESTIONS)]
    works: dict[str, Work] = {}
    with tempfile.TemporaryDirectory() as name:
        for dimension in (DIMENSION, 2048):
            encoder = Given(dimension)
            encoder.encode_passages([*questions, *(skill.text for skill in skills)])
            bank = _filled(Path(name) / f"{dimension}.sqlite", encoder, skills[:BANK])
            bank.save(saved := Path(name) / f"{dimension}.copy")
            works[f"retrieve, 1 question, D={dimension}"] = _retrieving(bank, questions[:1])
            works[f"retrieve, {QUESTIONS} at once, per question, D={dimension}"] = _retrieving(bank, questions)
            for cap, where in ((BANK + CARDS, "with room"), (BANK, "each in place of another")):
                work = _admitting(saved, encoder, skills[BANK:], cap=cap)
                works[f"admit {CARDS} cards into {BANK}, {where}, D={dimension}"] = work
        return [row_of(what, taken) for what, taken in in_turns(works, repeats=repeats).items()]


def _filled(path: Path, encoder: Given, skills: Sequence[Skill]) -> SkillBank:
    """Return a bank of these skills, not one of them a seed, so that they can be evicted."""
    source = path.with_suffix(".jsonl")
    write_skills(skills, source)
    bank = SkillBank(MemorySettings(priming=False), path, encoder=encoder)
    bank.load(source)
    return bank


def _retrieving(bank: SkillBank, questions: Sequence[str]) -> Work:
    def work() -> Taken:
        return timed(lambda: bank.retrieve(questions)).each(len(questions))

    return work


def _admitting(saved: Path, encoder: Given, cards: Sequence[Skill], *, cap: int) -> Work:
    settings = MemorySettings(priming=False, cap=cap, distil_every=1, min_waiting=1, max_cards=CARDS)

    def work() -> Taken:
        path = saved.with_name("work.sqlite")
        restore(saved, path)
        with closing(SkillBank(settings, path, encoder=encoder, distiller=Cards(cards))) as bank:
            for failure in itertools.islice(make_failures(random.Random(0)), CARDS):
                bank.offer(failure)
            seconds = timed(lambda: bank.consolidate(step=1))
            if len(bank) != cap:
                raise StoreError(f"all {CARDS} cards must be admitted, and the bank has {len(bank)} skills")
        return seconds

    return work


# --- a rollout step --------------------------------------------------------------------------------------------------


def time_prompts(*, policy: str, encoders: Sequence[str], questions: int, attempts: int, repeats: int) -> list[Row]:
    """Compare the time it takes to open attempts with and without a bank of 800 skills with that of playing them.

    Each opening is that of a whole step: skills are found and rendered within the token budget, and the conversation is
    tokenised.  The step is the rollout of the same attempts, without skills; the learner's part is left out.
    """
    from agents.config import Settings
    from agents.rollout import play
    from agents.seats import load_model
    from agents.solver import make_solver
    from sesa_env.corpora import load_atlas
    from sesa_env.envs.world import open_retriever
    from sesa_env.game import Game
    from sesa_env.judge import ExactMatchJudge

    settings = Settings(policy=policy, corpus="atlas:1", retriever="bm25")
    model = load_model(settings)
    retriever = open_retriever(settings.corpus, retriever="bm25", index=None)
    asked = load_atlas(settings.corpus).all_questions[:questions]

    def solver(memory: SkillMemory, *, silent: bool) -> Any:
        player = model.policy("solver", seed=0)
        return make_solver(
            Silent(player) if silent else player,
            memory,
            token_budget=settings.memory.token_budget,
            max_new_tokens=settings.model.max_new_tokens,
            temperature=settings.model.solver_temperature,
        )

    def games() -> list[Game]:
        begun = [Game(settings.game, judge=ExactMatchJudge(), id=question.id) for question in asked]
        for game, question in zip(begun, asked, strict=True):
            game.ask(question, attempts=attempts)
        return begun

    def opening(memory: SkillMemory) -> Work:
        agent = solver(memory, silent=True)
        views = [game.view(seat) for game in games() for seat in game.active]

        def work() -> Taken:
            seconds = timed(lambda: agent.act(views))
            agent.drain()
            return seconds

        return work

    def step() -> Taken:
        agent = solver(NoMemory(), silent=False)
        seconds = timed(lambda: play(games(), {SOLVER: agent}, retriever))
        agent.drain()
        return seconds

    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "skills.jsonl"
        write_skills(make_skills(BANK), source)
        works = {"off": opening(NoMemory())}
        for encoder in encoders:
            memory = SkillBank(
                MemorySettings(priming=False, source=str(source), encoder=encoder, cap=BANK + 1),
                Path(name) / f"{encoder}.sqlite",
            )
            works[encoder] = opening(memory)
        taken = in_turns({**works, "step": step}, repeats=repeats)
    whole = statistics.median(one.wall for one in taken["step"])
    rows = [row_of(f"rollout of {len(asked)} x {attempts} attempts, {policy}", taken["step"])]
    rows += [row_of(f"opening them, memory {name}", taken[name]) for name in works]
    for encoder in encoders:
        extra = [
            Taken(on.wall - off.wall, on.processor - off.processor)
            for on, off in zip(taken[encoder], taken["off"], strict=True)
        ]
        share = statistics.median(one.wall for one in extra) / whole
        rows.append({**row_of(f"memory with {encoder}, extra", extra), "share of the rollout": round(share, 5)})
    return rows


class Silent:
    """A policy that ends each turn without a word, so that only the opening of an attempt takes time."""

    def __init__(self, policy: Policy) -> None:
        self.max_context = policy.max_context
        self.encode_chat, self.encode_reply, self.decode = policy.encode_chat, policy.encode_reply, policy.decode

    def generate(self, prompts: Sequence[Sequence[int]], **_: Any) -> list[Completion]:
        """Return an empty completion for each prompt."""
        return [Completion((), (), "end") for _ in prompts]

    def forget(self, names: Iterable[str]) -> None:
        """Do nothing: nothing is kept."""


def main(
    sizes: Annotated[str, typer.Option(help="Skills of the searches, by commas; empty for none.")] = (
        "10000,30000,100000,1000000"
    ),
    policy: Annotated[str, typer.Option(help="Whose rollout is compared; empty for none.")] = "smollm2",
    encoders: Annotated[str, typer.Option(help="Encoders of the memory in that rollout.")] = "hashing,minilm",
    questions: Annotated[int, typer.Option(min=1, help="Questions of that rollout.")] = 2,
    attempts: Annotated[int, typer.Option(min=1, help="Attempts at each.")] = 4,
    queries: Annotated[int, typer.Option(min=2, help="Questions of each search.")] = 200,
    repeats: Annotated[int, typer.Option(min=1, help="Turns that are counted.")] = 15,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure and print, line by line."""
    rows: list[Row] = []

    def report(new: Sequence[Row]) -> None:
        rows.extend(new)
        for row in new:
            typer.echo(line_of(row))

    report(time_bank(repeats=repeats))
    for size in map(int, filter(None, sizes.split(","))):
        for distribution in ("topics", "uniform") if size <= 100_000 else ("topics",):
            report([time_search(size, distribution=distribution, queries=queries, repeats=repeats)])
    if policy:
        names = encoders.split(",")
        report(
            time_prompts(policy=policy, encoders=names, questions=questions, attempts=attempts, repeats=min(repeats, 3))
        )
    if out is not None:
        out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
