"""Checks that compare a proposed question with others: recent ones, recent targets, and the questions of the tests.

Each is an object of one run; `accept` tells it of the questions that passed the whole chain.

    chain = ValidatorChain(["format", "leak", NearDuplicate(threshold=0.8), TargetShare(), EvalOverlap(test_questions)])
    chain = ValidatorChain(["near_duplicate", "target_share"], checks=CheckSettings(similarity=0.8))      # by name

Source: repetition is the first thing that self-play degenerates to; R-Zero fines it, Absolute Zero conditions on past
tasks.  Similarity of words does not know what words mean: pass `encode` to compare with an encoder's vectors instead.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sesa_env.contamination import Blocklist
from sesa_env.corpora.questions import load_questions
from sesa_env.errors import InvalidInput, SettingsError
from sesa_env.retrieval.terms import terms
from sesa_env.text import normalise_answer
from sesa_env.types import Question

if TYPE_CHECKING:
    from sesa_env.checks import CheckSettings, Means
    from sesa_env.game import GameSettings
    from sesa_env.validators import Proposal

log = logging.getLogger(__name__)

DIMENSIONS = 4096
STEM_CHARS = 5  # "floods", "flooded" and "flooding" are one word to a comparison
_STOP_WORDS = (
    "a an and are as at be been being but by can could did do does for from get had has have he her him his how i in "
    "into is it its me my name of on or our s she so that the their them then there these they this those to us was we "
    "were what when where which while who whom whose why will with would you your"
)
_IGNORED = frozenset(_STOP_WORDS.split())

Encode = Callable[[str], np.ndarray]


def hashed_words(text: str) -> np.ndarray:
    """Return a unit vector (D,) that counts the content words of a text by their beginnings, hashed; order is lost.

    Zero for a text of stop words only.  Source: feature hashing (Weinberger et al. 2009), without signs.
    """
    vector_D = np.zeros(DIMENSIONS, dtype=np.float32)
    for term in terms(text):
        if term not in _IGNORED:
            vector_D[zlib.crc32(term[:STEM_CHARS].encode()) % DIMENSIONS] += 1.0
    return _unit(vector_D)


class NearDuplicate:
    """Refuses a question too similar to one of the recently accepted ones.

    With the default vectors, rewordings of one question lie above 0.85 and questions that share one topic below 0.75;
    a long template filled with another name also lies above, and is refused too.

    Args:
        threshold: cosine similarity from which on a question counts as a repetition, above 0 and at most 1.
        recent: how many accepted questions are remembered.
        encode: text -> vector (D,), of any length but 0 the same for all texts.

    Raises:
        InvalidInput: threshold or size out of range.
    """

    name: ClassVar[str] = "near_duplicate"

    def __init__(self, *, threshold: float = 0.85, recent: int = 512, encode: Encode = hashed_words) -> None:
        if not 0.0 < threshold <= 1.0:
            raise InvalidInput(f"threshold must lie in (0, 1], got {threshold!r}")
        _at_least_one(recent=recent)
        self.threshold = threshold
        self._encode = encode
        self._recent: deque[tuple[str, np.ndarray]] = deque(maxlen=recent)

    @classmethod
    def from_settings(cls, checks: CheckSettings, means: Means) -> NearDuplicate:
        """Return the check that the settings describe."""
        return cls(threshold=checks.similarity, recent=checks.recent)

    def __call__(self, proposal: Proposal, settings: GameSettings) -> str:
        """Refuse a question whose cosine similarity to a remembered one reaches the threshold."""
        if not self._recent:
            return ""
        vector_D = _unit(self._encode(proposal.text))
        similarity_N = np.stack([vector for _, vector in self._recent]) @ vector_D
        nearest = int(similarity_N.argmax())
        if similarity_N[nearest] < self.threshold - 1e-6:  # equal texts may miss 1 by rounding
            return ""
        return f"similarity {similarity_N[nearest]:.2f} to {self._recent[nearest][0]!r}"

    def accept(self, proposal: Proposal) -> None:
        """Remember the question."""
        self._remember(proposal.text)

    def get_state(self) -> dict[str, Any]:
        """Return the remembered questions; their vectors follow from them."""
        return {"texts": [text for text, _ in self._recent]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        texts = list(state["texts"])
        self._recent.clear()
        for text in texts:
            self._remember(text)

    def _remember(self, text: str) -> None:
        self._recent.append((text, _unit(self._encode(text))))


class TargetShare:
    """Refuses a question whose target has had its share of the accepted questions in a window of recent proposals.

    The window counts the proposals that came here, refused ones included, so that a target is free again after a while
    even when all others are blocked too.

    Args:
        share: largest part of the window that one target may have, above 0 and at most 1.
        window: how many proposals it is long.

    Raises:
        InvalidInput: share or window out of range, or the share is less than one question.
    """

    name: ClassVar[str] = "target_share"

    def __init__(self, *, share: float = 0.2, window: int = 100) -> None:
        if not 0.0 < share <= 1.0:
            raise InvalidInput(f"share must lie in (0, 1], got {share!r}")
        _at_least_one(window=window)
        self.most = int(share * window + 1e-9)
        if self.most < 1:
            raise InvalidInput(f"share of a window of {window} must be at least one question, got {share!r}")
        self.window = window
        self._seen = 0
        self._accepted: deque[tuple[int, str]] = deque()

    @classmethod
    def from_settings(cls, checks: CheckSettings, means: Means) -> TargetShare:
        """Return the check that the settings describe."""
        return cls(share=checks.target_share, window=checks.target_window)

    @property
    def counts(self) -> Counter[str]:
        """How many questions of the window each target has, by its normalised answer: the coverage of the run."""
        return Counter(target for _, target in self._accepted)

    def __call__(self, proposal: Proposal, settings: GameSettings) -> str:
        """Refuse a question whose target has `share * window` accepted ones already."""
        self._seen += 1
        while self._accepted and self._accepted[0][0] <= self._seen - self.window:
            self._accepted.popleft()
        had = self.counts[_target_of(proposal)]
        if had < self.most:
            return ""
        log.warning("target %r has %d of the last %d questions", proposal.target.answer, had, self.window)
        return f"target {proposal.target.answer!r} has {had} of the last {self.window}"

    def accept(self, proposal: Proposal) -> None:
        """Count the question for its target."""
        self._accepted.append((self._seen, _target_of(proposal)))

    def get_state(self) -> dict[str, Any]:
        """Return how many proposals came, and which of them were accepted for which target."""
        return {"seen": self._seen, "accepted": [list(pair) for pair in self._accepted]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        accepted = deque((int(at), str(target)) for at, target in state["accepted"])
        self._seen, self._accepted = int(state["seen"]), accepted


class EvalOverlap:
    """Refuses a question that is, or quotes, one of the tests' questions up to case, punctuation and articles.

    Args:
        questions: of the tests, as texts or records.

    Raises:
        InvalidInput: there is no question with a word in it: a blocklist that blocks nothing is a mistake.
    """

    name: ClassVar[str] = "eval_overlap"

    def __init__(self, questions: Iterable[str | Question]) -> None:
        self._blocklist = Blocklist(item.text if isinstance(item, Question) else item for item in questions)
        if not len(self._blocklist):
            raise InvalidInput("questions must hold at least one question, got none")

    @classmethod
    def from_settings(cls, checks: CheckSettings, means: Means) -> EvalOverlap:
        """Return the check against the settings' test questions.

        Raises:
            SettingsError: they name none.
            CorpusError: a file cannot be read.
        """
        if not checks.test_questions:
            raise SettingsError('validator "eval_overlap" needs checks.test_questions, got none')
        return cls(question for source in checks.test_questions for question in load_questions(source))

    def __call__(self, proposal: Proposal, settings: GameSettings) -> str:
        """Refuse a question that stands in the blocklist."""
        found = self._blocklist.find(proposal.text)
        return f"it is the test question {found!r}" if found is not None else ""


def _target_of(proposal: Proposal) -> str:
    return normalise_answer(proposal.target.answer)


def _unit(vector_D: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector_D))
    unit_D: np.ndarray = vector_D / length if length else vector_D
    return unit_D


def _at_least_one(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(f"{name} must be a whole number, at least 1, got {value!r}")
