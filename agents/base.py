"""Who can sit at a seat (`Agent`) and what can write tokens (`Policy`).

An agent is anything that turns views into texts; the loop that plays rounds knows nothing else of it.

    texts = agent.act([view, other_view])

A policy is what an LLM agent writes with: token ids in, token ids and their log-probabilities out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from sesa_env.types import View


class Agent(Protocol):
    """Plays one role at any number of seats side by side."""

    def act(self, views: Sequence[View]) -> Sequence[str | None]:
        """Return one text per view, in order; None where the agent cannot go on.  Turn 0 starts a new attempt."""
        ...


class Message(NamedTuple):
    """One turn of a chat: "system", "user" or "assistant", and what was said."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What a policy wrote after one prompt: T ids, their T log-probabilities, and why it stopped.

    `logp_T` are natural logarithms at the sampling temperature, from the weights and the dtype the learner uses.
    """

    token_T: tuple[int, ...]
    logp_T: tuple[float, ...]
    finish: Literal["stop", "end", "length"]


class Policy(Protocol):
    """A language model at the disposal of one role."""

    max_context: int
    """Most tokens of prompt and completion together."""

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, ready for the assistant to continue; contents are plain data."""
        ...

    def encode_reply(self, text: str, *, ended: bool) -> list[int]:
        """Return the ids that follow the assistant's own: its turn closed, a user turn with `text`, its turn reopened.

        Args:
            text: plain data; special tokens in it stay ordinary text.
            ended: whether the assistant already wrote its end-of-turn token.
        """
        ...

    def decode(self, token_T: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out."""
        ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        stop: Sequence[str],
        max_new_tokens: int,
        temperature: float,
        keep: Sequence[str] | None = None,
    ) -> list[Completion]:
        """Continue every prompt until a stop string is written, the model ends its turn, or the limit is reached.

        Args:
            prompts: token ids, one non-empty list per attempt.
            stop: strings that end a turn; the one written is kept.
            max_new_tokens: most tokens written per attempt.
            temperature: of the sampling, over the whole vocabulary; 0 is greedy.
            keep: a name per prompt.  What is computed may be kept under it, so that the next prompt of that name, if it
                goes on where this one and its completion end, costs only what is new in it.
        """
        ...

    def forget(self, names: Iterable[str]) -> None:
        """Free what is kept under these names; unknown ones are fine."""
        ...
