"""Build a search index on disk, and open it again only if it is the right one.

An index is a folder: the back end's files and, written last, a manifest that says from which corpus, by which versions
and with which settings it was made.  It is built beside its place and moved there in one step, so a build that fails or
is killed leaves nothing that could be mistaken for an index.

    build_index(Path("wiki.jsonl"), Path("wiki-index"), backend="lucene")
    retriever = open_index(Path("wiki-index"), corpus=Path("wiki.jsonl"))
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast
from uuid import uuid4

import sesa_env.corpora as corpora
from sesa_env.cache import cache_dir
from sesa_env.corpora.jsonl import corpus_fingerprint, read_passages
from sesa_env.errors import IndexMismatch, InvalidInput
from sesa_env.retrieval import bm25, lucene
from sesa_env.retrieval.base import Retriever, retriever_fingerprint
from sesa_env.types import Passage

SCHEMA = 1
"""Raise it whenever a field of the manifest or the layout of the folder changes meaning."""
MANIFEST = "manifest.json"
Backend = Literal["lucene", "bm25"]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Manifest:
    """What an index was made of and by; `libraries` maps names to versions."""

    schema: int
    backend: Backend
    libraries: dict[str, str]
    settings: dict[str, Any]
    corpus: str
    """Fingerprint of the corpus."""
    passages: int


class _Backend(Protocol):
    SETTINGS: dict[str, Any]

    def libraries(self) -> dict[str, str]: ...
    def write_index(self, passages: Iterable[Passage], folder: Path, progress: Progress | None = None) -> int: ...
    def open_folder(self, folder: Path, corpus_fingerprint: str) -> Retriever: ...


_BACKENDS: dict[str, _Backend] = {"lucene": cast(_Backend, lucene), "bm25": cast(_Backend, bm25)}


def build_index(corpus: Path, out: Path, *, backend: Backend, progress: Progress | None = None) -> Manifest:
    """Index a JSON-lines file into the folder `out`: wholly, or not at all.

    Args:
        corpus: the file, in the form of `sesa_env.corpora.jsonl`.
        out: a folder that is empty or does not exist yet.
        backend: "lucene" (needs Java) or "bm25".
        progress: called now and then with the number of passages done.

    Raises:
        InvalidInput: `out` exists and is not an empty folder, or there is no such back end.
        CorpusError: the file is missing, empty or malformed.
        MissingDependency: the back end's package is not installed.
        BackendUnavailable: there is no Java that fits, or the disk cannot be written.
    """
    return _build(read_passages(corpus), corpus_fingerprint(corpus), out, backend, progress)


def open_index(path: Path, *, corpus: Path | None = None) -> Retriever:
    """Open an index that `build_index` made.

    Args:
        path: the folder.
        corpus: the file the index must have been made from; None takes the index's word for it.

    Raises:
        IndexMismatch: the folder holds no finished index, or one of another corpus, schema, setting or major version of
            a library; the message says how to build it again.
        CorpusError: `corpus` is missing.
        MissingDependency: the back end's package is not installed.
        BackendUnavailable: there is no Java that fits.
    """
    return _open(path, corpus_fingerprint(corpus) if corpus else None, corpus=str(corpus or "FILE"))


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of an index.

    Raises:
        IndexMismatch: there is none, which means that the index was never finished, or it cannot be read.
    """
    return _manifest(path, _rebuild(path, "FILE"))


def bm25_retriever(corpus: str, index: str | None = None) -> Retriever:
    """Make the retriever "bm25" over a named corpus (`sesa_env.corpora`), in memory unless there is an index.

    Raises:
        InvalidInput, CorpusError: as `load_passages`.
        IndexMismatch: as `open_index`, or the index is of another back end.
        MissingDependency: bm25s is not installed.
    """
    if index:
        return _open(Path(index), corpora.fingerprint(corpus), corpus=corpus, backend="bm25")
    passages, fingerprint = corpora.load_passages(corpus)
    return bm25.Bm25Retriever.from_passages(passages, fingerprint)


def lucene_retriever(corpus: str, index: str | None = None) -> Retriever:
    """Make the retriever "lucene" over a named corpus; without an index, one is built in the user's cache and kept.

    Raises:
        InvalidInput, CorpusError: as `load_passages`.
        IndexMismatch: as `open_index`, or the index is of another back end.
        MissingDependency: Pyserini is not installed.
        BackendUnavailable: there is no Java that fits.
    """
    fingerprint = corpora.fingerprint(corpus)
    folder = Path(index) if index else _cached(corpus, fingerprint, "lucene")
    return _open(folder, fingerprint, corpus=corpus, backend="lucene")


def _cached(corpus: str, fingerprint: str, backend: Backend) -> Path:
    """Return the folder of the cached index of a corpus, built now if it is not there."""
    part = _BACKENDS[backend]
    identity = {**part.SETTINGS, **_majors(part.libraries()), "schema": SCHEMA}
    folder = cache_dir("indexes") / f"{backend}-{retriever_fingerprint(fingerprint, identity)}"
    if (folder / MANIFEST).exists():
        return folder
    try:
        _build(corpora.load_passages(corpus)[0], fingerprint, folder, backend, None)
    except InvalidInput:
        if not (folder / MANIFEST).exists():  # else another process was faster
            raise
    return folder


def _build(
    passages: Iterable[Passage], fingerprint: str, out: Path, backend: Backend, progress: Progress | None
) -> Manifest:
    if backend not in _BACKENDS:
        raise InvalidInput(f"backend must be one of {', '.join(sorted(_BACKENDS))}, got {backend!r}")
    _refuse_used(out)
    draft = out.absolute().parent / f".{out.name}.{uuid4().hex[:8]}"
    draft.mkdir(parents=True)
    try:
        manifest = _write(passages, fingerprint, draft, backend, progress)
        _refuse_used(out)
        if out.exists():
            out.rmdir()
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _write(
    passages: Iterable[Passage], fingerprint: str, folder: Path, backend: Backend, progress: Progress | None
) -> Manifest:
    part = _BACKENDS[backend]
    count = part.write_index(passages, folder / backend, progress)
    manifest = Manifest(SCHEMA, backend, part.libraries(), part.SETTINGS, fingerprint, count)
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
    return manifest


def _refuse_used(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InvalidInput(f"out must be a new or an empty folder, and {str(out)!r} is not; remove it to build again")


def _open(path: Path, fingerprint: str | None, *, corpus: str, backend: Backend | None = None) -> Retriever:
    manifest = _manifest(path, rebuild := _rebuild(path, corpus, backend))
    if backend and manifest.backend != backend:
        raise IndexMismatch(
            f"the index at {str(path)!r} is of the back end {manifest.backend!r}, not {backend!r}; {rebuild}"
        )
    if fingerprint and manifest.corpus != fingerprint:
        raise IndexMismatch(
            f"the index at {str(path)!r} was made from another corpus: its fingerprint is {manifest.corpus}, that of "
            f"{corpus} is {fingerprint}; {rebuild}"
        )
    part = _BACKENDS[manifest.backend]
    _check_versions(path, manifest, part, rebuild)
    return part.open_folder(path / manifest.backend, manifest.corpus)


def _check_versions(path: Path, manifest: Manifest, part: _Backend, rebuild: str) -> None:
    here = part.libraries()
    for name, major in _majors(here).items():
        built = manifest.libraries.get(name, "none")
        if _major(built) != major:
            raise IndexMismatch(
                f"the index at {str(path)!r} was made with {name} {built}, and {here[name]} is installed; {rebuild}"
            )
    if manifest.settings != part.SETTINGS:
        raise IndexMismatch(
            f"the index at {str(path)!r} was made with the settings {manifest.settings}, not {part.SETTINGS}; {rebuild}"
        )


def _manifest(path: Path, rebuild: str) -> Manifest:
    try:
        row = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise IndexMismatch(f"there is no finished index at {str(path)!r}; {rebuild}") from error
    except ValueError as error:
        raise IndexMismatch(f"the manifest of the index at {str(path)!r} is damaged; {rebuild}") from error
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        found = row.get("schema") if isinstance(row, dict) else None
        raise IndexMismatch(f"the index at {str(path)!r} has schema {found!r}, and {SCHEMA} is needed; {rebuild}")
    try:
        manifest = Manifest(**row)
        _BACKENDS[manifest.backend]
    except (TypeError, KeyError) as error:
        raise IndexMismatch(f"the manifest of the index at {str(path)!r} is damaged; {rebuild}") from error
    return manifest


def _rebuild(path: Path, corpus: str, backend: str | None = None) -> str:
    option = f" --backend {backend}" if backend else ""
    return f"build it with `sesa index --corpus {corpus} --out {path}{option}`"


def _majors(libraries: dict[str, str]) -> dict[str, str]:
    return {name: _major(number) for name, number in libraries.items()}


def _major(number: str) -> str:
    """Return the part of a version that says what is compatible: "1" of "1.6.0", "0.3" of "0.3.16"."""
    first, _, rest = number.partition(".")
    return f"0.{rest.partition('.')[0]}" if first == "0" else first
