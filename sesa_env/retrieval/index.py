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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast
from uuid import uuid4

import sesa_env.corpora as corpora
from sesa_env.cache import cache_dir
from sesa_env.corpora.jsonl import corpus_fingerprint, read_passages
from sesa_env.encoders import TextEncoder
from sesa_env.errors import IndexMismatch, InvalidInput
from sesa_env.retrieval import bm25, dense, lucene
from sesa_env.retrieval.base import Retriever, retriever_fingerprint
from sesa_env.retrieval.dense import DEFAULT_ENCODER, DenseBackend, Device
from sesa_env.types import Passage

SCHEMA = 1
"""Raise it whenever a field of the manifest or the layout of the folder changes meaning."""
MANIFEST = "manifest.json"
Backend = Literal["lucene", "bm25", "dense"]
Progress = Callable[[int], None]
T = TypeVar("T")


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


_SPARSE: dict[str, _Backend] = {"lucene": cast(_Backend, lucene), "bm25": cast(_Backend, bm25)}
_NAMES = ("bm25", "dense", "lucene")


def build_index(
    corpus: Path,
    out: Path,
    *,
    backend: Backend,
    encoder: TextEncoder | str | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Index a JSON-lines file into the folder `out`: wholly, or not at all.

    Args:
        corpus: the file, in the form of `sesa_env.corpora.jsonl`.
        out: a folder that is empty or does not exist yet.
        backend: "lucene" (needs Java), "bm25" or "dense".
        encoder: what makes the vectors of a dense index, or its name (`sesa_env.encoders.make_encoder`); None takes
            MiniLM.
        progress: called now and then with the number of passages done.

    Raises:
        InvalidInput: `out` exists and is not an empty folder, there is no such back end, or it takes no encoder.
        CorpusError: the file is missing, empty or malformed.
        MissingDependency: the back end's package is not installed.
        ModelNotFound: there is no such encoder.
        BackendUnavailable: there is no Java that fits, or the disk cannot be written.
    """
    _refuse_used(out)
    return _build(read_passages(corpus), corpus_fingerprint(corpus), out, backend, _part(backend, encoder), progress)


def build_indexes(
    corpus: Path,
    out: Path,
    *,
    backends: Sequence[Backend],
    encoder: TextEncoder | str | None = None,
    progress: Progress | None = None,
) -> list[Manifest]:
    """Index a file for each back end, in folders of their names in `out`, as a fusion of them wants it; all or none.

    Args:
        corpus: as `build_index`.
        out: as `build_index`.
        backends: different back ends.
        encoder: for the dense index among them.
        progress: as `build_index`, from 0 on for each back end.

    Raises:
        InvalidInput: a back end is named twice, or see `build_index`, whose other errors are raised, too.
    """
    if len(set(backends)) < len(backends):
        raise InvalidInput(f"backends must be different ones, got {', '.join(backends)}")
    if encoder is not None and "dense" not in backends:
        raise InvalidInput(f"an encoder is for dense indexes, and there is none among {', '.join(backends)}")
    parts = [_part(backend, encoder if backend == "dense" else None) for backend in backends]
    fingerprint = corpus_fingerprint(corpus)

    def fill(draft: Path) -> list[Manifest]:
        return [
            _build(read_passages(corpus), fingerprint, draft / backend, backend, part, progress)
            for backend, part in zip(backends, parts, strict=True)
        ]

    return _whole(out, fill)


def open_index(
    path: Path, *, corpus: Path | None = None, encoder: TextEncoder | str | None = None, device: Device = "cpu"
) -> Retriever:
    """Open an index that `build_index` made.

    Args:
        path: the folder.
        corpus: the file the index must have been made from; None takes the index's word for it.
        encoder: the encoder of a dense index, or its name; None makes the one that the index names.
        device: where a dense index is searched: "cpu" or "cuda".

    Raises:
        InvalidInput: there is an encoder or a device for an index that is not dense.
        IndexMismatch: the folder holds no finished index, or one of another corpus, schema, setting, encoder or major
            version of a library; the message says how to build it again.
        CorpusError: `corpus` is missing.
        MissingDependency: the back end's package is not installed.
        BackendUnavailable: there is no Java that fits.
    """
    fingerprint = corpus_fingerprint(corpus) if corpus else None
    return _open(path, fingerprint, corpus=str(corpus or "FILE"), encoder=encoder, device=device)


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
    folder = Path(index) if index else _cached(corpus, fingerprint, "lucene", _SPARSE["lucene"])
    return _open(folder, fingerprint, corpus=corpus, backend="lucene")


def dense_retriever(
    corpus: str, index: str | None = None, *, encoder: TextEncoder | str | None = None, device: Device = "cpu"
) -> Retriever:
    """Make the retriever "dense" over a named corpus; without an index, one is built in the user's cache and kept.

    Args:
        corpus: the name of the corpus (`sesa_env.corpora`).
        index: folder of an index.
        encoder: an encoder or its name; None takes the one that the index names, or MiniLM where there is no index.
        device: where to search: "cpu" or "cuda".

    Raises:
        InvalidInput, CorpusError: as `load_passages`.
        IndexMismatch: as `open_index`, or the index is of another back end.
        MissingDependency: FAISS or the encoder's library is not installed.
        ModelNotFound: there is no such encoder.
        BackendUnavailable: `device` is "cuda", and there is no GPU or too little room on it.
    """
    fingerprint = corpora.fingerprint(corpus)
    if index:
        return _open(Path(index), fingerprint, corpus=corpus, backend="dense", encoder=encoder, device=device)
    part = DenseBackend(encoder or DEFAULT_ENCODER)
    folder = _cached(corpus, fingerprint, "dense", part)
    return _open(folder, fingerprint, corpus=corpus, backend="dense", encoder=part.encoder, device=device)


def _part(backend: str, encoder: TextEncoder | str | None = None, device: Device = "cpu") -> _Backend:
    """Return what builds and opens indexes of a back end."""
    if backend not in _NAMES:
        raise InvalidInput(f"backend must be one of {', '.join(_NAMES)}, got {backend!r}")
    if backend == "dense":
        return DenseBackend(encoder or DEFAULT_ENCODER, device=device)
    if encoder is not None or device != "cpu":
        raise InvalidInput(f"an encoder and a device are for dense indexes, and {backend!r} takes none")
    return _SPARSE[backend]


def _cached(corpus: str, fingerprint: str, backend: Backend, part: _Backend) -> Path:
    """Return the folder of the cached index of a corpus, built now if it is not there."""
    identity = {**part.SETTINGS, **_majors(part.libraries()), "schema": SCHEMA}
    folder = cache_dir("indexes") / f"{backend}-{retriever_fingerprint(fingerprint, identity)}"
    if (folder / MANIFEST).exists():
        return folder
    try:
        _build(corpora.load_passages(corpus)[0], fingerprint, folder, backend, part, None)
    except InvalidInput:
        if not (folder / MANIFEST).exists():  # else another process was faster
            raise
    return folder


def _build(
    passages: Iterable[Passage],
    fingerprint: str,
    out: Path,
    backend: Backend,
    part: _Backend,
    progress: Progress | None,
) -> Manifest:
    def fill(draft: Path) -> Manifest:
        count = part.write_index(passages, draft / backend, progress)
        manifest = Manifest(SCHEMA, backend, part.libraries(), part.SETTINGS, fingerprint, count)
        (draft / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
        return manifest

    return _whole(out, fill)


def _whole(out: Path, fill: Callable[[Path], T]) -> T:
    """Fill a draft beside `out` and move it there in one step; what fails leaves nothing."""
    _refuse_used(out)
    draft = out.absolute().parent / f".{out.name}.{uuid4().hex[:8]}"
    draft.mkdir(parents=True)
    try:
        filled = fill(draft)
        _refuse_used(out)
        if out.exists():
            out.rmdir()
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return filled


def _refuse_used(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InvalidInput(f"out must be a new or an empty folder, and {str(out)!r} is not; remove it to build again")


def _open(
    path: Path,
    fingerprint: str | None,
    *,
    corpus: str,
    backend: Backend | None = None,
    encoder: TextEncoder | str | None = None,
    device: Device = "cpu",
) -> Retriever:
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
    if manifest.backend == "dense":
        encoder = encoder or dense.encoder_of(manifest.settings)
    part = _part(manifest.backend, encoder, device)
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
    theirs, ours = _differences(manifest.settings, part.SETTINGS)
    if theirs != ours:
        raise IndexMismatch(f"the index at {str(path)!r} was made with the settings {theirs}, not {ours}; {rebuild}")


def _differences(built: dict[str, Any], wanted: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return of two groups of settings what differs, led by the encoders' names; a name alone is no difference."""
    names = [name for name in {**built, **wanted} if built.get(name) != wanted.get(name)]
    if not set(names) - {dense.NAME}:
        return {}, {}
    shown = [name for name in {**built, **wanted} if name in names or name == dense.NAME]
    first, second = ({name: side[name] for name in shown if name in side} for side in (built, wanted))
    return first, second


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
    except TypeError as error:
        raise IndexMismatch(f"the manifest of the index at {str(path)!r} is damaged; {rebuild}") from error
    if manifest.backend not in _NAMES:
        raise IndexMismatch(f"the index at {str(path)!r} is of an unknown back end {manifest.backend!r}; {rebuild}")
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
