"""The records that travel between the parts: passages, questions, actions, turns, trajectories, rounds.

All are frozen: a record that was written down cannot be changed by whoever reads it later.

    question = Question(id="q1", text="Who wrote Dune?", answers=("Frank Herbert",))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sesa_env.errors import InvalidInput

CHALLENGER = "challenger"
SOLVER = "solver"


@dataclass(frozen=True, slots=True)
class Passage:
    """One searchable piece of a corpus, with the score of the search that found it (0.0 when none did)."""

    id: str
    title: str
    text: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Question:
    """A question with every accepted answer, the first being the preferred one.

    Raises:
        InvalidInput: no text, no answer, or a bare string where a tuple of answers belongs.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    supporting_titles: tuple[str, ...] = ()
    hops: int | None = None
    family: str = ""
    """What kind of question it is ("bridge", "comparison", ...); evaluation tables are split by it."""

    def __post_init__(self) -> None:
        if isinstance(self.answers, str):
            raise InvalidInput(f"answers of question {self.id!r} must be a tuple of strings, got {self.answers!r}")
        if not self.text.strip():
            raise InvalidInput(f"text of question {self.id!r} must not be blank, got {self.text!r}")
        if not self.answers or not all(isinstance(a, str) and a.strip() for a in self.answers):
            raise InvalidInput(f"answers of question {self.id!r} must be non-blank strings, got {self.answers!r}")


@dataclass(frozen=True, slots=True)
class Target:
    """What a challenger is asked to pose a question about: the answer it must have, and in how many searches."""

    answer: str
    hops: int
    aliases: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    """Questions that show the challenger what a good one looks like; their answers are other ones."""

    def __post_init__(self) -> None:
        if not isinstance(self.answer, str) or not self.answer.strip():
            raise InvalidInput(f"answer of a target must be a non-blank string, got {self.answer!r}")
        if self.hops < 1:
            raise InvalidInput(f"hops of target {self.answer!r} must be at least 1, got {self.hops!r}")


ActionKind = Literal["search", "open", "find", "answer", "question", "invalid"]


@dataclass(frozen=True, slots=True)
class Action:
    """What a seat did in one turn, read out of its text.

    `reason` says why an invalid action is invalid, or why a search (an opening, a finding) was not executed.
    """

    kind: ActionKind
    text: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one seat: what it wrote, what was read from it, and what came back."""

    text: str
    action: Action
    observation: str = ""
    passages: tuple[Passage, ...] = ()
    remark: str = ""
    """What the tool says of its result: "query_truncated", "no_terms", "unknown_title", "no_match", "page_cut"; or "".
    """


class View(NamedTuple):  # one is made at every step, and a tuple is made three times as fast as a frozen dataclass
    """All that one seat may see when it is its turn.

    A solver's view has the question and neither target nor answer; a challenger's has the target and no question.
    Skills are never here: a solver fetches them itself.
    """

    episode: str
    """Name of this attempt, unique among the attempts that are played side by side."""
    role: str
    seat: str
    turn: int
    """How many turns this seat has taken; 0 starts a new attempt."""
    turns_left: int
    question: str = ""
    target: str = ""
    hops: int = 0
    examples: tuple[str, ...] = ()
    """For a challenger: questions that show what a good one looks like; none is about its target."""
    observation: str = ""
    """What the seat's last turn brought; the empty string before the first."""
    transcript: str = ""
    """Everything so far: the seat's own texts and the observations, in order."""
    tools: tuple[str, ...] = ()
    """Tools beyond search that the rules give this seat: "open" and "find", or none."""
    opens_left: int = 0
    finds_left: int = 0


EndReason = Literal["", "answered", "posed", "turn_limit", "invalid_actions", "search_unavailable", "policy_stopped"]


class Standing(NamedTuple):
    """What a seat did last, and how it stands."""

    seat: str
    role: str
    last: Turn | None
    """Its last turn; None before the first."""
    end_reason: EndReason
    usable: bool
    """See `Trajectory`."""
    reward: float


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All turns of one seat in one round, in order, and how they ended.

    `usable` is False when the infrastructure failed: such an attempt is neither scored nor learned from.
    `output` is the answer of a solver or the question text of a challenger; None when there is none.
    """

    episode: str
    seat: str
    turns: tuple[Turn, ...]
    end_reason: EndReason
    output: str | None = None
    reward: float = 0.0
    usable: bool = True

    @property
    def role(self) -> str:
        """The seat's role: "challenger" or "solver"."""
        return self.seat.partition("_")[0]

    @property
    def queries(self) -> tuple[str, ...]:
        """Every query this seat sent to the search tool, in order."""
        searches = (turn.action for turn in self.turns if turn.action.kind == "search")
        return tuple(search.text for search in searches if not search.reason)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """Every passage this seat was shown, in order, repeats included."""
        return tuple(passage for turn in self.turns for passage in turn.passages)


@dataclass(frozen=True, slots=True)
class Round:
    """A settled round: what was asked, who tried, and what each seat earned.

    `rejection` names the validator that refused the question ("" when none did); a refused round has no solver
    trajectories and no solve rate.  `solve_rate` is None when no attempt could be scored.
    """

    id: str
    target: Target | None
    question: Question | None
    rejection: str
    challenger: Trajectory | None
    solvers: tuple[Trajectory, ...] = ()
    solve_rate: float | None = None
    rewards: dict[str, float] = field(default_factory=dict)
