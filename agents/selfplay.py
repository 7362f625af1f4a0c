"""The loop of self-play, one screen: pose and solve, learn from it, remember what was lost.

    play = SelfPlay(settings, retriever=..., draw_targets=..., memory=..., solver=..., challenger=...)
    report = play.step(1)

Each step: (1) challengers pose questions about fresh targets and G solvers attempt each one; the memory does not change
while they play.  (2) Both policies are updated from the log-probabilities recorded while they sampled, so neither
update disturbs the other's.  (3) Skills are credited with what their questions came to, and failures at the frontier
are queued.  (4) When it is time, the queue is distilled into skills.

Nothing here knows which method it runs: a method is the settings, the reward and the memory it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agents.config import Settings
from agents.learner import Learner, Sample, comparable
from agents.llm import LLMAgent
from agents.rollout import play
from agents.tokens import TokenTrajectory
from sesa_env.errors import SearchUnavailable
from sesa_env.game import Game
from sesa_env.judge import Judge
from sesa_env.retrieval.base import Retriever
from sesa_env.text import question_key
from sesa_env.types import CHALLENGER, SOLVER, Round, Target, Trajectory
from sesa_env.validators import ValidatorChain
from skill_memory.base import Consolidation, Failure, SkillMemory, Use


class Seat(NamedTuple):
    """Who plays a role, and what trains it."""

    agent: LLMAgent
    learner: Learner


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one training step did.

    Attributes:
        step: its number, from 1.
        rounds: every round played, refused ones included.
        tokens: the attempts in tokens, by episode.
        numbers: figures for the log, all of them repeatable.
        consolidation: what the memory learned, when it was time.
    """

    step: int
    rounds: list[Round]
    tokens: dict[str, TokenTrajectory]
    numbers: dict[str, float] = field(default_factory=dict)
    consolidation: Consolidation | None = None


class SelfPlay:
    """Runs training steps.

    Args:
        settings: rules, sizes and learning rates.
        retriever: answers both roles' searches.
        draw_targets: the targets of a step, by its number; the same number gives the same targets.
        validators: the chain that checks posed questions; one for the whole run, since some remember earlier ones.
        memory: what the solver's agent reads, and what this loop feeds.
        judge: scores answers.
        solver, challenger: the two seats; with shared weights both learners train the same ones.
        on_tick: called after every turn of all seats, for progress bars.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        retriever: Retriever,
        draw_targets: Callable[[int], Sequence[Target]],
        validators: ValidatorChain,
        memory: SkillMemory,
        judge: Judge,
        solver: Seat,
        challenger: Seat,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.memory = memory
        self._retriever = retriever
        self._draw_targets = draw_targets
        self._validators = validators
        self._judge = judge
        self._seats = {CHALLENGER: challenger, SOLVER: solver}
        self._on_tick = on_tick

    def step(self, number: int) -> StepReport:
        """Play, learn, credit, distil.

        Raises:
            SearchUnavailable: no attempt of the step got through to the search tool; nothing was learned.
        """
        rounds, tokens = self._play(number)
        if not any(attempt.usable for round_ in rounds for attempt in _attempts(round_)):
            raise SearchUnavailable(f"the search tool failed in every round of step {number}; the run can be resumed")
        updates = self._learn(rounds, tokens)
        self.memory.credit(uses(rounds, tokens, step=number))
        queued = sum(self.memory.offer(failure) for failure in failures(rounds, tokens, step=number))
        consolidation = self.memory.consolidate(step=number)
        numbers = {
            **describe(rounds),
            **updates,
            "memory/queued": queued,
            "memory/size": len(self.memory),
            "memory/distinct_blocks": len({t.skill_ids for t in tokens.values() if t.skill_ids}),
        }
        return StepReport(number, rounds, tokens, numbers, consolidation)

    def _play(self, number: int) -> tuple[list[Round], dict[str, TokenTrajectory]]:
        games = []
        for index, target in enumerate(self._draw_targets(number)):
            game = Game(
                self.settings.game, judge=self._judge, id=f"step{number}-round{index}", validators=self._validators
            )
            game.pose(target)
            games.append(game)
        agents = {role: seat.agent for role, seat in self._seats.items()}
        rounds = play(games, agents, self._retriever, on_tick=self._on_tick)
        tokens = {episode: one for agent in agents.values() for episode, one in agent.drain().items()}
        return rounds, tokens

    def _learn(self, rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory]) -> dict[str, float]:
        """Update the challenger, then the solver, as SSP does; each from samples of this step only."""
        numbers: dict[str, float] = {}
        for role, samples in (
            (CHALLENGER, challenger_samples(rounds, tokens)),
            (SOLVER, solver_samples(rounds, tokens)),
        ):
            numbers[f"{role}/samples"] = len(samples)
            if len(samples) < 2:  # nothing to compare with
                continue
            stats = self._seats[role].learner.update(samples)
            numbers |= {f"{role}/{name}": value for name, value in stats.as_dict().items()}
        return numbers


def solver_samples(rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory]) -> list[Sample]:
    """Return the usable attempts at each question, compared only with those at the same question."""
    return comparable(
        Sample(tokens[attempt.episode], attempt.reward, group=round_.id)
        for round_ in rounds
        for attempt in round_.solvers
        if attempt.usable and attempt.episode in tokens
    )


def challenger_samples(rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory]) -> list[Sample]:
    """Return the usable proposals, refused ones included, compared with each other."""
    proposals = [round_.challenger for round_ in rounds if round_.challenger and round_.challenger.usable]
    return [
        Sample(tokens[proposal.episode], proposal.reward, group=CHALLENGER)
        for proposal in proposals
        if proposal.episode in tokens
    ]


def uses(rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory], *, step: int) -> list[Use]:
    """One use per question whose attempts saw skills and gave at least one answer; malformed attempts do not count."""
    found = []
    for round_ in rounds:
        answered = [attempt for attempt in round_.solvers if attempt.usable and attempt.output is not None]
        skill_ids = _skill_ids(round_, tokens)
        if skill_ids and answered:
            solve_rate = sum(attempt.reward > 0 for attempt in answered) / len(answered)
            found.append(Use(_key(round_), skill_ids, solve_rate, step=step))
    return found


def failures(rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory], *, step: int) -> list[Failure]:
    """One failure per question: a wrong answer after a search if there is one, else whatever went wrong.

    An attempt that ran out of context teaches nothing about searching.
    """
    found = []
    for round_ in rounds:
        usable = [attempt for attempt in round_.solvers if attempt.usable]
        lost = [one for one in usable if one.reward <= 0 and one.end_reason != "policy_stopped"]
        if not lost or round_.question is None or round_.solve_rate is None:
            continue
        found.append(
            Failure(
                question_id=_key(round_),
                question=round_.question.text,
                answers=round_.question.answers,
                trajectory=max(lost, key=_informative),
                solve_rate=round_.solve_rate,
                skill_ids=_skill_ids(round_, tokens),
                step=step,
            )
        )
    return found


def _key(round_: Round) -> str:
    """Name a round's question by its text, so that it is known again when it is asked again."""
    return question_key(round_.question.text) if round_.question else round_.id


def _informative(attempt: Trajectory) -> tuple[bool, int]:
    return attempt.output is not None, len(attempt.passages)


def _skill_ids(round_: Round, tokens: Mapping[str, TokenTrajectory]) -> tuple[str, ...]:
    """The skills the round's solvers saw: the same for all of them."""
    shown = [tokens[attempt.episode].skill_ids for attempt in round_.solvers if attempt.episode in tokens]
    return shown[0] if shown else ()


def describe(rounds: Sequence[Round]) -> dict[str, float]:
    """Return shares and means of a step: validity, solve rates, and what each role's turns were.

    A share of nothing is left out rather than given as 0.
    """
    posed = [round_ for round_ in rounds if round_.challenger and round_.challenger.usable]
    rated = [round_.solve_rate for round_ in rounds if round_.solve_rate is not None]
    numbers: dict[str, float] = {
        "rounds": len(rounds),
        "rounds/unusable": sum(not attempt.usable for round_ in rounds for attempt in _attempts(round_)),
    }
    numbers |= {f"rejected/{name}": count for name, count in Counter(r.rejection for r in posed if r.rejection).items()}
    if posed:
        numbers["valid_share"] = sum(not round_.rejection for round_ in posed) / len(posed)
    if rated:
        numbers["solve_rate/mean"] = sum(rated) / len(rated)
        numbers["solve_rate/frontier_share"] = sum(0.0 < rate < 1.0 for rate in rated) / len(rated)
    numbers |= _action_mix(CHALLENGER, [round_.challenger for round_ in posed if round_.challenger])
    return numbers | _action_mix(SOLVER, [attempt for round_ in rounds for attempt in round_.solvers])


def _attempts(round_: Round) -> tuple[Trajectory, ...]:
    return (*round_.solvers, *filter(None, [round_.challenger]))


def _action_mix(role: str, attempts: Sequence[Trajectory]) -> dict[str, float]:
    turns = Counter(turn.action.kind for attempt in attempts for turn in attempt.turns)
    ends = Counter(attempt.end_reason for attempt in attempts)
    numbers = {f"{role}/action/{kind}": count / turns.total() for kind, count in turns.items()}
    numbers |= {f"{role}/end/{reason}": count / ends.total() for reason, count in ends.items()}
    if attempts:
        numbers[f"{role}/searches"] = sum(len(attempt.queries) for attempt in attempts) / len(attempts)
        unsearched = [attempt for attempt in attempts if attempt.output is not None and not attempt.queries]
        numbers[f"{role}/closed_book_share"] = len(unsearched) / len(attempts)
    return numbers
