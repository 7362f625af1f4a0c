"""BM25 search over a Lucene index, through Pyserini.

The index is read by Anserini's searcher inside this process, with the analyser and the BM25 settings that Pyserini has
by default: English stop words, Porter stemming, k1 = 0.9, b = 0.4, every word of the query optional, no query syntax.

    retriever = open_index(Path("wiki-index"))              # sesa_env.retrieval.index
    passages = retriever.search(["who wrote Dune?"], k=3)[0]

Making a retriever starts no Java; the first search does.  What runs is the Java class that Pyserini's `LuceneSearcher`
wraps, reached through Pyserini's bridge: importing the wrapper would load torch and build an OpenAI client first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from sesa_env.corpora.jsonl import contents_of, passage_from_row, row_from_passage
from sesa_env.errors import BackendUnavailable, CorpusError, IndexMismatch, SearchUnavailable, SesaError
from sesa_env.retrieval import jvm
from sesa_env.retrieval.base import check_request, retriever_fingerprint
from sesa_env.retrieval.terms import MAX_TERMS, capped, normalise, query_terms, remark_on
from sesa_env.types import Passage

K1, B = 0.9, 0.4
SETTINGS: dict[str, Any] = {
    "backend": "lucene",
    "analyser": "DefaultEnglishAnalyzer, Porter stemming, English stop words",
    "normalisation": "NFKC",
    "k1": K1,
    "b": B,
    "max_terms": MAX_TERMS,
}
THREADS = 2
"""Java threads that share the queries of one call."""
_QUERIES_AT_ONCE = 256
"""Bound on the hits that are alive in Java at the same time."""
_PASSAGES_AT_ONCE = 2000
_SHOWN = "shown"
"""Field of a stored passage that holds its contents as the corpus has them, where indexing needed them normalised."""

T = TypeVar("T")


class PyseriniRetriever:
    """Searches a Lucene index; made in one thread or process, usable in any.

    A pickled copy carries the path only and opens the index again where it is used.

    Args:
        folder: a Lucene index that stores passages raw, in the form `sesa_env.corpora.jsonl` reads.
        corpus_fingerprint: what names the corpus that was indexed.
        heap: upper bound of the Java machine's memory ("4g"); None takes the default, or the machine that runs.

    Raises:
        MissingDependency: Pyserini is not installed.
        BackendUnavailable: there is no Java that fits.
        IndexMismatch: there is no such folder.
    """

    def __init__(self, folder: Path, *, corpus_fingerprint: str, heap: str | None = None) -> None:
        jvm.check_java()
        if not folder.is_dir():
            raise IndexMismatch(f"there is no Lucene index at {str(folder)!r}")
        self.fingerprint = retriever_fingerprint(corpus_fingerprint, SETTINGS)
        self._folder = folder
        self._heap = heap
        self._searcher: Any = None

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return up to `k` passages for each query, best first; ties go by passage id.

        Of a query of more than `MAX_TERMS` terms, the first so many distinct ones are searched.

        Raises:
            InvalidInput: as `Retriever.search`.
            BackendUnavailable: Java does not start, or was started before this process was forked.
            IndexMismatch: the index cannot be opened by this version of Lucene, or is damaged.
            SearchUnavailable: Lucene failed.
        """
        check_request(queries, k)
        jvm.start(self._heap)
        wanted = [_bounded(query) for query in queries]
        found: dict[str, list[Passage]] = {}
        for chunk in _chunks(dict.fromkeys(wanted), _QUERIES_AT_ONCE):
            found.update(zip(chunk, jvm.run(self._search, chunk, int(k)), strict=True))
        return [list(found[query]) for query in wanted]

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Say which queries are searched in part, or have no term; one of stop words alone goes unremarked."""
        return [remark_on(query_terms(query)) for query in queries]

    def close(self) -> None:
        """Let go of the index; a later search opens it again."""
        searcher, self._searcher = self._searcher, None
        if searcher is not None and not jvm.forked():
            jvm.run(searcher.close)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_searcher": None}

    def _search(self, queries: list[str], k: int) -> list[list[Passage]]:
        searcher = self._opened()
        with _java_errors(SearchUnavailable, f"Lucene failed on {len(queries)} queries"):
            hits = _hits(searcher, queries, min(k, searcher.get_total_num_docs()))
            return [[_passage(hit) for hit in found] for found in hits]

    def _opened(self) -> Any:
        if self._searcher is None:
            self._searcher = _open(self._folder)
        return self._searcher


def libraries() -> dict[str, str]:
    """Return the versions an index depends on, without starting Java."""
    return {"anserini": jvm.pyserini_jar().name.split("-")[1], "pyserini": version("pyserini")}


def open_folder(folder: Path, corpus_fingerprint: str) -> PyseriniRetriever:
    """Return a retriever over a folder that `write_index` filled."""
    return PyseriniRetriever(folder, corpus_fingerprint=corpus_fingerprint)


def write_index(passages: Iterable[Passage], folder: Path, progress: Callable[[int], None] | None = None) -> int:
    """Index passages into a folder and return how many; titles are searched with the texts, and both are stored.

    Args:
        passages: read once, a block at a time.
        folder: where the index goes; made if need be.
        progress: called after each block with the number of passages done.

    Raises:
        MissingDependency: Pyserini is not installed.
        BackendUnavailable: there is no Java that fits, or Lucene cannot write.
        CorpusError: Lucene did not take every passage.
    """
    jvm.start()
    count = 0
    indexer = jvm.run(_indexer, folder)
    try:
        for chunk in _chunks(passages, _PASSAGES_AT_ONCE):
            jvm.run(_add, indexer, [_raw(passage) for passage in chunk])
            count += len(chunk)
            if progress:
                progress(count)
    finally:
        jvm.run(_close_indexer, indexer)
    kept = jvm.run(_count, folder)
    if kept != count:
        raise CorpusError(f"Lucene indexed {kept} of {count} passages: are there some without title and text?")
    return count


def _indexer(folder: Path) -> Any:
    from pyserini.index.lucene import LuceneIndexer

    with _java_errors(BackendUnavailable, f"Lucene cannot write to {str(folder)!r}"):
        return LuceneIndexer(args=["-index", str(folder), "-storeRaw"], threads=THREADS)


def _add(indexer: Any, raw: list[str]) -> None:
    with _java_errors(BackendUnavailable, "Lucene cannot write the index"):
        indexer.add_batch_raw(raw)


def _close_indexer(indexer: Any) -> None:
    with _java_errors(BackendUnavailable, "Lucene cannot finish the index"):
        indexer.close()


def _count(folder: Path) -> int:
    searcher = _open(folder)
    count: int = searcher.get_total_num_docs()
    searcher.close()
    return count


def _open(folder: Path) -> Any:
    from pyserini.pyclass import autoclass

    with _java_errors(IndexMismatch, f"Lucene cannot open the index at {str(folder)!r}; build it again"):
        searcher = autoclass("io.anserini.search.SimpleSearcher")(str(folder))
        searcher.set_bm25(K1, B)
        return searcher


def _raw(passage: Passage) -> str:
    """Return the JSON that Lucene stores."""
    contents = contents_of(passage)
    row = {**row_from_passage(passage), "contents": normalise(contents)}
    return json.dumps(row if row["contents"] == contents else {**row, _SHOWN: contents})


def _hits(searcher: Any, queries: list[str], k: int) -> list[Any]:
    """Return the Java hits of each query; one query alone is not worth a pool of threads."""
    from pyserini.pyclass import JArrayList

    if len(queries) == 1:
        return [searcher.search(queries[0], k)]
    listed, places = JArrayList(), JArrayList()
    for place, query in enumerate(queries):
        listed.add(query)
        places.add(str(place))
    answers = searcher.batch_search(listed, places, k, THREADS)
    hits = {int(answer.getKey()): answer.getValue() for answer in answers.entrySet().toArray()}
    if len(hits) != len(queries):  # the batch call prints what went wrong in its threads, and goes on
        raise SearchUnavailable(f"Lucene answered {len(hits)} of {len(queries)} queries")
    return [hits[place] for place in range(len(queries))]


def _passage(hit: Any) -> Passage:
    raw = hit.lucene_document.get("raw")
    if raw is None:
        raise IndexMismatch("the Lucene index does not store its passages; build it again with -storeRaw")
    row = json.loads(raw)
    row["contents"] = row.pop(_SHOWN, row.get("contents"))
    stored = passage_from_row(row, where=f"passage {hit.docid!r} of the Lucene index")
    return Passage(id=stored.id, title=stored.title, text=stored.text, score=float(hit.score))


def _bounded(query: str) -> str:
    """Return a query normalised and of bounded length."""
    found = query_terms(query)
    return normalise(query) if len(found) <= MAX_TERMS else " ".join(capped(found))


@contextmanager
def _java_errors(kind: type[SesaError], message: str) -> Iterator[None]:
    """Turn an exception of Java into one of ours that says what was being done."""
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        raise kind(f"{message}: {error.innermessage or error.classname}") from error


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
