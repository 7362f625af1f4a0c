"""BM25 search without Java, over an index in memory, through bm25s.

The scores are Lucene's BM25 with k1 = 0.9 and b = 0.4 over titles and texts; the analyser is `sesa_env.retrieval.terms`
with English stop words and without stemming, so results are near Lucene's and not the same.

    retriever = Bm25Retriever.from_passages(passages, fingerprint)
    found = retriever.search(["who wrote Dune?"], k=3)[0]

It holds every passage in memory: good for some hundred thousand, not for all of Wikipedia.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sesa_env.corpora.jsonl import read_passages, row_from_passage
from sesa_env.errors import CorpusError, IndexMismatch, MissingDependency
from sesa_env.retrieval.base import check_request, retriever_fingerprint
from sesa_env.retrieval.terms import MAX_TERMS, capped, query_terms, remark_on, terms
from sesa_env.types import Passage

K1, B = 0.9, 0.4
SETTINGS: dict[str, Any] = {
    "backend": "bm25",
    "analyser": "words, signs and sign pairs of unspaced scripts, English stop words",
    "normalisation": "NFKC, case folded",
    "k1": K1,
    "b": B,
    "max_terms": MAX_TERMS,
}
_PASSAGES = "passages.jsonl"
_PROGRESS_EVERY = 2000
_GROUP = 64
"""Scores that share one maximum when the best are looked for."""


class Bm25Retriever:
    """Searches passages held in memory; any number of threads may use it at once.

    Args:
        model: a bm25s index over the terms of the passages.
        passages: the passages, in the order they were indexed.
        corpus_fingerprint: what names the corpus.
    """

    in_memory = True

    def __init__(self, model: Any, passages: Sequence[Passage], *, corpus_fingerprint: str) -> None:
        self.fingerprint = retriever_fingerprint(corpus_fingerprint, SETTINGS)
        self._model = model
        self._passages = passages

    @classmethod
    def from_passages(
        cls,
        passages: Iterable[Passage],
        corpus_fingerprint: str,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Bm25Retriever:
        """Index passages in memory.

        Args:
            passages: what to search; titles are searched with the texts.
            corpus_fingerprint: what names them.
            progress: called now and then with the number of passages done.

        Raises:
            MissingDependency: bm25s is not installed.
            CorpusError: there is no passage, or none has a searchable term.
        """
        passages = list(passages)
        return cls(_model(passages, progress), passages, corpus_fingerprint=corpus_fingerprint)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return up to `k` passages for each query, best first; ties go by the order of the corpus.

        Of a query of more than `MAX_TERMS` terms, the first so many distinct ones are searched.

        Raises:
            InvalidInput: as `Retriever.search`.
        """
        check_request(queries, k)
        found = {query: self._search(query, int(k)) for query in dict.fromkeys(queries)}
        return [list(found[query]) for query in queries]

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Say which queries are searched in part, or have no searchable term."""
        return [remark_on(_without_stop_words(query_terms(query))) for query in queries]

    def close(self) -> None:
        """Do nothing: the memory goes with the object."""

    def _search(self, query: str, k: int) -> list[Passage]:
        known = self._model.get_tokens_ids(capped(_without_stop_words(query_terms(query))))
        if not known:
            return []
        scores = self._model.get_scores_from_ids(known)
        return [self._hit(place, scores[place]) for place in _best(scores, k)]

    def _hit(self, place: int, score: float) -> Passage:
        passage = self._passages[place]
        return Passage(id=passage.id, title=passage.title, text=passage.text, score=float(score))


def libraries() -> dict[str, str]:
    """Return the versions an index depends on."""
    _bm25s()
    return {"bm25s": version("bm25s")}


def open_folder(folder: Path, corpus_fingerprint: str) -> Bm25Retriever:
    """Return a retriever over a folder that `write_index` filled.

    Raises:
        MissingDependency: bm25s is not installed.
        IndexMismatch: a file of the index is missing or damaged.
    """
    bm25s = _bm25s()
    try:
        model = bm25s.BM25.load(folder, show_progress=False)
        passages = list(read_passages(folder / _PASSAGES))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IndexMismatch(f"the bm25s index at {str(folder)!r} is damaged; build it again: {error}") from error
    if len(passages) != model.scores["num_docs"]:
        raise IndexMismatch(
            f"the bm25s index at {str(folder)!r} is over {model.scores['num_docs']} passages and has {len(passages)}; "
            "build it again"
        )
    return Bm25Retriever(model, passages, corpus_fingerprint=corpus_fingerprint)


def write_index(passages: Iterable[Passage], folder: Path, progress: Callable[[int], None] | None = None) -> int:
    """Index passages into a folder and return how many.

    Raises:
        MissingDependency: bm25s is not installed.
        CorpusError: as `Bm25Retriever.from_passages`.
    """
    passages = list(passages)
    _model(passages, progress).save(folder, show_progress=False)
    with (folder / _PASSAGES).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row_from_passage(passage)) + "\n" for passage in passages)
    return len(passages)


def _model(passages: Sequence[Passage], progress: Callable[[int], None] | None) -> Any:
    bm25s = _bm25s()
    number_of: dict[str, int] = {}
    ids = [
        [
            number_of.setdefault(term, len(number_of))
            for term in _without_stop_words(terms(f"{passage.title}\n{passage.text}"))
        ]
        for passage in _counted(passages, progress)
    ]
    if not number_of:
        raise CorpusError(f"none of the {len(passages)} passages has a searchable term")
    model = bm25s.BM25(k1=K1, b=B, method="lucene")
    model.index((ids, number_of), create_empty_token=False, show_progress=False)
    return model


def _counted(passages: Sequence[Passage], progress: Callable[[int], None] | None) -> Iterator[Passage]:
    for count, passage in enumerate(passages, start=1):
        yield passage
        if progress and (count % _PROGRESS_EVERY == 0 or count == len(passages)):
            progress(count)


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the places of the `k` best scores above zero, best first, equal ones in order of place."""
    bound = _bound(scores, k)
    places = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
    if len(places) > k:
        least = np.partition(scores[places], -k)[-k]
        places = places[scores[places] >= least]
    return places[np.argsort(-scores[places], kind="stable")][:k]


def _bound(scores: np.ndarray, k: int) -> float:
    """Return a number that at least `k` scores reach: the k-th best of the maxima of groups, which is quick to find."""
    groups = len(scores) // _GROUP
    if groups < k:
        return 0.0
    maxima = scores[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
    return float(np.partition(maxima, -k)[-k])


def _without_stop_words(found: Iterable[str]) -> list[str]:
    stop_words = _stop_words()
    return [term for term in found if term not in stop_words]


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(_bm25s().stopwords.STOPWORDS_EN)


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingDependency("the retriever 'bm25' needs bm25s: pip install 'sesa-env[bm25]'") from error
    return bm25s
