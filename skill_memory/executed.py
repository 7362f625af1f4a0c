"""Does a skill raise the solver's success?  Play with and without it, and see.

    exam = Exam(trial, past, size=4, seen={"q1"})
    evidence = exam(candidate)
    evidence.objection      # "" when the skill may enter

Three kinds of question are played: the failure the skill was written from ("own"), questions of the same kind that its
writer has not seen ("hidden"), and questions that every attempt used to solve ("past").  It may enter when own and
hidden together are solved more often with it, and none of the three is solved less often.  Without a hidden question
nothing is proved, and it may not enter.

A trial compares like with like: each question is played equally often with and without.  With few attempts chance is
large: the rule keeps a bad skill out more surely than it lets a good one in.
Source: VeriSkill's executable validation, carried over to search; its noisy form would be a sign test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sesa_env.errors import SearchUnavailable
from sesa_env.types import Question
from skill_memory.base import Failure
from skill_memory.relations import read_kind, read_relations
from skill_memory.skill import Skill


class Past(NamedTuple):
    """A question of an earlier step and the share of attempts that solved it; its id is its `question_key`."""

    question: Question
    solve_rate: float


class Tally(NamedTuple):
    """How often one question was solved: `attempts` times played without the skill, and as often with it.

    An attempt that could not be scored spoils the comparison, and then `attempts` is 0.
    """

    question_id: str
    attempts: int
    solved_without: int
    solved_with: int


class Trial(Protocol):
    """Plays questions with and without a skill; nothing is learned from it."""

    def __call__(self, skill: Skill, questions: Sequence[Question]) -> Sequence[Tally]:
        """Return a tally per question, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a trial came to: for each group its tallies."""

    groups: dict[str, tuple[Tally, ...]]

    @property
    def attempts(self) -> int:
        """How many attempts were played and scored, with the skill and without."""
        return 2 * sum(tally.attempts for tallies in self.groups.values() for tally in tallies)

    @property
    def figures(self) -> dict[str, list[int]]:
        """For each group: questions, attempts on each side, solved without, solved with."""
        return {name: _sums(tallies) for name, tallies in self.groups.items()}

    @property
    def objection(self) -> str:
        """Why the skill may not enter, with the figures; the empty string when it may."""
        if not self.groups["hidden"]:
            return "no hidden question of its kind"
        gained = {name: solved_with - solved for name, (_, _, solved, solved_with) in self.figures.items()}
        lost = [name for name, gain in gained.items() if gain < 0]
        if lost:
            return f"{lost[0]} questions are solved less often with it: {self}"
        return "" if gained["own"] + gained["hidden"] > 0 else f"it solves nothing more: {self}"

    def __str__(self) -> str:
        """Name each group with its figures, as "own 1/5 -> 2/5"."""
        rows = self.figures.items()
        return ", ".join(f"{name} {without}/{n} -> {with_skill}/{n}" for name, (_, n, without, with_skill) in rows)


def _sums(tallies: Sequence[Tally]) -> list[int]:
    counts = [(1, tally.attempts, tally.solved_without, tally.solved_with) for tally in tallies]
    return [sum(column) for column in zip((0, 0, 0, 0), *counts, strict=True)]


class Exam:
    """Puts candidates to the test, with the questions that suit each.

    Args:
        trial: plays.
        past: questions of earlier steps, oldest first.
        size: most hidden, and most past, questions for a candidate.
        seen: ids of the questions that the distiller saw in this pass; none of them is hidden.
    """

    def __init__(self, trial: Trial, past: Sequence[Past], *, size: int, seen: Collection[str]) -> None:
        self._trial = trial
        latest: dict[str, Past] = {}
        for item in reversed(past):
            latest.setdefault(item.question.id, item)
        self._past = list(latest.values())  # newest first, each as it was last played
        self._size = size
        self._seen = frozenset(seen)

    def __call__(self, skill: Skill, failure: Failure) -> Evidence:
        """Return how a skill fares that was written from this failure.

        Raises:
            SearchUnavailable: no question could be scored.
        """
        groups = self._choose(failure)
        if not groups["hidden"]:
            return Evidence(dict.fromkeys(groups, ()))
        questions = [question for group in groups.values() for question in group]
        tallies = {tally.question_id: tally for tally in self._trial(skill, questions)}
        if not any(tally.attempts for tally in tallies.values()):
            raise SearchUnavailable("no attempt of a trial could be scored")
        return Evidence({name: tuple(tallies[question.id] for question in group) for name, group in groups.items()})

    def _choose(self, failure: Failure) -> dict[str, list[Question]]:
        """Return the questions of each group; equal failures get equal questions."""
        own = Question(failure.question_id, failure.question, failure.answers)
        others = [item for item in self._past if item.question.id != own.id]
        is_near = _nearness(own.text)
        kin = [
            item.question
            for item in others
            if 0.0 < item.solve_rate < 1.0 and item.question.id not in self._seen and is_near(item.question.text)
        ]
        kin.sort(key=lambda question: -is_near(question.text))  # stable: among equals the newest first
        solved = [item.question for item in others if item.solve_rate == 1.0]
        return {"own": [own], "hidden": kin[: self._size], "past": solved[: self._size]}


def _nearness(text: str) -> Callable[[str], int]:
    """Return a function that says how alike in kind a question is: 2 if it asks for the same, 1 if in the same way."""
    kind, asked = read_kind(text), read_relations(text)[-1:]

    def near(other: str) -> int:
        if read_kind(other) != kind:
            return 0
        return 2 if asked and read_relations(other)[-1:] == asked else 1

    return near
