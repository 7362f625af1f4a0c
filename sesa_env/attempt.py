"""One seat's attempt while it is being played: the mutable half of a `Trajectory`.

Only `sesa_env.game` changes an attempt; everybody else gets its `trajectory`, which cannot be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sesa_env.state import plain, read_turn
from sesa_env.text import cut_after_action
from sesa_env.types import CHALLENGER, SOLVER, Action, EndReason, Trajectory, Turn


@dataclass(slots=True)
class Attempt:
    """What one seat has done so far, with the search it waits for, if any."""

    episode: str
    seat: str
    turns_allowed: int
    turns: list[Turn] = field(default_factory=list)
    pending: Turn | None = None
    end_reason: EndReason = ""
    output: str | None = None
    reward: float = 0.0
    usable: bool = True

    @property
    def role(self) -> str:
        """The role of the seat."""
        return self.seat.partition("_")[0]

    @property
    def turns_left(self) -> int:
        """How many turns it may still take."""
        return self.turns_allowed - len(self.turns)

    @property
    def may_act(self) -> bool:
        """Whether it is neither over nor waiting for a search."""
        return not self.end_reason and self.pending is None

    @property
    def status(self) -> str:
        """Its state in words, for messages."""
        if self.end_reason:
            return f"its attempt ended with {self.end_reason!r}"
        return "its search is pending" if self.pending else "it is its turn"

    @property
    def invalid_turns(self) -> int:
        """How many of its turns had no valid action."""
        return sum(turn.action.kind == "invalid" for turn in self.turns)

    @property
    def transcript(self) -> str:
        """Its own texts, each cut after the action, and the observations, in order."""
        return "".join(cut_after_action(turn.text, role=self.role) + turn.observation for turn in self.turns)

    @property
    def trajectory(self) -> Trajectory:
        """What has happened so far, as a record."""
        return Trajectory(
            episode=self.episode,
            seat=self.seat,
            turns=tuple(self.turns),
            end_reason=self.end_reason,
            output=self.output,
            reward=self.reward,
            usable=self.usable,
        )

    def get_state(self) -> dict[str, Any]:
        """Return all of it as JSON data, the pending search included."""
        state: dict[str, Any] = plain(self)
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Attempt:
        """Return the attempt that `get_state` wrote."""
        pending = state["pending"]
        turns = [read_turn(turn) for turn in state["turns"]]
        return cls(**{**state, "turns": turns, "pending": None if pending is None else read_turn(pending)})

    def close(self, turn: Turn | None, reason: EndReason, *, score: float | None) -> None:
        """End with this turn, or between two turns; a score of None makes the attempt unusable."""
        if turn is not None:
            self.turns.append(turn)
            self.output = turn.action.text if reason in ("answered", "posed") else None
        self.end_reason = reason
        self.usable = score is not None
        self.reward = float(score or 0.0)


_WHAT_WAS_WRONG = {
    "no_action": "No action was found.",
    "unclosed_think": "The <think> block was not closed.",
    "empty_search": "The query was empty.",
    "empty_answer": "The answer was empty.",
    "empty_question": "The question was empty.",
}
_WHAT_TO_DO = {
    CHALLENGER: "Write <search>a query</search> to search, or <question>your question</question> to pose it.",
    SOLVER: "Write <search>a query</search> to search, or <answer>your answer</answer> to answer.",
}


def correction(action: Action, *, role: str) -> str:
    """Return the observation that tells a policy what was wrong with its turn and what it may write instead."""
    return f"\n{_WHAT_WAS_WRONG[action.reason]} {_WHAT_TO_DO[role]}\n\n"
