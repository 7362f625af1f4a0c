"""Several retrievers over one corpus as one, by reciprocal rank fusion: only ranks count, so scores need no scale.

A passage scores the sum of 1 / (60 + rank) over the parts that found it, ranks counted from 1.  Formula and constant
are those of G. Cormack, C. Clarke and S. Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
Learning Methods", SIGIR 2009.

    retriever = FusedRetriever([bm25, dense])
    retriever = RETRIEVERS.make("bm25+dense", corpus="atlas")        # or "fuse" with parts="bm25+dense"

The parts share no weights to tune, and the scores of a fusion say nothing across queries.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sesa_env.errors import IndexMismatch, InvalidInput
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval.base import Retriever, check_request, remarks_on, retriever_fingerprint
from sesa_env.types import Passage

CONSTANT = 60
"""How little the first places count for more than the next; the value of the paper."""
DEPTH = 100
"""Passages that each part is asked for, so that asking for fewer gives the beginning of the same list."""


class FusedRetriever:
    """Merges what its parts find; as safe for threads as they are.

    Args:
        parts: two or more retrievers over the same corpus.  Of passages with equal scores, that of the earlier part
            comes first.
        depth: passages that each part is asked for, at least; a request for more asks each part for as many.

    Raises:
        InvalidInput: there are fewer than two parts, or `depth` is below 1.
    """

    def __init__(self, parts: Sequence[Retriever], *, depth: int = DEPTH) -> None:
        if len(parts) < 2:
            raise InvalidInput(f"parts must be two retrievers or more, got {len(parts)}")
        if depth < 1:
            raise InvalidInput(f"depth must be at least 1, got {depth!r}")
        self._parts = tuple(parts)
        self._depth = depth

    @property
    def fingerprint(self) -> str:
        """Name of the parts, in order, and of the way they are merged."""
        parts = [part.fingerprint for part in self._parts]
        return retriever_fingerprint("", {"fused": parts, "constant": CONSTANT, "depth": self._depth})

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return up to `k` passages for each query, the highest sum of reciprocal ranks first.

        Raises:
            InvalidInput: as `Retriever.search`.
            IndexMismatch: two parts have different passages under one id, so they are over different corpora.
            SearchUnavailable: a part failed; what the others found is not passed off as the whole.
        """
        check_request(queries, k)
        found = [part.search(queries, max(self._depth, int(k))) for part in self._parts]
        return [_merged(ranked)[: int(k)] for ranked in zip(*found, strict=True)]

    @property
    def in_memory(self) -> bool:
        """Whether all parts are."""
        return all(getattr(part, "in_memory", False) for part in self._parts)

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Say which queries a part searches only in part, or no part has a term of."""
        of_parts = zip(*(remarks_on(part, queries) for part in self._parts), strict=True)
        return [_joint(remarks) for remarks in of_parts]

    def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            part.close()


def fused_retriever(corpus: str, index: str | None = None, *, parts: str = "bm25+dense") -> Retriever:
    """Make a fusion of named retrievers over a named corpus.

    Args:
        corpus: the name of the corpus (`sesa_env.corpora`).
        index: a folder with an index for each part, each in a folder of the part's name; None has each part make its
            own.
        parts: names of retrievers, joined by plus signs.

    Raises:
        InvalidInput: there are fewer than two parts.
        UnknownName: no retriever has that name.
        SesaError: whatever making a part raises.
    """
    names = parts.split("+")
    made = [RETRIEVERS.make(name, corpus=corpus, index=str(Path(index) / name) if index else None) for name in names]
    return FusedRetriever(made)


bm25_and_dense = partial(fused_retriever, parts="bm25+dense")
lucene_and_bm25 = partial(fused_retriever, parts="lucene+bm25")
lucene_and_dense = partial(fused_retriever, parts="lucene+dense")


def _merged(ranked: Sequence[Sequence[Passage]]) -> list[Passage]:
    passage_of: dict[str, Passage] = {}
    shares: dict[str, list[float]] = defaultdict(list)
    for passages in ranked:
        for rank, passage in enumerate(passages, start=1):
            _require_same(passage_of.setdefault(passage.id, passage), passage)
            shares[passage.id].append(1 / (CONSTANT + rank))
    score_of = {
        id: math.fsum(share) for id, share in shares.items()
    }  # exact, so the order of the sum cannot break ties
    best = sorted(passage_of.values(), key=lambda passage: -score_of[passage.id])
    return [Passage(id=p.id, title=p.title, text=p.text, score=score_of[p.id]) for p in best]


def _joint(remarks: Sequence[str]) -> str:
    if "query_truncated" in remarks:
        return "query_truncated"
    return "no_terms" if all(remark == "no_terms" for remark in remarks) else ""


def _require_same(first: Passage, second: Passage) -> None:
    if (first.title, first.text) != (second.title, second.text):
        raise IndexMismatch(f"the parts of a fusion must be over one corpus, and passage {first.id!r} is not the same")
