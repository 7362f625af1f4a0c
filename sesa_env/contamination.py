"""Finding test questions where they must not be: in training questions, in skills, in what a challenger proposes.

Texts are compared after normalisation (`sesa_env.text.normalise_answer`), so case, punctuation, articles and spacing
hide nothing.  A text overlaps with a test question when the two are equal, or when it quotes the whole of one of at
least five words.

    overlaps(train_texts, test_texts)      # [Overlap(train="who wrote DUNE", test="Who wrote Dune?")]
    Blocklist(test_texts).find(skill_text)

A paraphrase is not found; for that, see `sesa_env.novelty.NearDuplicate`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sesa_env.errors import InvalidInput
from sesa_env.text import answer_tokens

QUOTED_WORDS = 5
"""Shortest test question that is looked for inside longer texts; a shorter one may stand anywhere by chance."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training text and the test text that it equals or quotes, both as they were given."""

    train: str
    test: str


class Blocklist:
    """Test questions, ready to be looked up.

    Args:
        texts: the questions; those without a word are left out, since they match nothing.

    Raises:
        InvalidInput: `texts` is a bare string or holds something else than strings.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole: dict[tuple[str, ...], str] = {}
        for text in _checked(texts, "texts"):
            words = tuple(answer_tokens(text))
            if words:
                self._whole.setdefault(words, text)
        self._by_start: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for words in self._whole:
            if len(words) >= QUOTED_WORDS:
                self._by_start[words[:QUOTED_WORDS]].append(words)

    def __len__(self) -> int:
        return len(self._whole)

    def find(self, text: str) -> str | None:
        """Return a test question that the text equals or quotes, None when there is none."""
        words = tuple(answer_tokens(text))
        if words in self._whole:
            return self._whole[words]
        for at in range(len(words) - QUOTED_WORDS + 1):
            for quoted in self._by_start.get(words[at : at + QUOTED_WORDS], ()):
                if words[at : at + len(quoted)] == quoted:
                    return self._whole[quoted]
        return None


def overlaps(train_texts: Iterable[str], test_texts: Iterable[str]) -> list[Overlap]:
    """Return each training text that equals or quotes a test text, with that text, in the order of the training texts.

    Raises:
        InvalidInput: one of the two is a bare string or holds something else than strings.
    """
    blocklist = Blocklist(test_texts)
    found = ((text, blocklist.find(text)) for text in _checked(train_texts, "train_texts"))
    return [Overlap(text, test) for text, test in found if test is not None]


def _checked(texts: Iterable[str], name: str) -> list[str]:
    listed = [texts] if isinstance(texts, str) else list(texts)
    if isinstance(texts, str) or not all(isinstance(text, str) for text in listed):
        raise InvalidInput(f"{name} must be a list of strings, got {texts!r:.80}")
    return listed
