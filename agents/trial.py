"""What the training loop lends a skill memory: the search tool, and the solver to try a skill with.

    equip(memory, settings, model=model, retriever=retriever, judge=judge, past=past)

A trial plays each question G times without the skill and G times with it, from the same seed, by the solver as it is
now.  Nothing is learned from these attempts; the run's own random streams are not touched, so a run with trials and one
that was resumed before them agree.  A memory without `equip` is left alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from agents.base import Policy
from agents.config import Settings
from agents.policies.hf import LanguageModel
from agents.rollout import play
from agents.seats import adapter_of
from agents.solver import make_solver
from sesa_env.game import Game
from sesa_env.judge import Judge
from sesa_env.retrieval.base import Retriever
from sesa_env.types import SOLVER, Question, Round
from skill_memory.base import SkillMemory
from skill_memory.batch import Lab
from skill_memory.executed import Past, Tally
from skill_memory.none import NoMemory
from skill_memory.skill import Skill


@runtime_checkable
class Equippable(Protocol):
    """A memory that looks into failures or tests its skills."""

    def equip(self, lab: Lab) -> None:
        """Take what it works with."""
        ...


def equip(
    memory: SkillMemory,
    settings: Settings,
    *,
    model: LanguageModel,
    retriever: Retriever,
    judge: Judge,
    past: Callable[[], Sequence[Past]],
) -> None:
    """Lend a memory the run's search tool and solver, if it can use them.

    Args:
        memory: the run's memory.
        settings: the run's settings.
        model: the solver's weights, as they are when a trial is played.
        retriever: the solvers' search tool.
        judge: scores answers.
        past: returns the questions of earlier steps, oldest first.
    """
    if not isinstance(memory, Equippable):
        return
    trial = SolverTrial(
        lambda seed: model.policy(adapter_of(SOLVER, settings), seed=seed),
        memory,
        settings,
        retriever=retriever,
        judge=judge,
    )
    memory.equip(Lab(search=retriever.search, top_k=settings.game.top_k, trial=trial, past=past))


class SolverTrial:
    """Plays questions with and without a skill.

    Args:
        make_policy: returns the solver's policy with a random stream of that seed.
        memory: what the solver is shown besides.
        settings: rules, group size, lengths and temperature of the run.
        retriever: answers the searches.
        judge: scores answers.
    """

    def __init__(
        self,
        make_policy: Callable[[int], Policy],
        memory: SkillMemory,
        settings: Settings,
        *,
        retriever: Retriever,
        judge: Judge,
    ) -> None:
        self._make_policy = make_policy
        self._memory = memory
        self._settings = settings
        self._retriever = retriever
        self._judge = judge

    def __call__(self, skill: Skill, questions: Sequence[Question]) -> list[Tally]:
        """Return a tally per question; with the skill means that it comes first and the last of the k gives way."""
        seed = zlib.crc32(skill.text.encode("utf-8", "replace"))
        without = self._play(self._memory, questions, seed=seed)
        with_skill = self._play(_With(skill, self._memory, k=self._settings.memory.k), questions, seed=seed)
        return [_tally(*pair) for pair in zip(without, with_skill, strict=True)]

    def _play(self, memory: SkillMemory, questions: Sequence[Question], *, seed: int) -> list[Round]:
        solver = make_solver(
            self._make_policy(seed),
            memory,
            token_budget=self._settings.memory.token_budget,
            max_new_tokens=self._settings.model.max_new_tokens,
            temperature=self._settings.model.solver_temperature,
        )
        games = []
        for number, question in enumerate(questions):
            game = Game(self._settings.game, judge=self._judge, id=f"trial{number}")
            game.ask(question)
            games.append(game)
        rounds = play(games, {SOLVER: solver}, self._retriever)
        solver.drain()  # what was sampled is nobody's to learn from
        return rounds


class _With(NoMemory):
    """A memory with one more skill, which is shown first."""

    def __init__(self, skill: Skill, memory: SkillMemory, *, k: int) -> None:
        self._skill = replace(skill, id="candidate")
        self._memory = memory
        self._k = k

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return the skill and the best k - 1 of the memory for each question."""
        found = self._memory.retrieve(questions, exclude_source=exclude_source)
        return [[self._skill, *skills[: self._k - 1]] for skills in found]


def _tally(without: Round, with_skill: Round) -> Tally:
    """Compare two rounds of one question; an attempt that could not be scored on either side spoils the comparison."""
    assert without.question is not None
    attempts = [*without.solvers, *with_skill.solvers]
    if not all(attempt.usable for attempt in attempts):
        return Tally(without.question.id, 0, 0, 0)
    return Tally(without.question.id, len(without.solvers), _solved(without), _solved(with_skill))


def _solved(round_: Round) -> int:
    return sum(attempt.reward > 0.0 for attempt in round_.solvers)
