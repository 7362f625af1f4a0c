"""Two tools that the rules may give next to search: open a page by its title, and find a text in the page opened last.

A game asks with a `PageRequest`, a `PageReader` answers many of them in one call with a `Reading` each, and
`render_reading` makes of it what a policy reads.

    [reading] = reader.read([PageRequest("Nile")])
    text, remark = render_reading(reading, PageRequest("Nile"), limits)

That no page has a title, or that a page lacks a text, is an answer like any other; only a reader that fails raises.
`sesa_env.retrieval.pages` has the reader over a corpus; what may be opened how often is for the rules of the game.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from sesa_env.retrieval.terms import normalise
from sesa_env.text import cut_at_word, neutralise, one_line
from sesa_env.types import Passage

_NO_PAGE = "No page has this title."
_NO_MATCH = "The page does not have this text."
_NEAR_TITLE_CHARS = 100


class PageRequest(NamedTuple):
    """A page to read by its title: all of it, or of a text to find, the passages that have it."""

    title: str
    find: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a page has: its passages, or those with the text; and if there is no such page, titles near to its."""

    passages: tuple[Passage, ...] = ()
    near: tuple[str, ...] = ()


@runtime_checkable
class PageReader(Protocol):
    """A search tool whose pages can be read, too."""

    def read(self, requests: Sequence[PageRequest]) -> list[Reading]:
        """Return a reading for each request, in order; one without passages where there is no such page or text.

        Raises:
            SearchUnavailable: the pages are out of reach; never an empty reading instead.
        """
        ...


class Limits(NamedTuple):
    """How much of a reading is shown."""

    page_chars: int
    """Characters of an opened page."""
    passage_chars: int
    """Characters of a title, and around a text that was found."""
    matches: int
    """Passages in which a text was found."""


def render_reading(
    reading: Reading, request: PageRequest, limits: Limits, *, tools: tuple[str, ...]
) -> tuple[str, str]:
    """Return a reading as a policy reads it, neutralised, and a remark for the record: "" when all of it is shown.

    What is cut says so, with how much there is.
    """
    if request.find:
        return _matches(reading, request.find, limits, tools) if reading.passages else (_NO_MATCH, "no_match")
    if reading.passages:
        return _page(reading.passages, limits, tools)
    near = " | ".join(one_line(title, _NEAR_TITLE_CHARS, tools=tools) for title in reading.near[:3])
    return (f"{_NO_PAGE} Near titles: {near}" if near else _NO_PAGE), "unknown_title"


def longest_reading(limits: Limits) -> int:
    """Return an upper bound of the characters that `render_reading` returns."""
    page = limits.passage_chars + limits.page_chars
    matches = limits.matches * (2 * limits.passage_chars + 50)
    return max(page, matches, 3 * _NEAR_TITLE_CHARS) + 200


def excerpt(text: str, wanted: str, max_chars: int) -> str:
    """Return `text` in one line if it is that short, else the part of it (in compatibility form) around `wanted`."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    line = " ".join(normalise(text).split())
    if len(line) <= max_chars:  # invisible characters have gone, perhaps all there was
        return line
    first, last = _place(line, wanted)
    room = max(1, max_chars - 2)  # for an ellipsis at either end
    start = max(0, min(first - max(0, room - (last - first)) // 2, len(line) - room))
    ends = ["…" if cut and max_chars > 2 else "" for cut in (start > 0, start + room < len(line))]
    return line[start : start + room].join(ends)


def _page(passages: Sequence[Passage], limits: Limits, tools: tuple[str, ...]) -> tuple[str, str]:
    title = one_line(passages[0].title, limits.passage_chars, tools=tools)
    whole = "\n".join(neutralise(" ".join(passage.text.split()), tools=tools) for passage in passages)
    shown = cut_at_word(whole, limits.page_chars)
    if shown == whole:
        return f"Page(Title: {title}) {whole}", ""
    return f"Page(Title: {title}) {shown}\n[cut: the page has {len(whole)} characters]", "page_cut"


def _matches(reading: Reading, wanted: str, limits: Limits, tools: tuple[str, ...]) -> tuple[str, str]:
    lines = [
        f"Doc {rank}(Title: {one_line(passage.title, limits.passage_chars, tools=tools)}) "
        f"{neutralise(excerpt(passage.text, wanted, limits.passage_chars), tools=tools)}"
        for rank, passage in enumerate(reading.passages[: limits.matches], start=1)
    ]
    if len(lines) == len(reading.passages):
        return "\n".join(lines), ""
    return "\n".join([*lines, f"[cut: {len(reading.passages)} passages have this text]"]), "page_cut"


def _place(line: str, wanted: str) -> tuple[int, int]:
    """Return where the first match of `wanted` begins and ends in a normalised line, whatever the case and spacing."""
    folded = [character.casefold() for character in line]  # some become two or three characters
    origin = [place for place, letters in enumerate(folded) for _ in letters]
    text = " ".join(normalise(wanted).casefold().split())
    start = max(0, "".join(folded).find(text))
    return origin[start], origin[min(start + max(1, len(text)), len(origin)) - 1] + 1
