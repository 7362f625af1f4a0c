"""A person at the terminal, at any seat.

    agent = HumanAgent()                                   # reads lines, prints what the seat may see
    env = gymnasium.make("SESA-Search-v0", role="challenger", opponent="agents.human:HumanAgent")

One line is one turn: `?` and a query searches; any other text answers, or poses the question.  A line with a tag of the
game in it (`<search>...`) is played as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sesa_env.types import CHALLENGER, View

_TAGS = ("<search>", "<answer>", "<question>")
_TOOLS = {"open": "<open>title</open> reads a page", "find": "<find>text</find> finds it in the page opened last"}


class HumanAgent:
    """Asks a person for each turn, one seat after the other.

    Args:
        read: returns the line that is typed after a prompt; it may raise EOFError when there is nobody to type.
        write: prints a text.
    """

    def __init__(self, *, read: Callable[[str], str] = input, write: Callable[[str], object] = print) -> None:
        self._read = read
        self._write = write

    def act(self, views: Sequence[View]) -> list[str]:
        """Show each view and return what the person makes of it; a blank line is asked for again.

        Raises:
            EOFError: the input has ended.
        """
        return [self._turn(view) for view in views]

    def _turn(self, view: View) -> str:
        self._write(_shown(view))
        line = ""
        while not line:
            line = self._read(f"{view.seat}> ").strip()
        return _action(line, role=view.role, tools=view.tools)


def _shown(view: View) -> str:
    if view.turn:
        return f"{view.observation.strip()}\n({view.turns_left} turns left)"
    what = "answer (or ?query to search)"
    if view.role == CHALLENGER:
        what = "your question (or ?query to search)"
        task = f"Ask for {view.target!r}, so that it takes {view.hops} searches to find."
    else:
        task = view.question
    tools = "".join(f"\n{_TOOLS[tool]}." for tool in view.tools)
    return f"{task}\nType {what}; {view.turns_left} turns left.{tools}"


def _action(line: str, *, role: str, tools: Sequence[str]) -> str:
    if any(tag in line for tag in (*_TAGS, *(f"<{tool}>" for tool in tools))):
        return line
    if line.startswith("?"):
        return f"<search>{line[1:].strip()}</search>"
    return f"<question>{line}</question>" if role == CHALLENGER else f"<answer>{line}</answer>"
