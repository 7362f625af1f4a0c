"""A solver's seat for reinforcement learning without language: a vector to look at, a number to act with.

Stable-Baselines3 takes Box observations and Discrete actions, and no text.  Here an action picks a template and the
candidate that fills it: search for a name, search for a name with the question's words, answer with a name.

    env = TemplateActions(gymnasium.make("SESA-Solve-v0"))
    model = stable_baselines3.PPO("MlpPolicy", env).learn(100_000)

It is for small policies on a CPU and for checks that learning works; it is not how a language model is trained.  The
observation is computed from what a text policy is shown (question, results, turns left) and from nothing else.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from zlib import crc32

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from sesa_env.adapters.candidates import Candidate, Result, content_words, find_candidates, read_results
from sesa_env.errors import InvalidInput, SearchUnavailable

SLOTS = 12
"""Candidates that an action can point at."""
BUCKETS = 64
"""Places of the hashed question."""
TEMPLATES = ("search", "search_with_question_words", "answer")
"""What can be done with a candidate; action `SLOTS * t + i` does template t with candidate i."""
UNKNOWN = "I do not know"
"""What is answered by the last action, which gives up."""

Observation = NDArray[np.float32]
_GLOBALS = 6
_PER_SLOT = 14


class TemplateActions(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A text environment as a solver with a fixed number of actions sees it.

    The action is a number below `3 * slots + 2`: `slots` for each of `TEMPLATES`, then "search for the question" and
    "give up".  An action that points at an empty slot is a turn without a valid action; `action_masks` tells which are.

    The observation holds the hashed words and word pairs of the question with its names masked, six counters, and 14
    numbers for each slot (`slot_features`).  Candidates are the question's names, then those of the latest results that
    found anything, in order; so a slot has no meaning of its own, and features must tell which to choose.

    Args:
        env: an environment whose observation has `question`, `observation` and `turns_left`, as `SESA-Solve-v0`.
        slots: candidates to choose among.

    Raises:
        InvalidInput: the environment is another one, or `slots` is below 1.
    """

    def __init__(self, env: gymnasium.Env[dict[str, Any], str], *, slots: int = SLOTS) -> None:
        RecordConstructorArgs.__init__(self, slots=slots)  # what an EnvSpec needs to make it again
        gymnasium.Wrapper.__init__(self, env)
        parts = set(env.observation_space) if isinstance(env.observation_space, Dict) else set()
        if not {"question", "observation", "turns_left"} <= parts:
            raise InvalidInput(
                f"env must show a question, an observation and turns_left, as a solver sees, got {env!r}"
            )
        if slots < 1:
            raise InvalidInput(f"slots must be at least 1, got {slots!r}")
        self.slots = slots
        self._actions = len(TEMPLATES) * slots + 2
        self.action_space = Discrete(self._actions)
        self.observation_space = Box(0.0, 1.0, shape=(BUCKETS + _GLOBALS + slots * _PER_SLOT,), dtype=np.float32)
        self._begin("", turns_left=1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new round; arguments and info are those of the environment inside."""
        shown, info = self.env.reset(seed=seed, options=options)
        self._begin(shown["question"], turns_left=shown["turns_left"])
        return self._observe(), info

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play the text that the action stands for.

        Raises:
            InvalidInput: the action is not in the action space.
            SearchUnavailable: the search tool failed; the attempt has no reward to learn from.
        """
        shown, reward, terminated, truncated, info = self.env.step(self.text(action))
        if not info.get("usable", True):
            raise SearchUnavailable(
                f"the attempt at {self.question!r} was not scored, so there is nothing to learn from it"
            )
        self._take(int(action), shown)
        return self._observe(), float(reward), terminated, truncated, info

    def text(self, action: np.int64 | int) -> str:
        """Return what an action writes now; "" for an empty slot.

        Raises:
            InvalidInput: the action is not in the action space.
        """
        if not self.action_space.contains(action):
            raise InvalidInput(f"action must be a whole number in [0, {self._actions}), got {action!r}")
        template, slot = divmod(int(action), self.slots)
        if template == len(TEMPLATES):
            return f"<search>{self.question}</search>" if slot == 0 else f"<answer>{UNKNOWN}</answer>"
        if slot >= len(self.candidates):
            return ""
        name = self.candidates[slot].name
        if template == 2:
            return f"<answer>{name}</answer>"
        return f"<search>{' '.join([name, *self._words] if template else [name])}</search>"

    def action_masks(self) -> NDArray[np.bool_]:
        """Return for each action whether it writes anything; the name is that of sb3-contrib's MaskablePPO."""
        filled = np.arange(self.slots) < len(self.candidates)
        return np.concatenate([np.tile(filled, len(TEMPLATES)), [True, True]])

    def _begin(self, question: str, *, turns_left: int) -> None:
        self.question = question
        self._words = content_words(question)
        self._turns_left = self._turns = turns_left
        self._searched: set[str] = set()
        self._searches = 0
        self._results: list[Result] = []
        self.candidates: list[Candidate] = find_candidates(question, (), limit=self.slots)
        self._hashed = _hashed_question(question, [candidate.name for candidate in self.candidates])

    def _take(self, action: int, shown: dict[str, Any]) -> None:
        """Remember what the action was and read what it brought."""
        template, slot = divmod(action, self.slots)
        focus = self.candidates[slot].name if slot < len(self.candidates) and template < 2 else ""
        self._turns_left = shown["turns_left"]
        if focus:
            self._searched.add(focus)
        results = read_results(shown["observation"])
        if results:
            self._searches += 1
            self.candidates = find_candidates(self.question, results, limit=self.slots, focus=focus)
        self._results = results

    def _observe(self) -> Observation:
        counters = [
            self._turns_left / self._turns,
            float(self._turns_left == 1),
            self._searches / self._turns,
            float(bool(self._results)),
            len(self.candidates) / self.slots,
            sum(candidate.in_question for candidate in self.candidates) / self.slots,
        ]
        slot_SF = np.zeros((self.slots, _PER_SLOT), dtype=np.float32)
        for place, candidate in enumerate(self.candidates):
            slot_SF[place] = slot_features(candidate, searched=candidate.name in self._searched)
        return np.concatenate([self._hashed, np.array(counters, dtype=np.float32), slot_SF.ravel()])


def slot_features(candidate: Candidate, *, searched: bool) -> list[float]:
    """Return what the observation says about one candidate: 14 numbers in [0, 1]."""
    ranks = [float(candidate.rank == rank) for rank in range(3)]
    return [
        1.0,
        float(candidate.in_question),
        float(searched),
        *ranks,
        float(candidate.is_title),
        float(candidate.beside_focus),
        float(not candidate.is_number),
        float(candidate.is_year),
        float(" " in candidate.name),
        candidate.overlap,
        candidate.nearness,
        min(candidate.mentions, 4) / 4,
    ]


def _hashed_question(question: str, names: list[str]) -> Observation:
    """Return which buckets the words and word pairs of the question fall into, its names being one word."""
    for name in sorted(names, key=len, reverse=True):
        question = question.replace(name, "_")
    words = question.lower().rstrip("?").split()
    bucket_B = np.zeros(BUCKETS, dtype=np.float32)
    for gram in [*words, *map(" ".join, pairwise(words))]:
        bucket_B[crc32(gram.encode("utf-8", "surrogatepass")) % BUCKETS] = 1.0
    return bucket_B
