"""The loop of self-play, one screen: pose and solve, learn from it, remember what was lost.

    play = SelfPlay(settings, retriever=..., draw=..., memory=..., solver=..., challenger=...)
    report = play.step(1)

Each step: (1) challengers pose questions about fresh targets and G solvers attempt each one, and a question of an
earlier step where a proposal was refused; the memory does not change while they play.  (2) Both policies are updated
from the log-probabilities recorded while they sampled, so neither update disturbs the other's.  (3) Skills are credited
with what their questions came to, and failures at the frontier are queued.  (4) When it is time, the queue is distilled
into skills.

Nothing here knows which method it runs: a method is the settings, the reward and the memory it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.config import Settings
from agents.learner import Learner, Sample, comparable
from agents.llm import LLMAgent
from agents.rollout import play
from agents.tokens import TokenTrajectory
from sesa_env.errors import InvalidInput, SearchUnavailable
from sesa_env.game import Game
from sesa_env.judge import Judge
from sesa_env.replay import ReplayPool
from sesa_env.retrieval.base import Retriever
from sesa_env.targets import Task
from sesa_env.text import question_key
from sesa_env.types import CHALLENGER, SOLVER, Passage, Question, Round, Trajectory
from sesa_env.validators import ValidatorChain
from skill_memory.abstraction import states_answer
from skill_memory.base import Consolidation, Failure, SkillMemory, Use


class Seat(NamedTuple):
    """Who plays a role, and what trains it; nothing does when the seat is frozen."""

    agent: LLMAgent
    learner: Learner | None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one training step did.

    Attributes:
        step: its number, from 1.
        rounds: every round played, refused ones included; then the replayed ones, which have no challenger.
        tokens: the attempts in tokens, by episode.
        numbers: figures for the log, all of them repeatable.
        consolidation: what the memory learned, when it was time.
        warnings: what passed a limit of the guard at this step.
    """

    step: int
    rounds: list[Round]
    tokens: dict[str, TokenTrajectory]
    numbers: dict[str, float] = field(default_factory=dict)
    consolidation: Consolidation | None = None
    warnings: list[str] = field(default_factory=list)


class SelfPlay:
    """Runs training steps.

    Args:
        settings: rules, sizes and learning rates.
        retriever: answers both roles' searches.
        draw: what a step begins with, by its number: targets for challengers, or questions that are given to the
            solvers; those of further batches at the end.  The same number gives the same ones.
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
        draw: Callable[[int], Sequence[Task]],
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
        self._draw = draw
        self._validators = validators
        self._judge = judge
        self._seats = {CHALLENGER: challenger, SOLVER: solver}
        self._pool = ReplayPool(settings.replay, seed=settings.seed)
        self._on_tick = on_tick

    def step(self, number: int) -> StepReport:
        """Play, learn, credit, distil.

        Raises:
            SearchUnavailable: no attempt of the step got through to the search tool, or past the checks; nothing was
                learned.
        """
        checked = self._validators.numbers
        rounds, replayed, tokens = self._play(number)
        posed, rounds = rounds, rounds + replayed
        if not any(attempt.usable for round_ in rounds for attempt in _attempts(round_)):
            raise SearchUnavailable(
                f"search tool or checks failed in every round of step {number}; the run can be resumed"
            )
        updates = self._learn(rounds, tokens)
        # Not of replays: a question that nobody solves comes back again and again, and would have right skills evicted.
        self.memory.credit(uses(posed, tokens, step=number))
        queued = sum(self.memory.offer(failure) for failure in failures(rounds, tokens, step=number))
        consolidation = self.memory.consolidate(step=number)
        self._keep(rounds)
        numbers = {
            **describe(posed, replayed),
            **{f"checks/{name}": count - checked[name] for name, count in self._validators.numbers.items()},
            "replay/size": len(self._pool),
            **updates,
            "memory/queued": queued,
            "memory/size": len(self.memory),
            "memory/distinct_blocks": len({t.skill_ids for t in tokens.values() if t.skill_ids}),
            **(consolidation.numbers if consolidation else {}),
        }
        return StepReport(number, rounds, tokens, numbers, consolidation)

    def get_state(self) -> dict[str, Any]:
        """Return what the loop itself remembers of earlier steps, as JSON data: the validators' memory and the pool.

        Raises:
            SettingsError: a validator remembers and cannot say what.
        """
        return {"validators": self._validators.get_state(), "replay": self._pool.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned.

        Raises:
            InvalidInput: it is no such state, or one of a run with other validators.
        """
        if not isinstance(state, Mapping) or set(state) != {"validators", "replay"}:
            raise InvalidInput(f"state must be what get_state returned, got {state!r:.80}")
        self._validators.set_state(state["validators"])
        self._pool.set_state(state["replay"])

    def _play(self, number: int) -> tuple[list[Round], list[Round], dict[str, TokenTrajectory]]:
        """Play the step's tasks in batches, and stop once enough questions have unequal attempts to learn from.

        Returns:
            The rounds, those of replayed questions, and the attempts in tokens.
        """
        tasks, size = self._draw(number), self.settings.rounds
        agents = {role: seat.agent for role, seat in self._seats.items()}
        rounds: list[Round] = []
        while len(rounds) < len(tasks) and sum(map(_mixed, rounds)) < size:
            games = []
            for index, task in enumerate(tasks[len(rounds) : len(rounds) + size], start=len(rounds)):
                game = Game(
                    self.settings.game, judge=self._judge, id=f"step{number}-round{index}", validators=self._validators
                )
                if isinstance(task, Question):
                    game.ask(task)
                else:
                    game.pose(task)
                games.append(game)
            rounds += play(games, agents, self._retriever, on_tick=self._on_tick)
        replayed = self._replay(number, rounds)
        tokens = {episode: one for agent in agents.values() for episode, one in agent.drain().items()}
        return rounds, replayed, tokens

    def _replay(self, number: int, rounds: Sequence[Round]) -> list[Round]:
        """Let the solvers try a question of an earlier step in each place that a refused proposal left empty."""
        valid = sum(round_.question is not None for round_ in rounds)
        refused = sum(bool(round_.rejection) and _usable(round_.challenger) for round_ in rounds)
        games = []
        for index, question in enumerate(self._pool.draw(min(refused, max(0, self.settings.rounds - valid)))):
            game = Game(self.settings.game, judge=self._judge, id=f"step{number}-replay{index}")
            game.ask(question)
            games.append(game)
        return play(games, {SOLVER: self._seats[SOLVER].agent}, self._retriever, on_tick=self._on_tick)

    def _keep(self, rounds: Sequence[Round]) -> None:
        """Put the step's questions into the pool, replayed ones with their fresh solve rates, and end its step."""
        for round_ in rounds:
            if round_.question is not None and round_.solve_rate is not None:
                self._pool.add(round_.question, solve_rate=round_.solve_rate)
        self._pool.end_step()

    def _learn(self, rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory]) -> dict[str, float]:
        """Update the challenger, then the solver, as SSP does; each from samples of this step only.

        Where they share weights, the solver's gap to the sampler is measured before the challenger's update moves them.
        """
        by_target = self.settings.challenger.baseline == "group"  # else a lone proposal counts, too
        batches = {
            CHALLENGER: challenger_samples(rounds, tokens, by_target=by_target),
            SOLVER: solver_samples(rounds, tokens),
        }
        numbers: dict[str, float] = {f"{role}/samples": len(samples) for role, samples in batches.items()}
        learning = {
            role: learner
            for role, samples in batches.items()
            if (learner := self._seats[role].learner) is not None and len(samples) >= 2  # to compare
        }
        together = self.settings.shared_weights and len(learning) == 2
        gap = learning[SOLVER].gap(batches[SOLVER]) if together else None
        for role, learner in learning.items():
            stats = learner.update(batches[role], gap=gap if role == SOLVER else None)
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


def challenger_samples(
    rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory], *, by_target: bool = False
) -> list[Sample]:
    """Return the usable proposals, refused ones included, compared with all others or with those about their target."""
    samples = [
        Sample(tokens[proposal.episode], proposal.reward, group=round_.target if by_target else CHALLENGER)
        for round_ in rounds
        if (proposal := round_.challenger) and proposal.usable and proposal.episode in tokens
    ]
    return comparable(samples) if by_target else samples


def uses(rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory], *, step: int) -> list[Use]:
    """One use per question whose attempts saw skills and gave at least one answer; malformed attempts do not count."""
    found = []
    for round_ in rounds:
        answered = [attempt for attempt in round_.solvers if attempt.usable and attempt.output is not None]
        skill_ids = _skill_ids(round_, tokens)
        if skill_ids and answered:
            solve_rate = sum(attempt.reward > 0 for attempt in answered) / len(answered)
            question = round_.question.text if round_.question else ""
            found.append(Use(_key(round_), skill_ids, solve_rate, step=step, question=question))
    return found


def failures(rounds: Sequence[Round], tokens: Mapping[str, TokenTrajectory], *, step: int) -> list[Failure]:
    """One failure per question: a wrong answer after a search if there is one, else whatever went wrong.

    An attempt that ran out of context teaches nothing about searching.  With the attempt go the passages that state an
    accepted answer and that the others of the round read, its challenger included.
    """
    found = []
    for round_ in rounds:
        usable = [attempt for attempt in round_.solvers if attempt.usable]
        lost = [one for one in usable if one.reward <= 0 and one.end_reason != "policy_stopped"]
        if not lost or round_.question is None or round_.solve_rate is None:
            continue
        trajectory = max(lost, key=_informative)
        found.append(
            Failure(
                question_id=_key(round_),
                question=round_.question.text,
                answers=round_.question.answers,
                trajectory=trajectory,
                solve_rate=round_.solve_rate,
                skill_ids=_skill_ids(round_, tokens),
                step=step,
                evidence=_evidence(round_, round_.question.answers, unread=trajectory),
            )
        )
    return found


def _key(round_: Round) -> str:
    """Name a round's question by its text, so that it is known again when it is asked again."""
    return question_key(round_.question.text) if round_.question else round_.id


def _informative(attempt: Trajectory) -> tuple[bool, int]:
    return attempt.output is not None, len(attempt.passages)


def _evidence(round_: Round, answers: Sequence[str], *, unread: Trajectory) -> tuple[Passage, ...]:
    """The passages of a round that state an answer and that one attempt did not read, each once."""
    read = {(passage.title, passage.text) for passage in unread.passages}
    found = {
        (passage.title, passage.text): passage
        for attempt in _attempts(round_)
        for passage in attempt.passages
        if states_answer(passage, answers)
    }
    return tuple(passage for text, passage in found.items() if text not in read)


def _skill_ids(round_: Round, tokens: Mapping[str, TokenTrajectory]) -> tuple[str, ...]:
    """The skills the round's solvers saw: the same for all of them."""
    shown = [tokens[attempt.episode].skill_ids for attempt in round_.solvers if attempt.episode in tokens]
    return shown[0] if shown else ()


def describe(rounds: Sequence[Round], replayed: Sequence[Round] = ()) -> dict[str, float]:
    """Return shares and means of a step: validity, solve rates, and what each role's turns were.

    Solve rates of replayed questions have a figure of their own; what the solvers did at them is counted with the rest.

    A share of nothing is left out rather than given as 0.
    """
    posed = [round_ for round_ in rounds if _usable(round_.challenger)]
    rated, again = _rates(rounds), _rates(replayed)
    every = (*rounds, *replayed)
    numbers: dict[str, float] = {
        "rounds": len(rounds),
        "replay/rounds": len(replayed),
        "rounds/unusable": sum(not attempt.usable for round_ in every for attempt in _attempts(round_)),
    }
    numbers |= {f"rejected/{name}": count for name, count in Counter(r.rejection for r in posed if r.rejection).items()}
    if posed:
        numbers["valid_share"] = sum(not round_.rejection for round_ in posed) / len(posed)
    if rated:
        numbers["solve_rate/mean"] = sum(rated) / len(rated)
        numbers["solve_rate/frontier_share"] = sum(0.0 < rate < 1.0 for rate in rated) / len(rated)
    if again:
        numbers["replay/solve_rate/mean"] = sum(again) / len(again)
    numbers |= _action_mix(CHALLENGER, [round_.challenger for round_ in posed if round_.challenger])
    return numbers | _action_mix(SOLVER, [attempt for round_ in every for attempt in round_.solvers])


def _mixed(round_: Round) -> bool:
    return len({attempt.reward for attempt in round_.solvers if attempt.usable}) > 1


def _usable(attempt: Trajectory | None) -> bool:
    return attempt is not None and attempt.usable


def _rates(rounds: Sequence[Round]) -> list[float]:
    return [round_.solve_rate for round_ in rounds if round_.solve_rate is not None]


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
