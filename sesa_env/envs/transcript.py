"""A round as a person likes to read it: seats, queries, titles of what was found, verdicts, solve rate, rewards.

    print(transcript(game))

It shows everything, the target and every answer included: it is for spectators, never for a policy.  What was written
comes from models and passages, so control characters are left out and long texts are cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from sesa_env.game import CHALLENGER_SEAT, Game
from sesa_env.types import CHALLENGER, Round, Trajectory, Turn

MAX_CHARS = 160
_VERBS = {"search": "searches", "open": "opens", "find": "looks for", "answer": "answers", "question": "poses"}


def transcript(game: Game) -> str:
    """Return the round so far, one line per event.  Seats that play one after another only ever add lines."""
    return "".join(f"{line}\n" for line in _round(game))


def _round(game: Game) -> Iterator[str]:
    yield from _opening(game)
    for seat in game.seats:
        trajectory = game.trajectory(seat)
        if trajectory.turns and seat != CHALLENGER_SEAT:
            yield seat
        for turn in trajectory.turns:
            yield from _turn(turn)
        if trajectory.end_reason:
            yield from _ending(game, trajectory)
    if game.phase == "settled":
        yield from _settlement(game.result)


def _opening(game: Game) -> Iterator[str]:
    if not game.seats:
        return
    view = game.view(game.seats[0])
    if view.role == CHALLENGER:
        hops = f"{view.hops} {'hop' if view.hops == 1 else 'hops'}"
        yield f"{view.seat} is to ask for {_plain(view.target)!r} in {hops}"
    else:
        yield f"the question: {_plain(view.question)}"


def _turn(turn: Turn) -> Iterator[str]:
    action = turn.action
    if action.kind == "invalid":
        yield _line("invalid", action.reason)
        return
    yield _line(_VERBS[action.kind], _plain(action.text))
    if turn.passages and action.kind == "find":
        yield _line("finds", f"{len(turn.passages)} {'passage' if len(turn.passages) == 1 else 'passages'}")
    elif turn.passages and action.kind == "open":
        yield _line("reads", _plain(turn.passages[0].title))
    elif turn.passages:
        yield _line("finds", _plain(" | ".join(passage.title for passage in turn.passages)))
    elif turn.observation:
        yield _line("finds", "nothing")


def _ending(game: Game, trajectory: Trajectory) -> Iterator[str]:
    if trajectory.end_reason not in ("answered", "posed"):
        yield _line("ends", trajectory.end_reason.replace("_", " "))
    if trajectory.role == CHALLENGER:
        refused = game.phase == "settled" and game.result.rejection
        yield _line("check", f"refused: {refused}" if refused else "passed")
    elif not trajectory.usable:
        yield _line("verdict", "not scored")
    else:
        yield _line("verdict", "right" if trajectory.reward > 0 else "wrong")


def _settlement(settled: Round) -> Iterator[str]:
    if settled.question and not settled.target:
        yield f"the answer: {_plain(settled.question.answers[0])}"
    if settled.solve_rate is not None:
        scored = [solver for solver in settled.solvers if solver.usable]
        right = sum(solver.reward > 0 for solver in scored)
        yield f"solve rate {settled.solve_rate:.2f}: {right} of {len(scored)} scored attempts"
    rewards = ", ".join(f"{seat} {reward:g}" for seat, reward in settled.rewards.items())
    yield f"rewards: {rewards or 'none'}"


def _line(what: str, text: str) -> str:
    return f"  {what:<9} {text}"


def _plain(text: str) -> str:
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 3]}..."
