"""Whole pages beside passages: open one by its title, and find a text in it.

A search returns pieces.  A page is all passages that share a title, in the order of the corpus.

    pages = PageStore("atlas")
    page = pages.open("Nile")                  # its passages
    pages.find("delta", page="Nile")           # those of them that have the text
    tool = PagedRetriever(retriever, pages)    # a search tool for games whose rules let pages be opened

It holds every passage of the corpus in memory, ranks nothing, and keeps no budget: that is for the rules of the game.
Any number of threads may read at once.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from sesa_env import corpora
from sesa_env.errors import InvalidInput, UnknownName
from sesa_env.reading import PageRequest, Reading
from sesa_env.retrieval.base import Retriever, remarks_on
from sesa_env.retrieval.terms import normalise
from sesa_env.types import Passage

_NEIGHBOURS = 200
"""Titles before and after a wrong one, in alphabetical order, that are compared with it: all would take seconds."""


class PageStore:
    """The pages of a corpus, by title.

    A title is found as it is written; failing that, whatever the case, accents' encoding and spacing, if only one page
    is called so.  Passages without a title are on no page.

    Args:
        corpus: the name of a corpus (`sesa_env.corpora`), or its passages.

    Raises:
        InvalidInput, CorpusError: as `sesa_env.corpora.load_passages`.
    """

    def __init__(self, corpus: str | Iterable[Passage]) -> None:
        passages = corpora.load_passages(corpus)[0] if isinstance(corpus, str) else corpus
        self._pages: dict[str, list[Passage]] = defaultdict(list)
        self._titles: dict[str, list[str]] = defaultdict(list)
        for passage in passages:
            if passage.title and passage.title not in self._pages:
                self._titles[_folded(passage.title)].append(passage.title)
            if passage.title:
                self._pages[passage.title].append(passage)
        self._pages.default_factory = self._titles.default_factory = None  # reading adds nothing
        self._alphabet = sorted(self._titles)

    def __len__(self) -> int:
        return len(self._pages)

    def open(self, title: str) -> list[Passage]:
        """Return the passages of a page, in order.

        Raises:
            UnknownName: there is no page of that title, or there are several that differ in case or spacing only; the
                message names near titles.
        """
        found = self._title(title)
        if found is None:
            near = self.near(title)
            several = _folded(title) in self._titles
            what = f"several pages are called {title!r}: " if several else f"there is no page titled {title!r}; near: "
            raise UnknownName((what + ", ".join(map(repr, near))).removesuffix("; near: "))
        return list(self._pages[found])

    def find(self, text: str, page: str) -> list[Passage]:
        """Return the passages of a page that contain a text, whatever its case and spacing; none is an empty list.

        Raises:
            InvalidInput: the text is blank.
            UnknownName: as `open`.
        """
        wanted = _folded(text)
        if not wanted:
            raise InvalidInput(f"text must not be blank, got {text!r}")
        return [passage for passage in self.open(page) if wanted in _folded(passage.text)]

    def near(self, title: str) -> list[str]:
        """Return the titles that differ from this one in case or spacing only, or up to three that begin alike."""
        wanted = _folded(title)
        if wanted in self._titles:
            return list(self._titles[wanted])
        place = bisect(self._alphabet, wanted)
        around = self._alphabet[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS]
        return [self._titles[name][0] for name in get_close_matches(wanted, around, n=3)]

    def read(self, requests: Sequence[PageRequest]) -> list[Reading]:
        """Answer what games ask of pages; see `sesa_env.reading.PageReader`."""
        return [self._read(request) for request in requests]

    def _read(self, request: PageRequest) -> Reading:
        title = self._title(request.title)
        if title is None:
            return Reading(near=() if request.find else tuple(self.near(request.title)))
        if not request.find:
            return Reading(tuple(self._pages[title]))
        return Reading(tuple(self.find(request.find, title)) if _folded(request.find) else ())

    def _title(self, title: str) -> str | None:
        """Return the title as the corpus writes it, or None where none or several are meant."""
        if title in self._pages:
            return title
        same = self._titles.get(_folded(title), [])
        return same[0] if len(same) == 1 else None


class PagedRetriever:
    """A retriever, and the pages of its corpus: the search tool of a game whose rules let pages be opened.

    Args:
        retriever: what to search; closed with this one.
        pages: what to read.
    """

    def __init__(self, retriever: Retriever, pages: PageStore) -> None:
        self._retriever = retriever
        self._pages = pages

    @property
    def fingerprint(self) -> str:
        """The retriever's: pages change no search, and come from the same corpus."""
        return self._retriever.fingerprint

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return what the retriever finds; raises as it does."""
        return self._retriever.search(queries, k)

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Return what the retriever remarks."""
        return remarks_on(self._retriever, queries)

    def read(self, requests: Sequence[PageRequest]) -> list[Reading]:
        """Answer what games ask of pages; see `sesa_env.reading.PageReader`."""
        return self._pages.read(requests)

    def close(self) -> None:
        """Close the retriever."""
        self._retriever.close()


def _folded(text: str) -> str:
    return " ".join(normalise(text).casefold().split())
