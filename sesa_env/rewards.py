"""What answers and questions earn: exact match, F1 and containment for solvers, the frontier reward for challengers.

Pure functions of texts and numbers.  Each of the three answer measures is the maximum over all accepted answers, and a
missing or empty prediction earns nothing under any of them.

    exact_match("The Nile", ["Nile"])            # True
    frontier_reward(0.4, penalty=0.5)            # 0.96

Only exact match is meant for training: containment pays for listing every answer there is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from sesa_env.errors import InvalidInput
from sesa_env.text import answer_tokens, contains_answer, normalise_answer

if TYPE_CHECKING:
    from sesa_env.game import GameSettings


def exact_match(prediction: str | None, answers: Sequence[str]) -> bool:
    """Tell whether the normalised prediction equals one of the normalised answers.

    Source: Search-R1, section on rule-based rewards; the normalisation is `sesa_env.text.normalise_answer`.
    """
    normalised = normalise_answer(prediction or "")
    return bool(normalised) and normalised in _normalised(tuple(_checked(answers)))


def f1(prediction: str | None, answers: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of the prediction's words, for the best accepted answer.

    Chinese and Japanese count by character.  Never below `exact_match`.
    """
    predicted = Counter(answer_tokens(prediction or ""))
    return max(_overlap(predicted, Counter(answer_tokens(answer))) for answer in _checked(answers))


def containment(prediction: str | None, answers: Sequence[str]) -> bool:
    """Tell whether the prediction has one of the answers in it as whole words.  Never below `exact_match`."""
    return any(contains_answer(prediction or "", answer) for answer in _checked(answers))


def frontier_reward(solve_rate: float, *, penalty: float, low: float = 0.0, high: float = 1.0) -> float:
    """Pay a challenger most for a question that is solved half the time, and fine it for one solved always or never.

    `4 (low + p) (high - p)` for 0 < p < 1, else `-penalty`.  Source: SESA, frontier reward (r_p, with lambda the
    penalty, l = 0 and h = 1); with penalty 0 it is the option "intermediate_difficulty" of SSP.

    Args:
        solve_rate: solved attempts / scored attempts of this one question, in [0, 1].
        penalty: lambda, at least 0.
        low: shifts the rising side of the parabola.
        high: shifts the falling side.

    Raises:
        InvalidInput: solve rate or penalty out of range.
    """
    _check_rate(solve_rate)
    if not 0.0 <= penalty < math.inf:
        raise InvalidInput(f"penalty must be finite and at least 0, got {penalty!r}")
    if solve_rate in (0.0, 1.0):
        return 0.0 - penalty  # a penalty of 0 gives 0.0, not -0.0
    return 4.0 * (low + solve_rate) * (high - solve_rate)


def one_minus_p(solve_rate: float) -> float:
    """Pay a challenger for each failed attempt alike.  Source: SSP, reward of the proposer."""
    _check_rate(solve_rate)
    return 1.0 - solve_rate


def _check_rate(solve_rate: float) -> None:
    if not 0.0 <= solve_rate <= 1.0:
        raise InvalidInput(f"solve_rate must lie in [0, 1], got {solve_rate!r}")


def _checked(answers: Sequence[str]) -> list[str]:
    """Return the answers as a list; a bare string is one answer, not a sequence of letters."""
    listed = [answers] if isinstance(answers, str) else list(answers)
    if not listed or not all(isinstance(answer, str) for answer in listed):
        raise InvalidInput(f"answers must be a non-empty sequence of strings, got {answers!r}")
    return listed


@lru_cache(maxsize=4096)  # all attempts at a question are compared with the same answers
def _normalised(answers: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(normalise_answer, answers))


def _overlap(predicted: Counter[str], gold: Counter[str]) -> float:
    shared = (predicted & gold).total()
    return 2.0 * shared / (predicted.total() + gold.total()) if shared else 0.0


# The rewards a challenger can be paid by, as `CHALLENGER_REWARDS` names them.


def frontier(solve_rate: float, settings: GameSettings) -> float:
    """Pay the frontier reward with the penalty and bounds of the settings (SESA)."""
    return frontier_reward(solve_rate, penalty=settings.penalty, low=settings.low, high=settings.high)


def one_minus_solve_rate(solve_rate: float, settings: GameSettings) -> float:
    """Pay 1 - p (SSP)."""
    return one_minus_p(solve_rate)


def format_only(solve_rate: float, settings: GameSettings) -> float:
    """Pay 1 for any question that passed the validators, however hard: a control that rewards no difficulty."""
    return 1.0


def uncertainty(solve_rate: float, settings: GameSettings) -> float:
    """Pay 1 - 2 |p - 1/2|: a tent with its top at one half, without a fine at the ends.

    Source: R-Zero, uncertainty reward of the challenger.
    """
    _check_rate(solve_rate)
    return 1.0 - 2.0 * abs(solve_rate - 0.5)


def learnability(solve_rate: float, settings: GameSettings) -> float:
    """Pay 1 - p for a question that is solved sometimes, nothing for one solved always or never.

    Source: Absolute Zero, learnability reward of the proposer.
    """
    return one_minus_p(solve_rate) if solve_rate != 0.0 else 0.0
