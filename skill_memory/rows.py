"""Vectors as rows that shelves share: a row is written once, and is never changed or moved.

    rows = Rows(vector_RD)
    rows = rows.plus(vector_D)                  # written behind the last row, mostly without a copy
    cosine_QR = rows.cosines(vector_QD)         # exact
    row_N = rows.near(vector_QD, count=40)[0]   # candidates only, for when there are too many rows to compare

`near` asks a FAISS index (inverted lists of vectors in 8 bits a number) over most of the rows and adds those that came
later, so that adding a row costs next to nothing.  Whoever asks computes the candidates' cosines exactly.

R is the number of rows, D that of the encoder's dimensions, Q that of questions, N that of candidates.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from sesa_env.encoders import Vectors
from sesa_env.errors import MissingDependency

_SPARE = 64
"""Rows for which a new table has room beyond an eighth of its length."""
_PROBED = 40
"""Inverted lists that a search looks into, of about as many as the root of the number of rows."""
_TRAINED_ON = 64
"""Rows that a list's centre is placed by."""
_LATE = 1024
"""Most rows that are compared one by one because they came after the index was made."""


class Rows:
    """R rows of length 1; immutable for whoever holds it, though its table may grow behind them."""

    def __init__(self, vector_RD: Vectors) -> None:
        self._table = _Table(vector_RD)
        self._end = len(vector_RD)

    def __len__(self) -> int:
        return self._end

    def at(self, row_N: np.ndarray) -> Vectors:
        """Return a copy of some rows, (N, D)."""
        vector_ND: Vectors = self._table.vector_CD[: self._end][row_N]
        return vector_ND

    def plus(self, vector_D: Vectors) -> Rows:
        """Return these rows and one more behind them."""
        longer = object.__new__(Rows)
        longer._table = self._table.with_row(self._end, vector_D)
        longer._end = self._end + 1
        return longer

    def cosines(self, vector_QD: Vectors) -> Vectors:
        """Return the (Q, R) cosines, within [-1, 1] whatever rounding did."""
        return cosines(vector_QD, self._table.vector_CD[: self._end])

    def near(self, vector_QD: Vectors, *, count: int) -> list[np.ndarray]:
        """Return rows of each question that are likely to hold its `count` nearest; the order means nothing.

        Raises:
            MissingDependency: FAISS is not installed.
        """
        found_QN, indexed = self._table.search(vector_QD, end=self._end, count=count)
        late = np.arange(indexed, self._end)
        return [np.concatenate([row_N[(row_N >= 0) & (row_N < self._end)], late]) for row_N in found_QN]


def cosines(vector_QD: Vectors, vector_ND: Vectors) -> Vectors:
    """Return the (Q, N) cosines of vectors of length 1."""
    # Not a matrix product: its threads wait for each other on a busy machine, and its sums depend on the batch.
    cosine_QN: Vectors = np.vecdot(vector_QD[:, None, :], vector_ND[None, :, :])
    return cosine_QN.clip(-1.0, 1.0)


class _Table:
    """Room for C rows, of which the first few are used; whoever is the first to go on from the last one may write."""

    def __init__(self, vector_CD: Vectors, used: int | None = None) -> None:
        self.vector_CD = vector_CD
        self._used = len(vector_CD) if used is None else used
        self._index: Any = None
        self._trained_on = 0
        self._lock = threading.Lock()

    def with_row(self, end: int, vector_D: Vectors) -> _Table:
        """Return a table whose row `end` is that vector and whose earlier rows are as they were."""
        table = self
        with self._lock:
            if end != self._used or end == len(self.vector_CD):
                table = self._copy(end)
                self._used = max(self._used, end + 1)  # the next one to go on from here goes another way
            table.vector_CD[end] = vector_D
            table._used = end + 1
        return table

    def _copy(self, end: int) -> _Table:
        room = end + end // 8 + _SPARE
        vector_CD = np.empty((room, self.vector_CD.shape[1]), dtype=np.float32)
        vector_CD[:end] = self.vector_CD[:end]
        table = _Table(vector_CD, end)
        if end == self._used:  # this table is full, and only this copy of it goes on, so they agree about every row
            table._index, table._trained_on, table._lock = self._index, self._trained_on, self._lock
        return table

    def search(self, vector_QD: Vectors, *, end: int, count: int) -> tuple[np.ndarray, int]:
        """Return the rows the index finds, (Q, N) and -1 where none, and how many of the first rows it knows of."""
        with self._lock:  # adding to a FAISS index while it is searched is not safe
            if self._index is None or end > 2 * self._trained_on:
                self._index, self._trained_on = _trained(self.vector_CD[:end]), end
            if end - self._index.ntotal > _LATE or not self._index.ntotal:
                self._index.add(self.vector_CD[self._index.ntotal : end])
            _, row_QN = self._index.search(np.ascontiguousarray(vector_QD, dtype=np.float32), count)
            return row_QN, min(end, self._index.ntotal)


def _trained(vector_RD: Vectors) -> Any:
    """Return an empty index for vectors like these."""
    faiss = _faiss()
    lists = 1 << round(math.log2(len(vector_RD)) / 2)
    index = faiss.index_factory(vector_RD.shape[1], f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.nprobe = min(lists, _PROBED)
    index.cp.min_points_per_centroid = 1
    every = max(1, len(vector_RD) // (_TRAINED_ON * lists))
    index.train(np.ascontiguousarray(vector_RD[::every]))
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingDependency("so large a skill bank needs FAISS: pip install 'sesa-env[dense]'") from error
    return faiss
