"""Read questions from a JSON-lines file, plain or gzipped, one object a line; an Atlas has questions of its own.

An object has `id`, `question` and `answers` (a list, or one bare string), and may have `type`, `supporting_titles`
and `hops`.

    questions = read_questions(Path("hotpotqa.jsonl.gz"), limit=200, keep=lambda row: row.get("type") == "bridge")
    questions = load_questions("atlas:1")       # by name, once per process

A row that breaks the form stops the reading: no question is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from sesa_env.corpora import ATLAS_SIZE, is_atlas, load_atlas
from sesa_env.corpora.jsonl import Row, read_id, read_rows
from sesa_env.errors import CorpusError, InvalidInput
from sesa_env.types import Question


@lru_cache(maxsize=8)
def load_questions(questions: str, *, every: bool = False) -> tuple[Question, ...]:
    """Return the questions of an Atlas ("atlas", "atlas:SEED") or of a JSON-lines file.

    Args:
        questions: the Atlas, or the path of the file.
        every: all that an Atlas has, for training; else a draw of 500, equally many of each number of hops.

    Raises:
        InvalidInput: the seed of the Atlas is not a whole number.
        CorpusError: the file cannot be read.
    """
    if not is_atlas(questions):
        return tuple(read_questions(Path(questions)))
    atlas = load_atlas(questions)
    if every:
        return atlas.all_questions
    return tuple(atlas.questions(ATLAS_SIZE, seed=atlas.seed))


def read_questions(
    path: Path, *, limit: int | None = None, keep: Callable[[Row], bool] | None = None
) -> list[Question]:
    """Return the questions of a file, in its order.

    Args:
        path: the file; a name that ends in `.gz` is unpacked.
        limit: how many questions to return at most; all when None.
        keep: called with each row as it stands in the file; rows it is false for are left out, and do not count.

    Raises:
        InvalidInput: `limit` is below 1.
        CorpusError: the file is missing or empty, or a row is malformed, lacks a field or repeats an id.
    """
    if limit is not None and limit < 1:
        raise InvalidInput(f"limit must be at least 1, got {limit!r}")
    questions: list[Question] = []
    lines: dict[str, int] = {}
    for number, row in read_rows(path):
        where = f"{path}, line {number}"
        question = _question(row, where)
        if question.id in lines:
            raise CorpusError(f"{where}: id {question.id!r} is already that of line {lines[question.id]}")
        lines[question.id] = number
        if keep is None or keep(row):
            questions.append(question)
        if len(questions) == limit:
            break
    return questions


def _question(row: Row, where: str) -> Question:
    identifier, text, hops = read_id(row, where=where), row.get("question"), row.get("hops")
    if not isinstance(text, str):
        raise CorpusError(f"{where}: `question` must be a string, got {text!r}")
    if hops is not None and (isinstance(hops, bool) or not isinstance(hops, int) or hops < 1):
        raise CorpusError(f"{where}: `hops` must be a whole number from 1 up, got {hops!r}")
    answers = row.get("answers")
    try:
        return Question(
            id=identifier,
            text=text,
            answers=_strings([answers] if isinstance(answers, str) else answers, "answers", where),
            supporting_titles=_strings(row.get("supporting_titles", []), "supporting_titles", where),
            hops=hops,
            family=_family(row, where),
        )
    except InvalidInput as error:
        raise CorpusError(f"{where}: {error}") from error


def _strings(value: object, field: str, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CorpusError(f"{where}: `{field}` must be a list of strings, got {value!r}")
    return tuple(value)


def _family(row: Row, where: str) -> str:
    family = row.get("type", "")
    if not isinstance(family, str):
        raise CorpusError(f"{where}: `type` must be a string, got {family!r}")
    return family
