"""The LLM challenger: searches around a target and poses a question about it.

It is built from a policy alone.  No skill memory can reach it: this module imports none, directly or through another,
and a view of a challenger holds none.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.base import Policy
from agents.llm import LLMAgent, Opening
from agents.prompts import challenger_messages
from sesa_env.types import View

STOP = ("</search>", "</question>")


def make_challenger(policy: Policy, *, max_new_tokens: int, temperature: float, demonstrated: bool = True) -> LLMAgent:
    """Return the agent that plays every challenger seat with `policy`."""

    def openings(views: Sequence[View]) -> list[Opening]:
        return [
            Opening(
                challenger_messages(
                    view.target, hops=view.hops, examples=view.examples, demonstrated=demonstrated, tools=view.tools
                )
            )
            for view in views
        ]

    return LLMAgent(policy, openings, stop=STOP, max_new_tokens=max_new_tokens, temperature=temperature)
