"""Turn skills and questions into vectors whose inner product is their similarity.

How alike two texts may be before they count as the same depends on who compares them: E5's cosines lie between 0.7
and 1, a hashing encoder's between 0 and 1.  So the threshold belongs to the encoder, and so does a fingerprint, by
which stored vectors know who made them.

    encoder = ENCODERS.make("hashing")
    vector_ND = encoder.encode_passages([skill.text for skill in skills])
    score_N = vector_ND @ encoder.encode_queries(["Who wrote it?"])[0]

The encoders that read a model are `sesa_env.encoders`; here is the one that needs none.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sesa_env.encoders import PROFILES as PROFILES
from sesa_env.encoders import Profile as Profile
from sesa_env.encoders import SentenceTransformerEncoder as SentenceTransformerEncoder
from sesa_env.encoders import Vectors as Vectors
from sesa_env.encoders import require_texts
from sesa_env.errors import InvalidInput


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


# --- calibration -----------------------------------------------------------------------------------------------------

PAIRS = Path(__file__).parent / "pairs.jsonl"
"""Pairs of skill texts that we labelled: "near" when the right one adds nothing to the left, else "distinct"."""
REJECTION = 0.8
"""Share of near pairs that a threshold must keep out; much higher, and it keeps out distinct ones too."""
HASHING_THRESHOLD = 0.75
"""What `sesa skills calibrate --encoder hashing` says."""


class Pair(NamedTuple):
    """Two skill texts, and whether the second is a near-copy of the first."""

    left: str
    right: str
    near: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """A threshold, and how many pairs of either label it keeps out of how many."""

    threshold: float
    near: int
    near_refused: int
    distinct: int
    distinct_refused: int


def read_pairs(path: Path = PAIRS) -> list[Pair]:
    """Return the labelled pairs of a JSON-lines file with label, left and right.

    Raises:
        InvalidInput: a line is not such a pair; the message names file and line.
    """
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            pairs.append(Pair(row["left"], row["right"], {"near": True, "distinct": False}[row["label"]]))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{path.name}:{number}: not a labelled pair ({error!r})") from error
    return pairs


def calibrate(encoder: Encoder, pairs: Sequence[Pair], *, rejection: float = REJECTION) -> Calibration:
    """Return the highest threshold at which an encoder keeps out that share of the near pairs.

    Thresholds with equal rejection rates make banks of different encoders comparable; their cosines are not.

    Raises:
        InvalidInput: `rejection` is not in (0, 1), or there is no near pair.
    """
    if not 0.0 < rejection < 1.0:
        raise InvalidInput(f"rejection must lie between 0 and 1, got {rejection!r}")
    compared = _compared(encoder, pairs)
    cosines = sorted((cosine for cosine, pair in compared if pair.near), reverse=True)
    if not cosines:
        raise InvalidInput("pairs must hold at least one near pair, got none")
    last = math.ceil(rejection * len(cosines)) - 1  # the least alike of those to be kept out
    return _count(compared, math.floor(100 * (cosines[last] - 1e-6)) / 100)


def measure(encoder: Encoder, pairs: Sequence[Pair], threshold: float) -> Calibration:
    """Return how many pairs of either label have a cosine above a threshold."""
    return _count(_compared(encoder, pairs), threshold)


def _count(compared: Sequence[tuple[float, Pair]], threshold: float) -> Calibration:
    near = [cosine > threshold for cosine, pair in compared if pair.near]
    distinct = [cosine > threshold for cosine, pair in compared if not pair.near]
    return Calibration(threshold, len(near), sum(near), len(distinct), sum(distinct))


def _compared(encoder: Encoder, pairs: Sequence[Pair]) -> list[tuple[float, Pair]]:
    left_ND = encoder.encode_passages([pair.left for pair in pairs])
    right_ND = encoder.encode_passages([pair.right for pair in pairs])
    return [(float(left_D @ right_D), pair) for left_D, right_D, pair in zip(left_ND, right_ND, pairs, strict=True)]


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
        max_similarity: largest cosine of two different skills; the default is that of `sesa skills calibrate`.
    """

    def __init__(self, *, dimension: int = 2048, max_similarity: float = HASHING_THRESHOLD) -> None:
        if dimension < 64:
            raise InvalidInput(f"dimension must be at least 64, got {dimension!r}")
        self._dimension = dimension
        self._max_similarity = max_similarity

    @property
    def fingerprint(self) -> str:
        """Name of the hashing scheme and its dimension."""
        return hashlib.sha256(f"hashing 1 {self._dimension}".encode()).hexdigest()[:16]

    @property
    def settings(self) -> dict[str, Any]:
        """Name and dimension, for the manifest of an index."""
        return {"encoder": "hashing", "dimension": self._dimension}

    @property
    def max_similarity(self) -> float:
        """Largest cosine at which a skill still counts as new."""
        return self._max_similarity

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per text, (N, D)."""
        texts = require_texts(texts)
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
