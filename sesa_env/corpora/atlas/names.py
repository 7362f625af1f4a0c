"""Words for a fictional world: pronounceable, and never the same word in two worlds.

Words are rows of syllables, so they can be numbered; and they are dealt like cards: word number n belongs to world
n modulo `WORLDS`.  Since a word can be cut into syllables in one way only, no two worlds share a word.

    words = Words(0, rng=np.random.default_rng(0), reserved=frozenset())
    words.given[0], words.fresh()

Words that the pages use as English (`reserved`) are skipped; likeness to a real name by chance is not ruled out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from sesa_env.errors import InvalidInput

WORLDS = 509
"""How many worlds with words of their own there are; a prime, so that each of them uses all syllables."""

_GIVEN_NAMES = 70

# A coda is never followed by a vowel and an onset always is: hence the cut into syllables is unique.
_OPEN = tuple(onset + vowel for onset in "bdfghklmnprstv" for vowel in "aeiou")
_ANY = tuple(start + coda for start in _OPEN for coda in ("", "l", "n", "r"))
SYLLABLE = "[bdfghklmnprstv][aeiou](?:[lnr](?![aeiou]))?"
"""A syllable of a coined word in lower case, as a regular expression."""
_SHORT = (_ANY, _ANY)
_LONG = (_ANY, _OPEN, _ANY)


class Words:
    """The words of one world: some `given` names, and `fresh` words that are handed out once.

    Args:
        seed: which world, 0 <= seed < WORLDS, as `generate` has checked.
        rng: decides the order in which the words come.
        reserved: lower-case words that are not handed out.
    """

    def __init__(self, seed: int, *, rng: np.random.Generator, reserved: frozenset[str]) -> None:
        self._seed = seed
        self._rng = rng
        self._reserved = reserved
        short = tuple(self._deal(_SHORT))
        self.given = short[:_GIVEN_NAMES]
        self._fresh = itertools.chain(short[_GIVEN_NAMES:], self._deal(_LONG))

    def fresh(self) -> str:
        """Return a word that was not handed out before: two syllables while there are any, then three.

        Raises:
            InvalidInput: the world has no words left.
        """
        for word in self._fresh:
            return word
        raise InvalidInput(f"entities must be fewer: world {self._seed} has no words left")

    def _deal(self, shape: Sequence[Sequence[str]]) -> Iterator[str]:
        total = int(np.prod([len(syllables) for syllables in shape]))
        for number in self._rng.permutation(np.arange(self._seed, total, WORLDS)).tolist():
            word = _spell(number, shape)
            if word not in self._reserved:
                yield word.capitalize()


def _spell(number: int, shape: Sequence[Sequence[str]]) -> str:
    word = ""
    for syllables in reversed(shape):
        number, digit = divmod(number, len(syllables))
        word = syllables[digit] + word
    return word
