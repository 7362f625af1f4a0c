"""Learning from a teacher's play: texts of a scripted or recorded player, in the very tokens a policy would have left.

The teacher plays through the agent and the environment that the policy itself will play through, so prompts, skills,
turn boundaries and masks are those of sampling; only what was written is dictated.

    pupil = Pupil(policy, teacher, lambda pen: make_solver(pen, memory, ...), encode=model.encode)
    attempts = play(games, {"solver": pupil}, retriever)
    for stats in fit(learner, list(pupil.drain().values()), epochs=2, batch=16, seed=0): ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from agents.base import Agent, Completion, Message, Policy
from agents.learner import Learner
from agents.llm import LLMAgent
from agents.tokens import TokenTrajectory
from agents.update import UpdateStats
from sesa_env.errors import InvalidInput
from sesa_env.types import View


class Recorded:
    """Plays again what was played before: the texts of each attempt, turn by turn.

    Args:
        texts: by episode.
    """

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._texts = texts

    def act(self, views: Sequence[View]) -> list[str]:
        """Return each attempt's next text.

        Raises:
            InvalidInput: an attempt was not recorded, or is longer than its record.
        """
        for view in views:
            if view.turn >= len(self._texts.get(view.episode, ())):
                raise InvalidInput(f"turn {view.turn} of {view.episode!r} was not recorded")
        return [self._texts[view.episode][view.turn] for view in views]


class Pen:
    """A policy that writes what it is told, in the tokens of another; it samples nothing, so its logps are 0.

    Args:
        policy: whose chat template and tokenizer are used.
        encode: returns the ids of plain text.
    """

    max_context = sys.maxsize
    """A teacher's attempt is never cut; what is too long is left out afterwards."""

    def __init__(self, policy: Policy, *, encode: Callable[[str], list[int]]) -> None:
        self._policy = policy
        self._encode = encode
        self._texts: list[str] = []

    def dictate(self, texts: Sequence[str]) -> None:
        """Set what is written next, one text for each prompt."""
        self._texts = list(texts)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, as the other policy encodes it."""
        return self._policy.encode_chat(messages)

    def encode_reply(self, text: str, *, ended: bool) -> list[int]:
        """Return the ids that follow the assistant's own, as the other policy encodes them."""
        return self._policy.encode_reply(text, ended=ended)

    def decode(self, token_T: Sequence[int]) -> str:
        """Return the text of ids."""
        return self._policy.decode(token_T)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        stop: Sequence[str],
        max_new_tokens: int,
        temperature: float,
        keep: Sequence[str] | None = None,
    ) -> list[Completion]:
        """Return the dictated texts as completions."""
        ids = [tuple(self._encode(text)) for text, _ in zip(self._texts, prompts, strict=True)]
        return [Completion(token_T=one, logp_T=(0.0,) * len(one), finish="stop") for one in ids]

    def forget(self, names: Iterable[str]) -> None:
        """Free nothing: nothing was computed."""


class Pupil:
    """An agent that plays what its teacher says, and keeps it as the tokens a policy would have left.

    Args:
        policy: the policy that is to learn from it.
        teacher: says what to write.
        make_agent: returns the role's agent for a policy, as for playing.
        encode: returns the ids of plain text.
    """

    def __init__(
        self,
        policy: Policy,
        teacher: Agent,
        make_agent: Callable[[Policy], LLMAgent],
        *,
        encode: Callable[[str], list[int]],
    ) -> None:
        self._teacher = teacher
        self._pen = Pen(policy, encode=encode)
        self._agent = make_agent(self._pen)

    def act(self, views: Sequence[View]) -> Sequence[str | None]:
        """Write what the teacher says at every seat.

        Raises:
            InvalidInput: the teacher has nothing to say at a seat.
        """
        texts = self._teacher.act(views)
        for view, text in zip(views, texts, strict=True):
            if not text:
                raise InvalidInput(f"a teacher must say something at every turn, got {text!r} in {view.episode!r}")
        self._pen.dictate([text for text in texts if text])
        return self._agent.act(views)

    def drain(self) -> dict[str, TokenTrajectory]:
        """Return the attempts since the last call, by episode, and forget them."""
        return self._agent.drain()


def fit(
    learner: Learner, trajectories: Sequence[TokenTrajectory], *, epochs: int, batch: int, seed: int
) -> Iterator[UpdateStats]:
    """Go through the trajectories `epochs` times in mixed order, and yield the statistics of each update.

    Args:
        learner: what is trained.
        trajectories: what to imitate.
        epochs: how often each is seen.
        batch: how many make an update; the last one of an epoch may have fewer.
        seed: of the order.
    """
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(trajectories)).tolist()
        for start in range(0, len(order), batch):
            yield learner.imitate([trajectories[place] for place in order[start : start + batch]])


def updates_of(count: int, *, epochs: int, batch: int) -> int:
    """Return how many updates `fit` makes of `count` trajectories."""
    return epochs * -(-count // batch)
