"""A language model at any number of seats: what challenger and solver have in common.

The agent keeps one growing `TokenSequence` per attempt.  What the policy wrote goes in as sampled; what the environment
answered goes in as the data of a user turn; nothing is ever tokenised twice, and the policy is told under which name
to keep what it computed for each attempt, so that nothing is read twice either.

    texts = agent.act(views)          # one turn at every seat
    trajectories = agent.drain()      # {episode: TokenTrajectory}, once the rounds are settled

How an attempt opens is the role's own business (`Opening`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agents.base import Completion, Message, Policy
from agents.tokens import TokenSequence, TokenTrajectory
from sesa_env.types import View


@dataclass(frozen=True, slots=True)
class Opening:
    """How an attempt begins: the conversation, and which skills of which memory state are in it."""

    messages: list[Message]
    skill_ids: tuple[str, ...] = ()
    snapshot_id: str = ""


@dataclass(slots=True)
class _Attempt:
    opening: Opening
    tokens: TokenSequence = field(default_factory=TokenSequence)
    ended: bool = False
    """Whether the last completion closed its own turn."""
    truncated: bool = False


class LLMAgent:
    """Plays one role with a policy.

    Args:
        policy: writes the texts.
        opener: returns the opening of each new attempt, in order.
        stop: strings that end a turn, next to the closing tags of the tools that a view has.
        max_new_tokens: most tokens per turn.
        temperature: of the sampling; 0 is greedy.
    """

    def __init__(
        self,
        policy: Policy,
        opener: Callable[[Sequence[View]], list[Opening]],
        *,
        stop: Sequence[str],
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        self.policy = policy
        self._opener = opener
        self._stop = tuple(stop)
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature
        self._attempts: dict[str, _Attempt] = {}

    def act(self, views: Sequence[View]) -> list[str | None]:
        """Write one text per view, in order; None where the context is full, and the attempt is marked truncated."""
        self._open([view for view in views if view.turn == 0])
        for view in views:
            if view.turn:
                self._observe(self._attempts[view.episode], view.observation)
        attempts = {view.episode: self._attempts[view.episode] for view in views}
        room = self.policy.max_context - self._max_new_tokens
        for attempt in attempts.values():
            attempt.truncated = attempt.truncated or len(attempt.tokens) > room
        self.policy.forget(episode for episode, attempt in attempts.items() if attempt.truncated)
        writing = {episode: attempt for episode, attempt in attempts.items() if not attempt.truncated}
        tools = dict.fromkeys(tool for view in views for tool in view.tools)
        completions = iter(self._write(writing, stop=(*self._stop, *(f"</{tool}>" for tool in tools))))
        return [
            None if attempt.truncated else self._record(attempt, next(completions)) for attempt in attempts.values()
        ]

    def drain(self) -> dict[str, TokenTrajectory]:
        """Return the attempts played since the last call, by episode, and forget them.

        What came after the last written token is cut off, and an attempt that wrote nothing is left out: neither has
        anything to learn from.
        """
        for attempt in self._attempts.values():
            attempt.tokens.truncate(_end_of_writing(attempt.tokens))
        played = {
            episode: attempt.tokens.freeze(
                episode=episode,
                skill_ids=attempt.opening.skill_ids,
                snapshot_id=attempt.opening.snapshot_id,
                truncated=attempt.truncated,
            )
            for episode, attempt in self._attempts.items()
            if any(attempt.tokens.written_T)
        }
        self.policy.forget(self._attempts)
        self._attempts.clear()
        return played

    def _open(self, views: Sequence[View]) -> None:
        encoded: dict[tuple[Message, ...], list[int]] = {}  # attempts at one question open alike
        for view, opening in zip(views, self._opener(views) if views else [], strict=True):
            attempt = self._attempts[view.episode] = _Attempt(opening)
            conversation = tuple(opening.messages)
            if conversation not in encoded:
                encoded[conversation] = self.policy.encode_chat(opening.messages)
            attempt.tokens.append_context(encoded[conversation])

    def _observe(self, attempt: _Attempt, observation: str) -> None:
        """Add what the environment answered; a user turn needs no tag around it to say that it is data."""
        data = observation.strip().removeprefix("<information>").removesuffix("</information>")
        attempt.tokens.append_context(self.policy.encode_reply(data, ended=attempt.ended))

    def _write(self, attempts: Mapping[str, _Attempt], *, stop: Sequence[str]) -> list[Completion]:
        if not attempts:
            return []
        return self.policy.generate(
            [attempt.tokens.token_T for attempt in attempts.values()],
            stop=stop,
            max_new_tokens=self._max_new_tokens,
            temperature=self._temperature,
            keep=list(attempts),
        )

    def _record(self, attempt: _Attempt, completion: Completion) -> str:
        attempt.tokens.append_written(completion.token_T, completion.logp_T)
        attempt.ended = completion.finish == "end"
        return self.policy.decode(completion.token_T)


def _end_of_writing(tokens: TokenSequence) -> int:
    """Return the length up to and including the last token the policy wrote."""
    return max((place + 1 for place, written in enumerate(tokens.written_T) if written), default=0)
