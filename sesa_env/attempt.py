"""One seat's attempt while it is being played: the mutable half of a `Trajectory`.

Only `sesa_env.game` changes an attempt; everybody else gets its `trajectory`, which cannot be changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sesa_env.state import plain, read_turn
from sesa_env.text import read_words
from sesa_env.types import CHALLENGER, SOLVER, Action, EndReason, Passage, Trajectory, Turn


@dataclass(slots=True)
class Attempt:
    """What one seat has done so far, with the search or the page it waits for, if any."""

    episode: str
    seat: str
    turns_allowed: int
    opens_allowed: int = 0
    finds_allowed: int = 0
    turns: list[Turn] = field(default_factory=list)
    pending: Action | None = None
    """The action of the text that was read last, while it waits for what it asked for."""
    end_reason: EndReason = ""
    output: str | None = None
    reward: float = 0.0
    usable: bool = True
    role: str = field(init=False)
    """The role of the seat."""
    tools: tuple[str, ...] = field(init=False)
    """The tools it has next to search, used up or not."""
    text: str = field(default="", init=False)
    """What was read last."""
    own: str = field(default="", init=False)
    """What counts of that: its beginning, up to the end of the action."""
    transcript: str = field(default="", init=False)
    """Its own texts, each cut after the action, and the observations, in order."""

    def __post_init__(self) -> None:
        self.role = self.seat.partition("_")[0]
        allowed = {"open": self.opens_allowed, "find": self.finds_allowed}
        self.tools = tuple(tool for tool, budget in allowed.items() if budget)

    @property
    def turns_left(self) -> int:
        """How many turns it may still take."""
        return self.turns_allowed - len(self.turns)

    @property
    def opens_left(self) -> int:
        """How many pages it may still open."""
        return self.opens_allowed and self.opens_allowed - self._done("open")

    @property
    def finds_left(self) -> int:
        """How many texts it may still look for."""
        return self.finds_allowed and self.finds_allowed - self._done("find")

    @property
    def tools_left(self) -> tuple[str, ...]:
        """The tools it may use at its next turn."""
        usable = {"open": self.opens_left, "find": self.finds_left and self.page}
        return tuple(tool for tool, can in usable.items() if can)

    @property
    def page(self) -> str:
        """Title of the page it opened last; the empty string before the first."""
        opened = (
            turn.passages[0].title for turn in reversed(self.turns) if turn.action.kind == "open" and turn.passages
        )
        return next(opened, "")

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
        for name in ("role", "tools", "text", "own", "transcript"):  # the rest says the same
            del state[name]
        return {**state, "pending": plain(self.turn(self.pending)) if self.pending else None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Attempt:
        """Return the attempt that `get_state` wrote."""
        attempt = cls(**{**state, "turns": [], "pending": None})
        for turn in map(read_turn, state["turns"]):
            attempt.read(turn.text)
            attempt.take(turn)
        if state["pending"] is not None:
            pending = read_turn(state["pending"])
            attempt.read(pending.text)
            attempt.pending = pending.action
        return attempt

    def read(self, text: str) -> Action:
        """Return the action in what the policy wrote, or an invalid one that says why it cannot be taken now.

        Raises:
            InvalidInput: `text` is not a string.
        """
        action, self.own = read_words(text, role=self.role, tools=self.tools)
        self.text = text
        if action.kind == "open" and not self.opens_left:
            return Action("invalid", reason="no_opens_left")
        if action.kind == "find" and not self.finds_left:
            return Action("invalid", reason="no_finds_left")
        if action.kind == "find" and not self.page:
            return Action("invalid", reason="no_page")
        return action

    def turn(self, action: Action, observation: str = "") -> Turn:
        """Return the turn of the text that was read last."""
        return Turn(self.text, action, observation)

    def take(self, turn: Turn) -> None:
        """Add a turn that is complete, of the text that was read last."""
        self.turns.append(turn)
        self.transcript += self.own + turn.observation

    def receive(self, rendered: str, *, passages: tuple[Passage, ...], remark: str) -> None:
        """Complete the turn that is pending with what came back."""
        if self.pending is not None:
            observation = f"\n<information>{rendered}</information>\n\n"
            self.take(Turn(self.text, self.pending, observation, passages, remark))
            self.pending = None

    def _done(self, kind: str) -> int:
        return sum(turn.action.kind == kind and not turn.action.reason for turn in self.turns)

    def close(self, action: Action | None, reason: EndReason, *, score: float | None) -> None:
        """End with this action, or between two turns; a score of None makes the attempt unusable."""
        if action is not None:
            self.take(self.turn(action))
            self.output = action.text if reason in ("answered", "posed") else None
        self.end_reason = reason
        self.usable = score is not None
        self.reward = float(score or 0.0)


_WHAT_WAS_WRONG = {
    "no_action": "No action was found.",
    "unclosed_think": "The <think> block was not closed.",
    "empty_search": "The query was empty.",
    "empty_answer": "The answer was empty.",
    "empty_question": "The question was empty.",
    "empty_open": "The title was empty.",
    "empty_find": "The text to find was empty.",
    "no_opens_left": "No more pages can be opened.",
    "no_finds_left": "No more texts can be looked for.",
    "no_page": "No page is open.",
}
_WHAT_TO_DO = {
    "search": "<search>a query</search> to search",
    "open": "<open>a title</open> to open a page",
    "find": "<find>a text</find> to find it in the page",
    CHALLENGER: "or <question>your question</question> to pose it",
    SOLVER: "or <answer>your answer</answer> to answer",
}


def correction(action: Action, *, role: str, tools: Sequence[str] = ()) -> str:
    """Return the observation that tells a policy what was wrong with its turn and what it may write instead."""
    choices = ", ".join(_WHAT_TO_DO[choice] for choice in ("search", *tools, role))
    return f"\n{_WHAT_WAS_WRONG[action.reason]} Write {choices}.\n\n"
