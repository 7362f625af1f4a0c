"""What an environment plays with: a retriever, targets and questions, each found by name.

    retriever = open_retriever("atlas", retriever="bm25", index=None)
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

from sesa_env.corpora import is_atlas, load_atlas
from sesa_env.corpora.questions import read_questions
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval.base import Retriever
from sesa_env.targets import ATLAS_SIZE
from sesa_env.targets import load_targets as load_targets
from sesa_env.types import Question


def open_retriever(corpus: str, *, retriever: str, index: str | None) -> Retriever:
    """Return the retriever of that name over the corpus, from the index at that path if one is given.

    It is shared: close it only when no environment of this process needs it any more.

    Raises:
        UnknownName: no retriever of that name is registered.
        CorpusError: the corpus cannot be read.
        IndexMismatch: the index belongs to another corpus.
    """
    return _open_retriever(corpus, retriever, index, process=os.getpid())


@lru_cache(maxsize=8)
def _open_retriever(corpus: str, retriever: str, index: str | None, *, process: int) -> Retriever:
    opened: Retriever = RETRIEVERS.make(retriever, corpus=corpus, index=index)
    return opened


@lru_cache(maxsize=8)
def load_questions(questions: str) -> tuple[Question, ...]:
    """Return the questions of an Atlas ("atlas", "atlas:SEED") or of a JSON-lines file.

    Raises:
        InvalidInput: the seed of the Atlas is not a whole number.
        CorpusError: the file cannot be read.
    """
    if not is_atlas(questions):
        return tuple(read_questions(Path(questions)))
    atlas = load_atlas(questions)
    return tuple(atlas.questions(ATLAS_SIZE, seed=atlas.seed))
