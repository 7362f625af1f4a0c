"""Whole pages beside passages: open one by its title, and find a text in it.

A search returns pieces.  A page is all passages that share a title, in the order of the corpus.

    pages = PageStore("atlas")
    page = pages.open("Nile")                  # its passages
    pages.find("delta", page="Nile")           # those of them that have the text

It holds every passage of the corpus in memory, ranks nothing, and keeps no budget: that is for the rules of the game.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from difflib import get_close_matches

from sesa_env import corpora
from sesa_env.errors import InvalidInput, UnknownName
from sesa_env.retrieval.terms import normalise
from sesa_env.types import Passage


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

    def __len__(self) -> int:
        return len(self._pages)

    def open(self, title: str) -> list[Passage]:
        """Return the passages of a page, in order.

        Raises:
            UnknownName: there is no page of that title, or there are several that differ in case or spacing only; the
                message names near titles.
        """
        return list(self._pages[self._title(title)])

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

    def _title(self, title: str) -> str:
        if title in self._pages:
            return title
        same = self._titles.get(_folded(title), [])
        if len(same) == 1:
            return same[0]
        if same:
            raise UnknownName(f"several pages are called {title!r}: {', '.join(map(repr, same))}")
        near = [self._titles[name][0] for name in get_close_matches(_folded(title), self._titles, n=3)]
        raise UnknownName(f"there is no page titled {title!r}" + (f"; near: {', '.join(map(repr, near))}" * bool(near)))


def _folded(text: str) -> str:
    return " ".join(normalise(text).casefold().split())
