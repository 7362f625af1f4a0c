"""The solver as a reader: it answers from passages that it is given, and has no search tool.

    reader = PolicyReader(policy, max_new_tokens=48)
    reader.answer([Reading("Who wrote The Salt Road?", "Doc 1(Title: Orla Venn) ...")])     # ["Orla Venn"]

It is asked whether a proposed question follows from what its challenger found (`sesa_env.verification`).  The passages
stand where the results of a search stand in a solver's attempt, so that any policy knows what to do with them.
What it writes is counted and forgotten: nobody learns from it.  It decodes greedily, so that a resumed run hears the
same answers.
SSP lets a frozen, larger model read instead (`game.checks.answerer=chat`); the run's own solver needs nothing besides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agents.base import Policy
from agents.prompts import reader_messages
from sesa_env.answerers import Reading
from sesa_env.text import read_action
from sesa_env.types import SOLVER

STOP = ("</answer>", "</search>")


class PolicyReader:
    """Answers all questions of a tick in one call of a policy; whatever is not an answer is none.

    Args:
        policy: writes the answers.
        max_new_tokens: most tokens of an answer.
        demonstrated: whether prompts begin with instructions and demonstrations.

    Attributes:
        numbers: how many tokens were read and written so far.
    """

    def __init__(self, policy: Policy, *, max_new_tokens: int, demonstrated: bool = True) -> None:
        self._policy = policy
        self._max_new_tokens = max_new_tokens
        self._demonstrated = demonstrated
        self.numbers: Counter[str] = Counter(tokens_read=0, tokens_written=0)

    def fits(self, reading: Reading) -> bool:
        """Tell whether the prompt leaves room for an answer in the policy's context."""
        return len(self._prompt(reading)) + self._max_new_tokens <= self._policy.max_context

    def answer(self, readings: Sequence[Reading]) -> list[str]:
        """Return the answer to each question, "" where the policy wrote none."""
        prompts = [self._prompt(reading) for reading in readings]
        completions = self._policy.generate(prompts, stop=STOP, max_new_tokens=self._max_new_tokens, temperature=0.0)
        self.numbers["tokens_read"] += sum(map(len, prompts))
        self.numbers["tokens_written"] += sum(len(completion.token_T) for completion in completions)
        actions = [read_action(self._policy.decode(completion.token_T), role=SOLVER) for completion in completions]
        return [action.text if action.kind == "answer" else "" for action in actions]

    def _prompt(self, reading: Reading) -> list[int]:
        messages = reader_messages(reading.question, reading.materials, demonstrated=self._demonstrated)
        return self._policy.encode_chat(messages)
