"""A cache on disk before any retriever: what was searched once is read back, in this process or another.

A result is kept under the retriever's fingerprint, the query letter for letter, and k, so that another corpus, analyser
or encoder never answers.  One SQLite file serves any number of processes and threads.

    retriever = CachedRetriever(lucene, cache_dir("searches") / "searches.sqlite3")
    retriever.search(["who wrote Dune?"], k=3)
    retriever.statistics()                                   # Statistics(hits=0, misses=1)

A failed search is not kept.  The file grows with every new query; deleting it costs time only.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

from sesa_env.errors import IndexMismatch, SearchUnavailable
from sesa_env.retrieval.base import Retriever, check_request, remarks_on
from sesa_env.types import Passage

SCHEMA = 1
"""Raise it whenever the table or a row changes meaning."""
_TABLE = """
create table if not exists results (
    fingerprint text not null, query blob not null, k integer not null, passages text not null,
    primary key (fingerprint, query, k)
) without rowid
"""
_PATIENCE_S = 30.0
"""How long one process waits for another to finish writing."""


class Statistics(NamedTuple):
    """Queries answered from the cache, and queries that were not; a repeated one counts each time."""

    hits: int
    misses: int


class CachedRetriever:
    """Answers from a file what was asked before, and asks the retriever for the rest, in one call.

    Args:
        retriever: what to search when the cache has no answer; closed with this one.
        path: the file, made if need be; many retrievers and processes may share it.

    Raises:
        IndexMismatch: the file is damaged, of another schema, or no cache; the message names it.
        SearchUnavailable: the file cannot be opened or made.
    """

    def __init__(self, retriever: Retriever, path: Path) -> None:
        self._retriever = retriever
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._hits = self._misses = 0
        with self._lock:
            self._connected()

    @property
    def fingerprint(self) -> str:
        """The retriever's: its results are not changed."""
        return self._retriever.fingerprint

    def statistics(self) -> Statistics:
        """Return how often the cache had the answer since this object was made."""
        return Statistics(self._hits, self._misses)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return what the retriever returns, from the cache where it can.

        Raises:
            InvalidInput: as `Retriever.search`.
            IndexMismatch: the file is damaged; the message names it.
            SearchUnavailable: the retriever failed, or the file cannot be read or written.
        """
        check_request(queries, k)
        k, fingerprint = int(k), self._retriever.fingerprint
        distinct = list(dict.fromkeys(queries))
        found = self._read(fingerprint, distinct, k)
        missing = [query for query in distinct if query not in found]
        if missing:
            new = dict(zip(missing, self._retriever.search(missing, k), strict=True))
            self._write(fingerprint, new, k)
            found |= new
        with self._lock:
            misses = sum(query in set(missing) for query in queries)
            self._misses += misses
            self._hits += len(queries) - misses
        return [list(found[query]) for query in queries]

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Return what the retriever remarks."""
        return remarks_on(self._retriever, queries)

    def close(self) -> None:
        """Close the file and the retriever; a later search opens both again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._process == os.getpid():
                connection.close()
        self._retriever.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"retriever": self._retriever, "path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["retriever"], state["path"])  # type: ignore[misc]

    def _read(self, fingerprint: str, queries: Sequence[str], k: int) -> dict[str, list[Passage]]:
        found: dict[str, list[Passage]] = {}
        with self._lock, self._file_errors():
            connection = self._connected()
            for query in queries:
                row = connection.execute(
                    "select passages from results where fingerprint = ? and query = ? and k = ?",
                    (fingerprint, _key(query), k),
                ).fetchone()
                if row is not None:
                    found[query] = self._passages(row[0])
        return found

    def _write(self, fingerprint: str, found: dict[str, list[Passage]], k: int) -> None:
        rows = [
            (fingerprint, _key(query), k, json.dumps([astuple(passage) for passage in passages]))
            for query, passages in found.items()
        ]
        with self._lock, self._file_errors(), self._connected() as transaction:
            transaction.executemany("insert or replace into results values (?, ?, ?, ?)", rows)

    def _passages(self, text: str) -> list[Passage]:
        try:
            return [Passage(*fields) for fields in json.loads(text)]
        except (ValueError, TypeError) as error:
            raise IndexMismatch(self._damage(error)) from error

    def _connected(self) -> sqlite3.Connection:
        """Return this process's connection: one must not be carried over a fork."""
        if self._connection is None or self._process != os.getpid():
            self._connection, self._process = self._open(), os.getpid()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        with self._file_errors():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=_PATIENCE_S, check_same_thread=False)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        with connection:
            connection.execute("begin immediate")
            (schema,) = connection.execute("pragma user_version").fetchone()
            (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
            if schema != SCHEMA and (schema or tables):
                raise IndexMismatch(
                    f"{str(self._path)!r} is no search cache of schema {SCHEMA} (it has {schema}); delete it, or name "
                    "another file"
                )
            connection.execute(_TABLE)
            connection.execute(f"pragma user_version = {SCHEMA}")

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:  # locked, full, not allowed
            raise SearchUnavailable(f"the search cache {str(self._path)!r} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise IndexMismatch(self._damage(error)) from error

    def _damage(self, error: Exception) -> str:
        return f"the search cache {str(self._path)!r} is damaged; delete it: {error}"


def _key(query: str) -> bytes:
    """Return a query as bytes; half a surrogate pair, which no text column takes, is one like any other."""
    return query.encode("utf-8", "surrogatepass")
