"""Measure the mini policy as a challenger: are its questions valid, right, different, and at the solver's frontier.

    rows = challenge(folder, worlds=[1, 3, 5], targets=100, temperature=0.8)
    print(table(rows))

Every round is a real one, with the rule-based checks and the same policy as the solver.  Whether a question is right,
its only answer being the target, is read from the world's own facts, which no player sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.challenger import make_challenger
from agents.policies.hf import LanguageModel
from agents.rollout import play
from agents.solver import make_solver
from benchmarks.mini_exam import ENTITIES, made_for, require_test_worlds
from benchmarks.statistics import wilson
from sesa_env.corpora.atlas import generate
from sesa_env.corpora.atlas.grammar import Grammar
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.types import CHALLENGER, SOLVER
from skill_memory import NoMemory

VALIDATORS = ("format", "length", "leak", "information", "searches", "repeated_query")
SOLVER_TEMPERATURE = 0.7
CHALLENGER_TURNS = 8
"""The policy cannot count its turns: with more of them than its lessons have, fewer end in the middle of a search."""


@dataclass(frozen=True, slots=True)
class ChallengeRow:
    """One round: what was posed for a target, and what came of it."""

    world: int
    target: str
    hops_asked: int
    refused: str
    """The check that refused it; "" for none."""
    question: str
    right: bool
    """Whether the target is its only answer."""
    hops: int
    """How many facts it takes; 0 where the world cannot read it."""
    solve_rate: float | None


def challenge(
    folder: Path, *, worlds: Sequence[int], targets: int, temperature: float, attempts: int = 5, top_k: int = 1
) -> list[ChallengeRow]:
    """Let a policy pose and solve in test worlds, and return a row for each target.

    Args:
        folder: the policy, as a transformers folder.
        worlds: odd seeds.
        targets: of each world.
        temperature: at which questions are written.
        attempts: of the solver at each question.
        top_k: passages per search.

    Raises:
        InvalidInput: a world is one to train on.
    """
    require_test_worlds(worlds)
    settings = made_for(folder)
    model = LanguageModel.load(folder, adapters=(CHALLENGER, SOLVER), settings=settings, seed=0)
    longest = settings.max_new_tokens
    agents = {
        CHALLENGER: make_challenger(
            model.policy(CHALLENGER, seed=0), max_new_tokens=longest, temperature=temperature, demonstrated=False
        ),
        SOLVER: make_solver(
            model.policy(SOLVER, seed=0),
            NoMemory(),
            token_budget=1,
            max_new_tokens=longest,
            temperature=SOLVER_TEMPERATURE,
            demonstrated=False,
        ),
    }
    rules = GameSettings(
        attempts=attempts,
        challenger_turns=CHALLENGER_TURNS,
        top_k=top_k,
        min_question_words=4,
        validators=VALIDATORS,
    )
    rows = []
    for world in worlds:
        atlas = generate(world, entities=ENTITIES)
        grammar = Grammar(atlas.entities, atlas.facts)
        titles = {entity.name: entity.title for entity in atlas.entities if not entity.qualifier}
        games = []
        for number, target in enumerate(atlas.targets(targets, seed=world)):
            games.append(Game(rules, judge=ExactMatchJudge(), id=f"{world}-{number}"))
            games[-1].pose(target)
        retriever = Bm25Retriever.from_passages(atlas.passages, atlas.fingerprint)
        for round_ in play(games, agents, retriever):
            assert round_.target is not None
            text = round_.question.text if round_.question else ""
            reading = grammar.read(text)
            rows.append(
                ChallengeRow(
                    world=world,
                    target=round_.target.answer,
                    hops_asked=round_.target.hops,
                    refused=round_.rejection,
                    question=text,
                    right=reading.answers == {titles[round_.target.answer]},
                    hops=reading.hops,
                    solve_rate=round_.solve_rate,
                )
            )
    return rows


def table(rows: Sequence[ChallengeRow]) -> str:
    """Return the shares, with 95 % intervals, as text."""
    valid = [row for row in rows if not row.refused]
    lines = [f"{'':<28} {'of':>5} {'share':>6}  95 % interval"]

    def share(name: str, count: int, of: int) -> None:
        if of:
            low, high = wilson(count, of)
            lines.append(f"{name:<28} {of:>5} {count / of:6.3f}  [{low:.3f}, {high:.3f}]")

    share("valid", len(valid), len(rows))
    share("valid and right", sum(row.right for row in valid), len(rows))
    share("different, of the valid", len({row.question for row in valid}), len(valid))
    share("frontier, of the valid", sum(0.0 < (row.solve_rate or 0.0) < 1.0 for row in valid), len(valid))
    for hops in sorted({row.hops for row in valid}):
        group = [row for row in valid if row.hops == hops]
        share(f"{hops}-hop, of the valid" if hops else "unreadable, of the valid", len(group), len(valid))
    for reason in sorted({row.refused for row in rows} - {""}):
        share(f"refused: {reason}", sum(row.refused == reason for row in rows), len(rows))
    return "\n".join(lines)
