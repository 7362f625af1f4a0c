"""What every search back end offers: a list of queries in, a list of ranked passages for each out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

from sesa_env.errors import InvalidInput
from sesa_env.types import Passage


@runtime_checkable
class Retriever(Protocol):
    """Answers search queries over one corpus.

    `fingerprint` names corpus, analyser and settings: equal fingerprints give equal results for equal queries.

    A class attribute `in_memory = True` says that a search can neither hang nor be out of reach: it needs no deadline.
    """

    @property
    def fingerprint(self) -> str:
        """Short hexadecimal name of corpus, analyser and settings."""
        ...

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return up to `k` passages for each query, best first, in the order of the queries.

        A query with no searchable term gives an empty list.  Any string is safe, whatever its length or script.

        Raises:
            InvalidInput: `k` is below 1, or `queries` is a bare string.
            SearchUnavailable: the back end failed; never an empty list instead.
        """
        ...

    def close(self) -> None:
        """Free what the back end holds; closing twice is harmless."""
        ...


@runtime_checkable
class Remarking(Protocol):
    """A retriever that says what it does to a query: what would otherwise change results in silence."""

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Return for each query "query_truncated" if only a part of it is searched, "no_terms" if none is, else ""."""
        ...


def remarks_on(retriever: Retriever, queries: Sequence[str]) -> list[str]:
    """Return what the retriever remarks on each query; nothing if it makes no remarks."""
    if not hasattr(retriever, "remarks"):  # an `isinstance` of `Remarking` would take a tenth of a step
        return [""] * len(queries)
    distinct = list(dict.fromkeys(queries))  # attempts at a question often begin alike
    remark_of = dict(zip(distinct, retriever.remarks(distinct), strict=True))
    return [remark_of[query] for query in queries]


def check_request(queries: Sequence[str], k: int) -> None:
    """Refuse arguments of `Retriever.search` that break its rules; for implementers.

    Raises:
        InvalidInput: `queries` is a bare string or holds something else than strings, or `k` is no number from 1 up.
    """
    if isinstance(queries, str | bytes):
        raise InvalidInput(f"queries must be a list of strings, got one bare string {queries!r}")
    for query in queries:
        if not isinstance(query, str):
            raise InvalidInput(f"queries must be strings, got {query!r}")
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise InvalidInput(f"k must be a whole number from 1 up, got {k!r}")


def retriever_fingerprint(corpus_fingerprint: str, settings: Mapping[str, Any]) -> str:
    """Name a retriever by its corpus and every setting that changes its results; 16 hexadecimal digits."""
    identity = json.dumps({"corpus": corpus_fingerprint, **settings}, sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
