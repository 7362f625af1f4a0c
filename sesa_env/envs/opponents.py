"""Who plays the seats that the learner does not: an opponent, given by name, by dotted path, or as an object.

    opponent = open_opponent("scripted")                       # a name in `OPPONENTS`
    opponent = open_opponent("my_package.players:make", {"depth": 3})
    texts = opponent.act([view, other_view])                   # one text per view, in order

An opponent is anything with that `act`: a rule, a policy, a frozen checkpoint, a human at a terminal.  The scripted
ones here need no model and are deterministic.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from sesa_env.errors import InvalidInput, UnknownName
from sesa_env.registry import OPPONENTS
from sesa_env.text import contains_answer
from sesa_env.types import CHALLENGER, View

_TITLE = re.compile(r"Doc 1\(Title: ([^()]+)(?: \([^()]*\))?\)")


@runtime_checkable
class Opponent(Protocol):
    """Plays seats of one role, any number of them side by side."""

    def act(self, views: Sequence[View]) -> list[str]:
        """Return one text per view, in order.  A view with turn 0 starts a new attempt."""
        ...


def open_opponent(opponent: str | Opponent, options: Mapping[str, Any] | None = None) -> Opponent:
    """Return the opponent: made with the options when a name or a path "module:factory" is given, else as it is.

    Raises:
        UnknownName: no opponent is registered under that name, or nothing is at that path.
        InvalidInput: what is given or made has no method `act`, or options come with an opponent that is made already.
    """
    made = opponent
    if isinstance(opponent, str):
        made = (_imported(opponent) if ":" in opponent else OPPONENTS.get(opponent))(**(options or {}))
    elif options:
        raise InvalidInput(f"opponent_options must be empty for an opponent that is made already, got {options!r}")
    if not isinstance(made, Opponent):
        raise InvalidInput(f"opponent must have a method act(views), got {made!r}")
    return made


def _imported(path: str) -> Callable[..., Any]:
    module, _, attribute = path.partition(":")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise UnknownName(f"no opponent at {path!r}: {error}") from error
    return factory


class TemplateChallenger:
    """Searches the target's name, then blanks the name out of a sentence that has it, and of the one after it.

    Of all such pairs it takes the longest, as the most telling.  The questions are crude ("Which name completes this:
    ___ is a town. It lies on the Isk."), but valid and mostly answerable: a whole round can be played without a model.
    """

    def act(self, views: Sequence[View]) -> list[str]:
        """Search first, then pose."""
        return [self._text(view) for view in views]

    def _text(self, view: View) -> str:
        if view.turn == 0:
            return f"<search>{view.target}</search>"
        prose = re.sub(r"</?information>|Doc \d+\(Title: [^)]*\)\)?", "", view.observation)
        if longest := max(_clozes(prose, view.target), key=len, default=""):
            return f"<question>Which name completes this: {longest}</question>"
        return f"<search>{view.target} {' '.join(['facts'] * view.turn)}</search>"


def _clozes(prose: str, target: str) -> Iterator[str]:
    """Yield each two sentences of a line, the first of which had the target's name."""
    for line in prose.splitlines():
        sentences = re.split(r"(?<=[.!?])\s+", line.strip())
        for first, second in zip(sentences, [*sentences[1:], ""], strict=True):
            blanked = re.sub(re.escape(target), "___", f"{first} {second}", flags=re.IGNORECASE).strip()
            if "___" in blanked and not contains_answer(blanked, target) and len(blanked.split()) > 3:
                yield blanked


class FirstPassageSolver:
    """Searches the question as it stands and answers with the title of the first passage, up to a bracket."""

    def act(self, views: Sequence[View]) -> list[str]:
        """Search first, then answer."""
        return [self._text(view) for view in views]

    def _text(self, view: View) -> str:
        if view.turn == 0 and view.turns_left > 1:
            return f"<search>{view.question}</search>"
        title = _TITLE.search(view.observation)
        return f"<answer>{title[1].strip() if title else 'unknown'}</answer>"


class ScriptedOpponent:
    """Plays either role: the challenger by a template, a solver by the first passage it finds."""

    def __init__(self) -> None:
        self._challenger = TemplateChallenger()
        self._solver = FirstPassageSolver()

    def act(self, views: Sequence[View]) -> list[str]:
        """Return one text per view, in order."""
        return [text for view in views for text in self._player(view).act([view])]

    def _player(self, view: View) -> Opponent:
        return self._challenger if view.role == CHALLENGER else self._solver
