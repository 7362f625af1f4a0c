"""Play rounds in lock-step until all are settled.

One loop for scripted agents, language models and people: each tick asks every role's agent for its seats' texts, and
sends all their searches to the retriever in one call.  It knows nothing of models, rewards or memory.

    rounds = play(games, {"challenger": challenger, "solver": solver}, retriever)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agents.base import Agent
from sesa_env.game import Game, Move, advance
from sesa_env.retrieval.base import Retriever
from sesa_env.types import Round


def play(
    games: Sequence[Game],
    agents: Mapping[str, Agent],
    retriever: Retriever,
    *,
    on_tick: Callable[[], None] = lambda: None,
) -> list[Round]:
    """Play games that have begun to their end and return their rounds, in order.

    Args:
        games: begun by `pose` or `ask`, with different ids.
        agents: who plays each role.
        retriever: answers all searches.
        on_tick: called after every tick, for progress bars.
    """
    while any(game.active for game in games):
        advance([move for role, agent in agents.items() for move in _moves(games, role, agent)], retriever)
        on_tick()
    return [game.result for game in games]


def _moves(games: Sequence[Game], role: str, agent: Agent) -> list[Move]:
    seats = [(game, seat) for game in games for seat in game.active if seat.startswith(role)]
    if not seats:
        return []
    texts = agent.act([game.view(seat) for game, seat in seats])
    moves = []
    for (game, seat), text in zip(seats, texts, strict=True):
        if text is None:
            game.stop(seat)
        else:
            moves.append(Move(game, seat, text))
    return moves
