"""What an environment plays with: a retriever, targets and questions, each found by name.

    retriever = open_retriever("atlas", retriever="bm25")
    targets = load_targets("atlas:3")
    questions = load_questions("questions.jsonl")

Names go in, so that an environment's arguments stay JSON; what they name is loaded once per process and shared by all
its environments.  A forked worker opens its own retriever, since an open one may hold what does not survive a fork.  A
file that changes while the process runs is not read again.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from sesa_env.corpora.questions import load_questions as load_questions
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval.base import Retriever
from sesa_env.retrieval.cached import CachedRetriever
from sesa_env.retrieval.guard import GuardedRetriever
from sesa_env.retrieval.pages import PagedRetriever, PageStore
from sesa_env.targets import load_targets as load_targets

DEADLINE_S, BUDGET_S = 120.0, 300.0
"""Seconds for one search of all seats, and for it with its retries: so long that only what hangs is given up."""


def open_retriever(
    corpus: str, *, retriever: str, index: str | None = None, cache: str | None = None, pages: bool = False
) -> Retriever:
    """Return the retriever of that name over the corpus, with a deadline unless it searches memory only.

    It is shared: close it only when no environment of this process needs it any more.

    Args:
        corpus: the name of the corpus.
        retriever: a name in `RETRIEVERS`.
        index: path of a ready index.
        cache: file in which results are kept from one run to the next; worth it where a search is slow.
        pages: whether its pages can be read, too (`sesa_env.reading`), as rules with `max_opens` want it.

    Raises:
        UnknownName: no retriever of that name is registered.
        CorpusError: the corpus cannot be read.
        IndexMismatch: the index belongs to another corpus, or the cache is none.
        SearchUnavailable: the cache cannot be opened.
    """
    opened = _open_retriever(corpus, retriever, index, cache, process=os.getpid())
    return PagedRetriever(opened, _load_pages(corpus)) if pages else opened


@lru_cache(maxsize=8)
def _open_retriever(corpus: str, retriever: str, index: str | None, cache: str | None, *, process: int) -> Retriever:
    opened: Retriever = RETRIEVERS.make(retriever, corpus=corpus, index=index)
    local = getattr(opened, "in_memory", False) and cache is None
    if cache is not None:
        opened = CachedRetriever(opened, Path(cache))
    return opened if local else GuardedRetriever(opened, deadline_s=DEADLINE_S, budget_s=BUDGET_S)


@lru_cache(maxsize=2)
def _load_pages(corpus: str) -> PageStore:
    return PageStore(corpus)
