"""The search of a shelf, exact and by its index, at sizes up to a million.

    row = time_search(100_000, distribution="topics", queries=200, repeats=15)

The vectors are drawn from 2,000 topics of very different size, in 384 dimensions whose variance falls as 1/i, as that
of text encoders does; a vector is its topic's centre plus noise of 0.7 times the size.  Questions are drawn anew, half
of them from the topics and half from topics that no skill has.  Recall@3 is the share of the exact three nearest that
were found.  Uniform vectors, which no text gives, stand beside them: there an index misses most.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from unittest import mock

import numpy as np

from benchmarks.perf.timing import Row, spread, timed
from skill_memory import shelf
from skill_memory.encode import Vectors
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill

DIMENSION, K = 384, 3
TOPICS = 2000
_NOISE = 0.7


def topical(count: int, *, rng: np.random.Generator, topics: Vectors) -> Vectors:
    """Return (count, D) vectors of these topics, the first of which are by far the most frequent."""
    share = 1.0 / np.arange(1, len(topics) + 1) ** 0.7
    vector_ND = np.empty((count, topics.shape[1]), dtype=np.float32)
    for start in range(0, count, 50_000):  # in blocks, for the memory's sake
        part = vector_ND[start : start + 50_000]
        topic_N = rng.choice(len(topics), size=len(part), p=share / share.sum())
        part[:] = unit(topics[topic_N] + _NOISE * spectral(len(part), topics.shape[1], rng=rng))
    return vector_ND


def spectral(count: int, dimension: int, *, rng: np.random.Generator) -> Vectors:
    """Return vectors of about length 1 whose variance falls as 1/i from dimension to dimension."""
    variance_D = 1.0 / np.arange(1, dimension + 1)
    drawn_ND = rng.standard_normal((count, dimension), dtype=np.float32)
    vector_ND: Vectors = drawn_ND * np.sqrt(variance_D / variance_D.sum()).astype(np.float32)
    return vector_ND


def time_search(size: int, *, distribution: str, queries: int, repeats: int) -> Row:
    """Compare a shelf's exact search with the one it uses for many skills, at one size.

    Args:
        size: how many skills.
        distribution: "topics" or "uniform".
        queries: how many questions; the speed of single ones and the recall are over all of them.
        repeats: how often the exact search of one question is timed; it takes turns with the other.
    """
    rng = np.random.default_rng(0)
    if distribution == "topics":
        topics, others = spectral(TOPICS, DIMENSION, rng=rng), spectral(TOPICS, DIMENSION, rng=rng)
        vector_KD = topical(size, rng=rng, topics=topics)
        vector_QD = np.vstack([topical(queries // 2, rng=rng, topics=one) for one in (topics, others)])
    else:
        vector_KD, vector_QD = (
            unit(rng.standard_normal((count, DIMENSION), dtype=np.float32)) for count in (size, queries)
        )
    skills = [Skill(str(number), str(number), (), "", ()) for number in range(size)]
    large = Shelf(skills, vector_KD)

    def ask(vectors: Vectors, *, exact: bool) -> list[list[Skill]]:
        with mock.patch.object(shelf, "EXACT_UP_TO", size if exact else 0):
            return large.best(vectors, k=K, floor=-1.0)

    build = timed(lambda: ask(vector_QD[:1], exact=False))
    found: list[list[Skill]] = []
    exact, index = [], []
    for row, vector_1D in enumerate(np.split(vector_QD, len(vector_QD))):
        index.append(timed(partial(_extend, found, partial(ask, vector_1D, exact=False))))
        if row % max(1, len(vector_QD) // repeats) == 0:
            exact.append(timed(partial(ask, vector_1D, exact=True)))
    batched = timed(lambda: ask(vector_QD, exact=False)).each(len(vector_QD))
    best = _exact(vector_QD, vector_KD)
    hits = [len({int(skill.id) for skill in got} & set(want)) / K for got, want in zip(found, best, strict=True)]
    half = len(hits) // 2
    recall = {"recall@3": hits}
    if distribution == "topics":
        recall |= {"recall@3 in known topics": hits[:half], "recall@3 in others": hits[half:]}
    return {
        "what": f"search {size:,} vectors, {distribution}",
        "exact": spread(exact),
        "index": spread(index),
        f"{len(vector_QD)} at once, each": spread([batched]),
        "making the index": spread([build]),
        **{name: round(statistics.mean(values), 4) for name, values in recall.items()},
    }


def _extend(found: list[list[Skill]], ask: Callable[[], list[list[Skill]]]) -> None:
    found += ask()


def _exact(vector_QD: Vectors, vector_KD: Vectors) -> list[list[int]]:
    """Return the rows of the exact K nearest, by products of blocks."""
    score_QN, row_QN = np.empty((len(vector_QD), 0), np.float32), np.empty((len(vector_QD), 0), np.int64)
    for start in range(0, len(vector_KD), 100_000):
        block_QB = vector_QD @ vector_KD[start : start + 100_000].T
        best_QK = np.argpartition(-block_QB, K - 1, axis=1)[:, :K]
        score_QN = np.hstack([score_QN, np.take_along_axis(block_QB, best_QK, axis=1)])
        row_QN = np.hstack([row_QN, best_QK + start])
    order_QK = np.argsort(-score_QN, axis=1)[:, :K]
    rows: list[list[int]] = np.take_along_axis(row_QN, order_QK, axis=1).tolist()
    return rows


def unit(vector_ND: np.ndarray) -> Vectors:
    """Return the vectors scaled to length 1."""
    unit_ND: Vectors = (vector_ND / np.linalg.norm(vector_ND, axis=1, keepdims=True)).astype(np.float32)
    return unit_ND
