"""The rules of one round: pose -> check -> solve -> settle.

A challenger searches and poses a question about its target, the validators check it, G solvers attempt it
independently, and all are paid.  The rules know seats, texts and passages; they know no Gymnasium, no model and no
retriever, so every face of the environment wraps this one state machine and repeats none of it.

    game = Game(GameSettings(attempts=5), judge=ExactMatchJudge())
    game.pose(Target("Oslo", hops=1))
    while game.phase != "settled":
        advance([Move(game, seat, agent(game.view(seat))) for seat in game.active], retriever)
    game.result.rewards

A failure of the search tool is never an observation and never a wrong answer: the attempt ends and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from sesa_env.attempt import Attempt, correction
from sesa_env.errors import InvalidInput, OutOfTurn, SesaError
from sesa_env.game_settings import MIN_ATTEMPTS, at_least, finite
from sesa_env.game_settings import GameSettings as GameSettings
from sesa_env.judge import Judge, require_trainable
from sesa_env.reading import PageRequest, Reading, render_reading
from sesa_env.registry import CHALLENGER_REWARDS
from sesa_env.state import plain, read_question, read_target
from sesa_env.text import neutralise, render_passages
from sesa_env.tick import Move as Move
from sesa_env.tick import advance as advance
from sesa_env.types import (
    CHALLENGER,
    SOLVER,
    Action,
    EndReason,
    Passage,
    Question,
    Round,
    Standing,
    Target,
    Trajectory,
    View,
)
from sesa_env.validators import UNAVAILABLE, Proposal, ValidatorChain, stateless_chain

CHALLENGER_SEAT = f"{CHALLENGER}_0"
STATE_SCHEMA = 2  # raised whenever `Game.get_state` changes; `set_state` refuses what it does not know

Phase = Literal["idle", "pose", "solve", "settled"]


class Game:
    """One round, played by submitting texts for seats until the phase is "settled".

    Args:
        settings: the rules.
        judge: scores the answers.
        id: name of the round; its question and episodes are named after it, so give games that are played side by
            side different ones.
        validators: the chain that checks the question, one for all games of a run so that it can remember; None runs
            the validators of the settings, none of which may need to remember.
    """

    def __init__(
        self, settings: GameSettings, *, judge: Judge, id: str = "round", validators: ValidatorChain | None = None
    ) -> None:
        self.settings = settings
        self.id = id
        self._judge = judge
        self._validators = validators
        self._phase: Phase = "idle"
        self._target: Target | None = None
        self._question: Question | None = None
        self._rejection = ""
        self._solve_rate: float | None = None
        self._attempts: dict[str, Attempt] = {}

    def pose(self, target: Target) -> None:
        """Begin a whole round: the challenger is to pose a question about `target`.

        Raises:
            OutOfTurn: the round has begun already.
            SettingsError: the judge is for evaluation only, while a posed question pays rewards; or there is no chain,
                and a validator of the settings would have to remember other rounds.
        """
        self._require_idle()
        require_trainable(self._judge)
        if self._validators is None:
            self._validators = stateless_chain(self.settings)
        self._target = target
        self._phase = "pose"
        self._seat(CHALLENGER_SEAT, turns=self.settings.challenger_turns)

    def ask(self, question: Question, *, attempts: int | None = None) -> None:
        """Begin with a given question and no challenger; `attempts` is the settings' number unless given."""
        self._require_idle()
        number = self.settings.attempts if attempts is None else attempts
        at_least(1, attempts=number)
        self._open_solve(question, attempts=number)

    @property
    def phase(self) -> Phase:
        """Where the round is: "idle", "pose", "solve" or "settled"."""
        return self._phase

    @property
    def seats(self) -> tuple[str, ...]:
        """All seats that have been taken so far: the challenger's, and from the solve phase on the solvers'."""
        return tuple(self._attempts)

    @property
    def active(self) -> tuple[str, ...]:
        """The seats that may act now; one that waits for its search is not among them."""
        return tuple([seat for seat, attempt in self._attempts.items() if attempt.may_act])

    def view(self, seat: str) -> View:
        """Return all that the seat may see; a solver's view is made from the question's text and its own turns only.

        Raises:
            InvalidInput: there is no such seat (yet).
        """
        attempt = self._attempt(seat)
        solves = attempt.role == SOLVER
        target = None if solves else self._target
        return View(  # by place, which takes a third of the time that it takes by name
            attempt.episode,
            attempt.role,
            seat,
            len(attempt.turns),
            attempt.turns_left,
            self._harmless(self._question.text) if solves and self._question else "",
            self._harmless(target.answer) if target else "",
            target.hops if target else 0,
            tuple(map(self._harmless, target.examples)) if target else (),
            attempt.turns[-1].observation if attempt.turns else "",
            attempt.transcript,
            attempt.tools,
            attempt.opens_left if attempt.tools else 0,
            attempt.finds_left if attempt.tools else 0,
        )

    def submit(self, seat: str, text: str, *, check: bool = True) -> str | PageRequest | None:
        """Take the seat's turn with the text that its policy wrote.

        Args:
            seat: whose turn it is.
            text: what its policy wrote.
            check: whether a question is checked at once; without it, it is `posed`, and `decide` must follow.

        Returns:
            The query when the turn is a search, and `deliver` or `fail` must follow for this seat; what is to be read
            when it opens or searches a page, and `deliver_page` or `fail` must follow; else None.

        Raises:
            OutOfTurn: the seat may not act now.
            InvalidInput: there is no such seat, or `text` is not a string.
        """
        attempt = self._attempt(seat)
        if not attempt.may_act:
            raise OutOfTurn(f"{seat} may not act in phase {self._phase!r}: {attempt.status}")
        action = attempt.read(text)
        asks = action.kind in ("search", "open", "find")
        if asks and attempt.turns_left > 1:
            attempt.pending = action
            return action.text if action.kind == "search" else _request(attempt, action)
        if asks:  # its result would never be read
            self._end(attempt, replace(action, reason="turn_limit"), "turn_limit")
        elif action.kind == "invalid":
            self._take_invalid(attempt, action)
        else:
            self._end(attempt, action, "posed" if action.kind == "question" else "answered")
        if check and (proposal := self.posed):
            self.decide(self.validators.check(proposal, self.settings))
        return None

    @property
    def posed(self) -> Proposal | None:
        """The proposal that waits to be checked by `validators`; `decide` must follow."""
        if self._phase != "pose":
            return None
        challenger = self._attempts.get(CHALLENGER_SEAT)
        if self._target is None or challenger is None or challenger.output is None:
            return None
        return Proposal(self._target, challenger.trajectory, challenger.output)

    @property
    def validators(self) -> ValidatorChain:
        """The chain that checks this round's question: the run's, or one of its own."""
        if self._validators is None:
            self._validators = stateless_chain(self.settings)
        return self._validators

    def decide(self, refusal: str) -> None:
        """Let the solvers try the posed question, or settle the round when a check refused it.

        Args:
            refusal: the verdict of `validators`.

        Raises:
            OutOfTurn: no question waits to be checked.
        """
        proposal = self.posed
        if proposal is None:
            raise OutOfTurn(f"no question of round {self.id!r} waits to be checked, its phase is {self._phase!r}")
        if refusal:
            self._refuse(refusal)
            return
        text, target = self._harmless(proposal.text), proposal.target
        self._open_solve(
            Question(id=self.id, text=text, answers=(target.answer, *target.aliases), hops=target.hops),
            attempts=self.settings.attempts,
        )

    def deliver(self, seat: str, passages: Sequence[Passage], *, remark: str = "") -> None:
        """Hand the passages found to the seat whose search is pending; none is a result too.

        Raises:
            OutOfTurn: the seat waits for no search.
        """
        attempt, action = self._waiting(seat)
        if action.kind != "search":
            raise OutOfTurn(f"{seat} waits for a page, not for a search")
        rendered = render_passages(passages, max_chars=self.settings.passage_chars, tools=attempt.tools)
        attempt.receive(rendered, passages=tuple(passages), remark=remark)

    def deliver_page(self, seat: str, reading: Reading) -> None:
        """Hand what was read to the seat that waits for a page, or for a text in it; nothing is a result too.

        Raises:
            OutOfTurn: the seat waits for no page.
        """
        attempt, action = self._waiting(seat)
        request = _request(attempt, action)
        if not isinstance(request, PageRequest):
            raise OutOfTurn(f"{seat} waits for a search, not for a page")
        rendered, remark = render_reading(reading, request, self.settings.limits, tools=attempt.tools)
        attempt.receive(rendered, passages=reading.passages, remark=remark)

    def fail(self, seat: str, error: SesaError) -> None:
        """End the attempt whose search (or page) is pending because the infrastructure failed.

        The attempt is unusable: it is not scored, not part of the solve rate, and nothing is observed.  A challenger
        that fails voids the round.

        Raises:
            OutOfTurn: the seat waits for no search.
            InvalidInput: `error` is not one of ours; a bug must not pass for an outage.
        """
        attempt, action = self._waiting(seat)
        if not isinstance(error, SesaError):
            raise InvalidInput(f"error must be a SesaError, got {error!r}")
        attempt.pending = None
        attempt.close(action, "search_unavailable", score=None)
        self._move_on()

    def stop(self, seat: str) -> None:
        """End the attempt of a seat whose agent cannot go on, its context being full, say.

        No turn is taken: the attempt ends without answer or question, as a failure of the policy.

        Raises:
            OutOfTurn: the seat may not act now.
        """
        attempt = self._attempt(seat)
        if not attempt.may_act:
            raise OutOfTurn(f"{seat} may not act in phase {self._phase!r}: {attempt.status}")
        self._end(attempt, None, "policy_stopped")

    def trajectory(self, seat: str) -> Trajectory:
        """Return what the seat has done so far, and its reward once that is known."""
        return self._attempt(seat).trajectory

    def standing(self, seat: str) -> Standing:
        """Return what the seat did last and how it stands, which is less than its whole trajectory, and sooner had."""
        attempt = self._attempt(seat)
        last = attempt.turns[-1] if attempt.turns else None
        return Standing(seat, attempt.role, last, attempt.end_reason, attempt.usable, attempt.reward)

    @property
    def rewards(self) -> dict[str, float]:
        """What each seat has earned so far, but those whose attempts do not count."""
        return {seat: attempt.reward for seat, attempt in self._attempts.items() if attempt.usable}

    @property
    def solve_rate(self) -> float | None:
        """The share of the attempts that count which solved the question; None while, or where, there is none."""
        return self._solve_rate

    @property
    def rejection(self) -> str:
        """The validator that refused the question; "" while, or where, none has."""
        return self._rejection

    @property
    def result(self) -> Round:
        """The settled round.

        Raises:
            OutOfTurn: the round is not settled yet.
        """
        if self._phase != "settled":
            raise OutOfTurn(f"round {self.id!r} is not settled yet, its phase is {self._phase!r}")
        challenger = self._attempts.get(CHALLENGER_SEAT)
        return Round(
            id=self.id,
            target=self._target,
            question=self._question,
            rejection=self._rejection,
            challenger=challenger.trajectory if challenger else None,
            solvers=tuple(attempt.trajectory for attempt in self._solvers),
            solve_rate=self._solve_rate,
            rewards=self.rewards,
        )

    @property
    def waiting(self) -> dict[str, str | PageRequest]:
        """What each seat waits for: a query for `deliver`, a page for `deliver_page`; or `fail` must follow."""
        waiting = {seat: attempt for seat, attempt in self._attempts.items() if attempt.pending}
        return {seat: _request(attempt, attempt.pending) for seat, attempt in waiting.items() if attempt.pending}

    def get_state(self) -> dict[str, Any]:
        """Return the round as JSON data, searches that are pending included (see `waiting`)."""
        return {
            "schema": STATE_SCHEMA,
            "settings": plain(self.settings),
            "id": self.id,
            "phase": self._phase,
            "target": plain(self._target),
            "question": plain(self._question),
            "rejection": self._rejection,
            "solve_rate": self._solve_rate,
            "attempts": {seat: attempt.get_state() for seat, attempt in self._attempts.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned, whatever was played here before; the judge stays this game's own.

        Raises:
            InvalidInput: it is no such state, or one of a game with other settings; nothing was changed.
        """
        if not isinstance(state, Mapping) or state.get("schema") != STATE_SCHEMA:
            raise InvalidInput(f"state must be what get_state returned, of schema {STATE_SCHEMA}, got {state!r:.80}")
        if state.get("settings") != plain(self.settings):
            raise InvalidInput(f"state must be of a game with equal settings, got {state.get('settings')!r}")
        try:
            attempts = {seat: Attempt.from_state(attempt) for seat, attempt in state["attempts"].items()}
            target, question = read_target(state["target"]), read_question(state["question"])
            id, phase = state["id"], state["phase"]
            rejection, solve_rate = state["rejection"], state["solve_rate"]
        except (AttributeError, KeyError, TypeError) as error:
            raise InvalidInput(f"state must be what get_state returned, got a part that is not: {error!r}") from error
        self.id, self._phase, self._attempts = id, phase, attempts
        self._target, self._question, self._rejection, self._solve_rate = target, question, rejection, solve_rate

    @property
    def _solvers(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if attempt.role == SOLVER]

    def _require_idle(self) -> None:
        if self._phase != "idle":
            raise OutOfTurn(f"round {self.id!r} has begun already, its phase is {self._phase!r}; make a new Game")

    def _seat(self, seat: str, *, turns: int) -> None:
        opens, finds = self.settings.max_opens, self.settings.max_finds
        self._attempts[seat] = Attempt(f"{self.id}/{seat}", seat, turns, opens_allowed=opens, finds_allowed=finds)

    def _harmless(self, text: str) -> str:
        return _neutralised(text, self.settings.tools)

    def _attempt(self, seat: str) -> Attempt:
        attempt = self._attempts.get(seat)
        if attempt is None:
            raise InvalidInput(f"seat must be one of {list(self._attempts)} in phase {self._phase!r}, got {seat!r}")
        return attempt

    def _waiting(self, seat: str) -> tuple[Attempt, Action]:
        attempt = self._attempt(seat)
        if attempt.pending is None:
            raise OutOfTurn(f"{seat} is not waiting for a search: {attempt.status}")
        return attempt, attempt.pending

    def _take_invalid(self, attempt: Attempt, action: Action) -> None:
        if attempt.invalid_turns + 1 > self.settings.max_invalid:
            self._end(attempt, action, "invalid_actions")
        elif attempt.turns_left == 1:
            self._end(attempt, action, "turn_limit")
        else:
            told = correction(action, role=attempt.role, tools=attempt.tools_left)
            attempt.take(attempt.turn(action, told))

    def _end(self, attempt: Attempt, action: Action | None, reason: EndReason) -> None:
        """Close the attempt with its last action, if it took one; the judge comes first, since it may raise."""
        score: float | None = 0.0
        if attempt.role == SOLVER and self._question:
            answer = action.text if action and reason == "answered" else None
            score = self._judge.judge(self._question, answer)
        finite(score=score or 0.0)
        attempt.close(action, reason, score=score)
        self._move_on()

    def _move_on(self) -> None:
        if any(not attempt.end_reason for attempt in self._attempts.values()):
            return
        if self._phase != "pose":
            self._settle()
        elif not self._attempts[CHALLENGER_SEAT].usable:
            self._refuse("search_unavailable")
        elif not self.posed:
            self._refuse("format")

    def _refuse(self, rejection: str) -> None:
        self._rejection = rejection
        if rejection.endswith(UNAVAILABLE):  # an outage is nobody's fault
            self._attempts[CHALLENGER_SEAT].usable = False
        self._settle()

    def _open_solve(self, question: Question, *, attempts: int) -> None:
        self._question = question
        self._phase = "solve"
        for number in range(attempts):
            self._seat(f"{SOLVER}_{number}", turns=self.settings.solver_turns)

    def _settle(self) -> None:
        scored = [attempt for attempt in self._solvers if attempt.usable]
        if scored:
            self._solve_rate = sum(attempt.reward > 0 for attempt in scored) / len(scored)
        challenger = self._attempts.get(CHALLENGER_SEAT)
        if challenger and challenger.usable:
            self._pay(challenger, scored=len(scored))
        self._phase = "settled"

    def _pay(self, challenger: Attempt, *, scored: int) -> None:
        if self._rejection:
            challenger.reward = self.settings.rejection_reward
        elif self._solve_rate is None or scored < MIN_ATTEMPTS:  # what is left says nothing about the question
            challenger.usable = False
        else:
            reward = CHALLENGER_REWARDS.get(self.settings.challenger_reward)
            challenger.reward = float(reward(self._solve_rate, self.settings))


@lru_cache(maxsize=1024)  # a question is shown at every turn of every attempt
def _neutralised(text: str, tools: tuple[str, ...]) -> str:
    return neutralise(text, tools=tools)


def _request(attempt: Attempt, action: Action) -> str | PageRequest:
    """Return what an action asks of the search tool: a query, a page, or a text in the page opened last."""
    if action.kind == "open":
        return PageRequest(action.text)
    return PageRequest(attempt.page, action.text) if action.kind == "find" else action.text
