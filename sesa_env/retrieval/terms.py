"""Turn text into search terms, the same way for what is indexed and for what is asked.

Compatibility forms are unified (NFKC), so composed and decomposed letters, full-width forms and ligatures meet; control
characters and halves of surrogate pairs vanish.  `terms` is the analyser of the `bm25` back end: words of letters,
digits and marks, case folded; every sign of a script written without spaces, and every pair of neighbours of such a
run; every pictograph.  Lucene has its own analyser and takes `normalise` and `capped` only.

    terms("Ångström's 2nd café 東京")   # ["ångström", "s", "2nd", "café", "東", "東京", "京"]
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

MAX_TERMS = 1024
"""Longest query that is searched as it is; of a longer one, the first so many distinct terms are."""

_MAX_TERM_CHARS = 255
"""Lucene's tokenizer cuts words here."""
_UNSEARCHABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\ufeff\ud800-\udfff]")
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)")
"""Runs of Han, kana and Hangul."""


def normalise(text: str) -> str:
    """Return text in compatibility form, with what no tokenizer should meet replaced by spaces."""
    return unicodedata.normalize("NFKC", _UNSEARCHABLE.sub(" ", text))


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order, repeats included."""
    spaced = normalise(text).casefold().translate(_SPACING)
    if not _UNSPACED.search(spaced):
        return spaced.split()
    return [term for word in spaced.split() for term in _split_unspaced(word)]


@lru_cache(maxsize=256)  # a query is searched, and then remarked on
def query_terms(query: str) -> tuple[str, ...]:
    """Return the terms of a query."""
    return tuple(terms(query))


def capped(query_terms: Sequence[str]) -> list[str]:
    """Return the terms of a query, or the first `MAX_TERMS` distinct ones when there are more than that."""
    if len(query_terms) <= MAX_TERMS:
        return list(query_terms)
    return [term[:_MAX_TERM_CHARS] for term in list(dict.fromkeys(query_terms))[:MAX_TERMS]]


def remark_on(query_terms: Sequence[str]) -> str:
    """Return what there is to say of a query of these terms, as `sesa_env.retrieval.base.Remarking` has it."""
    if not query_terms:
        return "no_terms"
    return "query_truncated" if len(query_terms) > MAX_TERMS else ""


def _split_unspaced(word: str) -> list[str]:
    found: list[str] = []
    for piece in filter(None, _UNSPACED.split(word)):
        if _UNSPACED.match(piece):
            found.extend(piece[start:stop] for start, stop in _spans(len(piece)))
        else:
            found.append(piece)
    return found


def _spans(length: int) -> list[tuple[int, int]]:
    """Spans of each sign of a run and, after it, of the sign with its neighbour."""
    return [(at, at + size) for at in range(length) for size in (1, 2) if at + size <= length]


class _Spacing(dict[int, str | None]):
    """A table for `str.translate` that fills itself: what stays, what becomes a space, what stands alone."""

    def __missing__(self, code: int) -> str | None:
        self[code] = self._spaced(code)
        return self[code]

    @staticmethod
    def _spaced(code: int) -> str | None:
        if code in _VARIATION_SELECTORS:
            return None
        category = unicodedata.category(chr(code))
        if category == "So":
            return f" {chr(code)} "
        return chr(code) if category[0] in "LMN" else " "


_SPACING = _Spacing()
