"""Read passages from a JSON-lines file, plain or gzipped, one object a line.

The form is the one the Wikipedia collections of Search-R1 and Pyserini have: `id`, `title` (optional) and `contents`,
where `contents` is the title in double quotes, a line feed, and the text; a first line of another kind is text.

    for passage in read_passages(Path("wiki.jsonl.gz")): ...
    name = corpus_fingerprint(Path("wiki.jsonl.gz"))

A line that breaks the form stops the reading: nothing is skipped and nothing is repaired.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sesa_env.errors import CorpusError
from sesa_env.types import Passage

Row = dict[str, Any]
_BLOCK = 1 << 20
"""Bytes read at a time for the fingerprint."""


def read_passages(path: Path) -> Iterator[Passage]:
    """Yield the passages of a file one after the other.

    Raises:
        CorpusError: the file is missing or empty, or a line is malformed, lacks a field or repeats an id; the message
            has the file name and the line number (both line numbers for a repeated id).
    """
    lines: dict[str, int] = {}
    for number, row in read_rows(path):
        passage = passage_from_row(row, where=f"{path}, line {number}")
        if passage.id in lines:
            raise CorpusError(f"{path}, line {number}: id {passage.id!r} is already that of line {lines[passage.id]}")
        lines[passage.id] = number
        yield passage


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield line number and object of each line that is not blank.

    Raises:
        CorpusError: the file is missing, empty or damaged, or a line is not a JSON object in sound UTF-8.
    """
    number = found = 0
    with _opened(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    found += 1
                    yield number, _row(line, where=f"{path}, line {number}")
        except (OSError, EOFError, zlib.error) as error:
            raise CorpusError(f"{path} is damaged after line {number}: {error}") from error
    if not found:
        raise CorpusError(f"{path} is empty")


def passage_from_row(row: Row, *, where: str) -> Passage:
    """Make a passage of one object; `where` opens the message of an error.

    Raises:
        CorpusError: `id` or `contents` is missing, blank or of the wrong type.
    """
    contents = row.get("contents")
    if not isinstance(contents, str) or not contents.strip():
        raise CorpusError(f"{where}: `contents` must be a non-blank string, got {contents!r}")
    title, text = _split(contents, row.get("title"), where)
    return Passage(id=read_id(row, where=where), title=title, text=text)


def row_from_passage(passage: Passage) -> Row:
    """Return the object that `passage_from_row` reads back as the same passage, score aside."""
    return {"id": passage.id, "title": passage.title, "contents": contents_of(passage)}


def contents_of(passage: Passage) -> str:
    """Return title and text in the collections' form: the quoted title, a line feed, the text."""
    return f'"{passage.title}"\n{passage.text}' if passage.title else passage.text


def read_id(row: Row, *, where: str) -> str:
    """Return the `id` of an object as text; whole numbers are ids too.

    Raises:
        CorpusError: it is missing, blank or of another type.
    """
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise CorpusError(f"{where}: `id` must be a non-blank string or a whole number, got {value!r}")
    return str(value)


def corpus_fingerprint(path: Path) -> str:
    """Return the SHA-256 of the file's bytes, unpacked if gzipped: a packed copy is the same corpus.

    Raises:
        CorpusError: the file is missing or damaged.
    """
    digest = hashlib.sha256()
    with _opened(path) as file:
        try:
            while block := file.read(_BLOCK):
                digest.update(block)
        except (OSError, EOFError, zlib.error) as error:
            raise CorpusError(f"{path} is damaged: {error}") from error
    return digest.hexdigest()


def passages_fingerprint(passages: Iterable[Passage]) -> str:
    """Return the fingerprint of passages that come from no file: ids, titles and texts, in order."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(json.dumps(row_from_passage(passage), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if not path.is_file():
        raise CorpusError(f"{path} is not a file")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield file  # type: ignore[misc]


def _row(line: bytes, *, where: str) -> Row:
    try:
        text = line.decode("utf-8-sig")
        row = json.loads(text)
        if "\\u" in text:  # an escape may be half of a surrogate pair, which is valid JSON and no text
            json.dumps(row, ensure_ascii=False).encode()
    except ValueError as error:
        raise CorpusError(f"{where}: not a JSON object in sound UTF-8 ({error})") from error
    if not isinstance(row, dict):
        raise CorpusError(f"{where}: must be a JSON object, got {type(row).__name__}")
    return row


def _split(contents: str, title: Any, where: str) -> tuple[str, str]:
    if title is None:
        first, newline, rest = contents.partition("\n")
        quoted = newline and len(first) >= 2 and first[0] == first[-1] == '"'
        return (first[1:-1], rest) if quoted else ("", contents)
    if not isinstance(title, str):
        raise CorpusError(f"{where}: `title` must be a string, got {title!r}")
    return title, contents.removeprefix(f'"{title}"\n') if title else contents
