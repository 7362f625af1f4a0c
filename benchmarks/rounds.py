"""What a run played, as its `rounds.jsonl` keeps it: the rounds, the questions, and the failures.

    for step, round_, skill_ids in read_rounds(run / "rounds.jsonl"): ...
    past = past_questions(run / "rounds.jsonl")
    lost = run_failures(run / "rounds.jsonl")

The file keeps titles of passages but not the passages; their texts are read out of the observations, where they are cut
and neutralised as the policy saw them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from agents.selfplay import failures
from agents.tokens import TokenTrajectory
from sesa_env.errors import InvalidInput
from sesa_env.state import read_question, read_target
from sesa_env.text import question_key
from sesa_env.types import Action, Passage, Question, Round, Trajectory, Turn
from skill_memory.base import Failure
from skill_memory.executed import Past


class Played(NamedTuple):
    """A round, the step it was played in, and the skills that each attempt's prompt showed, by episode."""

    step: int
    round_: Round
    skill_ids: dict[str, tuple[str, ...]]


def describe_round(round_: Round, tokens: Mapping[str, TokenTrajectory]) -> dict[str, Any]:
    """Return a round as JSON, each attempt with the skills its prompt showed."""
    record = asdict(round_)
    for attempt in filter(None, [record["challenger"], *record["solvers"]]):
        shown = tokens.get(attempt["episode"])
        attempt["skill_ids"] = list(shown.skill_ids) if shown else []
        for turn in attempt["turns"]:
            turn["passages"] = [passage["title"] for passage in turn["passages"]]
    return record


def read_rounds(path: Path) -> Iterator[Played]:
    """Yield every round of a run, oldest first; a last line that a killed process left unfinished is passed over.

    Raises:
        InvalidInput: there is no such file, or a line is no round; the message has its number.
    """
    if not path.is_file():
        raise InvalidInput(f"a run must have a {path.name}, and there is none at {str(path)!r}")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _played(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput(f"{path}, line {number}: not a round ({error!r})") from error


def past_questions(path: Path) -> list[Past]:
    """Return the questions of a run's rounds that were scored, oldest first, each named by its `question_key`.

    A run that has played nothing yet has no file and no questions.
    """
    if not path.is_file():
        return []
    return [
        Past(Question(question_key(question.text), question.text, question.answers), rate)
        for _, round_, _ in read_rounds(path)
        if (question := round_.question) is not None and (rate := round_.solve_rate) is not None
    ]


def run_failures(path: Path) -> list[Failure]:
    """Return a run's failures as its memory was offered them, oldest first."""
    return [
        failure
        for step, round_, skill_ids in read_rounds(path)
        for failure in failures([round_], _as_tokens(skill_ids), step=step)
    ]


def _as_tokens(skill_ids: Mapping[str, tuple[str, ...]]) -> dict[str, TokenTrajectory]:
    """Return token records that hold nothing but the skills shown; what was sampled is not in the file."""
    return {
        episode: TokenTrajectory(episode, token_T=(), written_T=(), logp_T=(), prompt_length=0, skill_ids=ids)
        for episode, ids in skill_ids.items()
    }


def _played(record: dict[str, Any]) -> Played:
    step = record.pop("step")
    attempts = [*record["solvers"], *filter(None, [record["challenger"]])]
    skill_ids = {attempt["episode"]: tuple(attempt.pop("skill_ids")) for attempt in attempts}
    round_ = Round(
        **{
            **record,
            "target": read_target(record["target"]),
            "question": read_question(record["question"]),
            "challenger": _trajectory(record["challenger"]) if record["challenger"] else None,
            "solvers": tuple(map(_trajectory, record["solvers"])),
        }
    )
    return Played(step, round_, skill_ids)


def _trajectory(record: dict[str, Any]) -> Trajectory:
    return Trajectory(**{**record, "turns": tuple(map(_turn, record["turns"]))})


def _turn(record: dict[str, Any]) -> Turn:
    titles = record["passages"]
    shown = record["observation"].strip().removeprefix("<information>").removesuffix("</information>")
    if titles and record["action"]["kind"] in ("open", "find"):  # a page, which is shown as one text
        titles, lines = titles[:1], [shown]
    else:
        lines = shown.splitlines() if titles else []  # without passages it is a correction, or says that there are none
    passages = tuple(
        Passage(id=f"{rank}:{title}", title=title, text=line.removeprefix(f"Doc {rank}(Title: {title}) "))
        for rank, (title, line) in enumerate(zip(titles, lines, strict=True), start=1)
    )
    return Turn(**{**record, "action": Action(**record["action"]), "passages": passages})
