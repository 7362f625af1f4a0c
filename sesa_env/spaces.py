"""A Gymnasium space of texts in any script.

Gymnasium's own `Text` space holds a fixed alphabet, letters and digits by default, and its values come back from
`AsyncVectorEnv` with shared memory as garbage without an error.  This one contains every string up to a length.

    space = UnicodeText(max_length=1000)
    "Zürich 東京 🚀" in space        # True

It works in `SyncVectorEnv` and in `AsyncVectorEnv(..., shared_memory=False)`; with shared memory the construction of
the vector environment fails with an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from sesa_env.errors import InvalidInput

# Ordered, so that a seed gives the same text in every process; a bit of everything that text handling trips over.
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789     .,;:!?'\"()[]<>/|&é ß Ж ب 東 京 🚀\n"
_LONGEST_SAMPLE = 64


class UnicodeText(Space[str]):
    """All strings of at most `max_length` characters, the empty one included.

    Samples are short (up to 64 characters) and drawn from a small mixed alphabet: they show that any text is accepted,
    not what texts there are.

    Args:
        max_length: at least 1.
        seed: seed of the sampling.

    Raises:
        InvalidInput: `max_length` is not a whole number of at least 1.
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        if not isinstance(max_length, int) or isinstance(max_length, bool) or max_length < 1:
            raise InvalidInput(f"max_length must be a whole number of at least 1, got {max_length!r}")
        self.max_length = max_length
        super().__init__(dtype=str, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a random short text; masks and probabilities do not apply to texts."""
        if mask is not None or probability is not None:
            raise InvalidInput(f"a text space takes no mask and no probability, got {mask!r} and {probability!r}")
        length = self.np_random.integers(0, min(self.max_length, _LONGEST_SAMPLE) + 1)
        return "".join(_ALPHABET[i] for i in self.np_random.integers(0, len(_ALPHABET), size=length))

    def contains(self, x: Any) -> bool:
        """Tell whether `x` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    @property
    def is_np_flattenable(self) -> bool:
        """False: a text is not an array."""
        return False

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """Return a batch of samples as JSON data."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[str]) -> list[str]:
        """Return the samples that `to_jsonable` wrote."""
        return list(sample_n)

    def __repr__(self) -> str:
        return f"UnicodeText(max_length={self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((UnicodeText, self.max_length))
