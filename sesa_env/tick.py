"""One tick of any number of games: every seat's move, with one call of the search tool for all that they ask of it.

advance([Move(game, seat, text) for seat, text in texts.items()], retriever)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sesa_env.errors import InvalidInput, SearchUnavailable
from sesa_env.reading import PageReader, PageRequest
from sesa_env.retrieval.base import Retriever, remarks_on

if TYPE_CHECKING:
    from sesa_env.game import Game, GameSettings
    from sesa_env.validators import ValidatorChain


class Move(NamedTuple):
    """The text that one seat of one game plays."""

    game: Game
    seat: str
    text: str


def advance(moves: Sequence[Move], retriever: Retriever) -> None:
    """Play moves of any number of games, with all their searches in one call of the retriever, and all pages in one.

    The questions that are posed are checked together too.

    When the retriever reports `SearchUnavailable`, every attempt that was waiting for that call fails (see
    `Game.fail`); any other exception is a bug and propagates.

    Raises:
        OutOfTurn: a seat may not act now.
        InvalidInput: the retriever did not return one list of passages per query, or the rules of a game let pages be
            opened, and the retriever is no `sesa_env.reading.PageReader`.
    """
    reading = [move for move in moves if move.game.settings.max_opens]
    if reading and not isinstance(retriever, PageReader):
        raise InvalidInput(
            f"the retriever must have pages where max_opens is above 0 (PagedRetriever), got {retriever!r}"
        )
    searches: dict[int, list[tuple[Move, str]]] = {}
    pages: list[tuple[Move, PageRequest]] = []
    for move in moves:
        request = move.game.submit(move.seat, move.text, check=False)
        if request is None:
            continue
        if isinstance(request, PageRequest):
            pages.append((move, request))
        else:
            searches.setdefault(move.game.settings.top_k, []).append((move, request))
    for top_k, asked in searches.items():
        _search(asked, retriever, top_k=top_k)
    if pages and isinstance(retriever, PageReader):
        _read(pages, retriever)
    posed = [move.game for move in moves if move.game.posed]
    if posed:
        _check(posed)


def _check(posed: Sequence[Game]) -> None:
    """Check the questions just posed, those of one chain at once, so that it can ask a model about all of them."""
    by_chain: dict[tuple[ValidatorChain, GameSettings], list[Game]] = {}
    for game in posed:
        by_chain.setdefault((game.validators, game.settings), []).append(game)
    for (chain, settings), asking in by_chain.items():
        refusals = chain.check_all([game.posed for game in asking if game.posed], settings)
        for game, refusal in zip(asking, refusals, strict=True):
            game.decide(refusal)


def _search(asked: Sequence[tuple[Move, str]], retriever: Retriever, *, top_k: int) -> None:
    queries = [query for _, query in asked]
    try:
        found, remarks = retriever.search(queries, top_k), remarks_on(retriever, queries)
    except SearchUnavailable as error:
        _fail(asked, error)
        return
    if len(found) != len(asked):
        raise InvalidInput(f"the retriever must return one list for each of {len(asked)} queries, got {len(found)}")
    for (move, _), passages, remark in zip(asked, found, remarks, strict=True):
        move.game.deliver(move.seat, passages, remark=remark)


def _read(asked: Sequence[tuple[Move, PageRequest]], reader: PageReader) -> None:
    try:
        readings = reader.read([request for _, request in asked])
    except SearchUnavailable as error:
        _fail(asked, error)
        return
    if len(readings) != len(asked):
        raise InvalidInput(f"the reader must return one reading for each of {len(asked)}, got {len(readings)}")
    for (move, _), reading in zip(asked, readings, strict=True):
        move.game.deliver_page(move.seat, reading)


def _fail(asked: Sequence[tuple[Move, object]], error: SearchUnavailable) -> None:
    for move, _ in asked:
        move.game.fail(move.seat, error)
