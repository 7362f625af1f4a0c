"""Question sets by name: the embedded ones ("atlas:SEED") and files of JSON lines.

one = load_dataset("atlas:1", limit=100)
one.name, one.questions, one.corpus
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sesa_env.corpora import is_atlas, load_atlas
from sesa_env.corpora.questions import read_questions
from sesa_env.envs.world import load_questions
from sesa_env.errors import CorpusError
from sesa_env.types import Question


class Dataset(NamedTuple):
    """Questions, their name in tables, their corpus (None: the run's own), and whether their world is invented."""

    name: str
    questions: list[Question]
    corpus: str | None
    fictional: bool


def load_dataset(name: str, *, limit: int, gold_in_corpus: bool = False) -> Dataset:
    """Return the first `limit` questions of a set, in its own order.

    Args:
        name: "atlas", "atlas:SEED", or the path of a JSON-lines file (may be gzipped).
        limit: most questions.
        gold_in_corpus: take only rows of a file whose `gold_in_corpus` is true.

    Raises:
        CorpusError: the file is missing or malformed, or no question is left.
    """
    if is_atlas(name):
        return Dataset(name, list(load_questions(name))[:limit], corpus=name, fictional=True)
    keep = (lambda row: bool(row.get("gold_in_corpus"))) if gold_in_corpus else None
    questions = read_questions(Path(name), limit=limit, keep=keep)
    if not questions:
        raise CorpusError(f"{name}: no question is marked gold_in_corpus")
    return Dataset(Path(name).name.removesuffix(".gz").removesuffix(".jsonl"), questions, corpus=None, fictional=False)


def gold_queries(data: Dataset) -> Callable[[Question], Sequence[str]]:
    """Return what finds the answer to each question: queries that an Atlas knows, or the gold titles."""
    if not is_atlas(data.name):
        return lambda question: question.supporting_titles
    atlas = load_atlas(data.name)
    return lambda question: atlas.gold_queries(question.id)
