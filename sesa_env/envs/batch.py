"""How any number of round environments begin and step together: one search for all of them per tick.

    begun = begin_rounds([env], seeds=[0], options=None)     # (observation, info) of each
    stepped = take_turns([env], ["<search>...</search>"])    # (observation, reward, terminated, truncated, info)

A single environment begins as a batch of one, and steps by the same parts in the same order (`RoundEnv.step`), so that
the vector environment cannot differ from it.  All environments of a batch are made with the same arguments: the first
one's retriever and opponent serve them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from sesa_env.errors import CheckUnavailable, InvalidInput, SearchUnavailable
from sesa_env.game import Game, Move, advance
from sesa_env.validators import UNAVAILABLE

if TYPE_CHECKING:
    from sesa_env.envs.base import Info, Observation, RoundEnv

MAX_DRAWS = 50
"""How many targets in a row a challenging opponent may fail at before `reset` gives up."""


def begin_rounds(
    envs: Sequence[RoundEnv], *, seeds: Sequence[int | None], options: Mapping[str, Any] | None
) -> list[tuple[Observation, Info]]:
    """Begin a new round in each environment, played on until its learner is to act.

    Where a challenging opponent's question is refused, another target is drawn.  When anything raises, each environment
    still holds the round it had.

    Raises:
        InvalidInput: an option is unknown, or the opponent finds no question that passes.
        SearchUnavailable, CheckUnavailable: the search tool, or a check of the opponent's question, failed.
    """
    games = [env.new_game(seed=seed, options=options) for env, seed in zip(envs, seeds, strict=True)]
    for _ in range(MAX_DRAWS):
        if envs and envs[0].role is not None:
            let_opponents_play(envs, games)
        over = [number for number, game in enumerate(games) if game.phase == "settled"]
        if not over:
            return [env.hold(game) for env, game in zip(envs, games, strict=True)]
        refused = {games[number].rejection for number in over}
        _require_no_outage(refused)
        if options:
            raise InvalidInput(f"the opponent must pose a valid question about the target, got one refused: {refused}")
        for number in over:
            games[number] = envs[number].new_game()
    raise InvalidInput(
        f"the opponent must pose valid questions, got {MAX_DRAWS} refused in a row, the last by {refused}"
    )


def _require_no_outage(rejections: AbstractSet[str]) -> None:
    outages = sorted(rejection for rejection in rejections if rejection.endswith(UNAVAILABLE))
    if outages:
        error = SearchUnavailable if "search_unavailable" in outages else CheckUnavailable
        raise error(f"no question could be had of the opponent, the rounds were void: {', '.join(outages)}")


def take_turns(envs: Sequence[RoundEnv], actions: Sequence[str]) -> list[tuple[Observation, float, bool, bool, Info]]:
    """Take one turn of the learner in each environment, and then the opponents' until a learner is to act again.

    Raises:
        OutOfTurn: a round is over, or was never begun; no turn was taken.
        InvalidInput: an action is not a string, or is too long; no turn was taken.
    """
    if not envs:
        return []
    moves = [env.move(action) for env, action in zip(envs, actions, strict=True)]
    advance(moves, envs[0].search_tool())
    if envs[0].role is not None:  # without a role the learner plays all
        let_opponents_play(envs, [move.game for move in moves])
    return [env.outcome(move.seat) for env, move in zip(envs, moves, strict=True)]


def let_opponents_play(envs: Sequence[RoundEnv], games: Sequence[Game]) -> None:
    """Play the opponents' seats in each environment's game until no opponent is to act.

    Raises:
        InvalidInput: the opponent does not return one text that fits for each of its seats.
    """
    while True:
        seats = [(env, game, seat) for env, game in zip(envs, games, strict=True) for seat in env.opponent_seats(game)]
        if not seats:
            return
        texts = envs[0].opponent().act([game.view(seat) for _, game, seat in seats])
        if len(texts) != len(seats):
            raise InvalidInput(f"the opponent must return one text for each of {len(seats)} views, got {len(texts)}")
        for (env, _, seat), text in zip(seats, texts, strict=True):
            if text not in env.action_space:
                raise InvalidInput(f"the opponent at {seat} must write {env.action_space}, got {text!r:.80}")
        moves = [Move(game, seat, text) for (_, game, seat), text in zip(seats, texts, strict=True)]
        advance(moves, envs[0].search_tool())
