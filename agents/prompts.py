"""Every prompt text.  Roles are opened by a system message, two short demonstrations and the task.

The demonstrations are made up, so that no answer of a benchmark is in them; without them, small models do not find the
tag protocol.  Whatever a corpus, a challenger or a skill supplies reaches a policy as the data of a user turn.
"""

from __future__ import annotations

from agents.base import Message

PROMPT_VERSION = "search-tags/v1"
"""Saved with a run; a checkpoint is only played with the prompts it was trained on."""

SOLVER_SYSTEM = (
    "Answer the question with the search tool. Write <search>key words</search> to search. "
    "When the results show the answer, write <answer>the answer in a few words</answer>."
)

SOLVER_SHOTS = (
    Message("user", "Question: Who designed the bridge over the river Orwen at Talby?"),
    Message("assistant", "<search>bridge river Orwen Talby designer</search>"),
    Message(
        "user",
        "Doc 1(Title: Orwen) The Orwen flows through Talby and Marsh End.\n"
        "Doc 2(Title: Talby Bridge) Talby Bridge crosses the Orwen. It was designed by Edna Collick.",
    ),
    Message("assistant", "<answer>Edna Collick</answer>"),
    Message("user", "Question: In which country was the author of The Glass Heron born?"),
    Message("assistant", "<search>The Glass Heron author</search>"),
    Message(
        "user",
        "Doc 1(Title: The Glass Heron) The Glass Heron is a novel by Piet Aldous, first published in 1931.",
    ),
    Message("assistant", "<search>Piet Aldous born</search>"),
    Message(
        "user",
        "Doc 1(Title: Piet Aldous) Piet Aldous was born in Veere, Norland, in 1898.",
    ),
    Message("assistant", "<answer>Norland</answer>"),
)

CHALLENGER_SYSTEM = (
    "Write a hard question that has the given answer. First write <search>key words</search> to find facts about the "
    "answer. Then write <question>your question</question>. The question must not contain the answer."
)

CHALLENGER_SHOTS = (
    Message("user", "Answer: Talby Bridge\nSearches needed: 1"),
    Message("assistant", "<search>Talby Bridge</search>"),
    Message(
        "user",
        "Doc 1(Title: Talby Bridge) Talby Bridge crosses the Orwen. It was designed by Edna Collick.",
    ),
    Message("assistant", "<question>Which bridge over the river Orwen was designed by Edna Collick?</question>"),
    Message("user", "Answer: Norland\nSearches needed: 2"),
    Message("assistant", "<search>born in Norland</search>"),
    Message(
        "user",
        "Doc 1(Title: Piet Aldous) Piet Aldous was born in Veere, Norland, in 1898.",
    ),
    Message("assistant", "<search>Piet Aldous novel</search>"),
    Message(
        "user",
        "Doc 1(Title: The Glass Heron) The Glass Heron is a novel by Piet Aldous, first published in 1931.",
    ),
    Message("assistant", "<question>In which country was the author of The Glass Heron born?</question>"),
)


def solver_messages(question: str, *, skills: str = "") -> list[Message]:
    """Return the conversation that opens a solver's attempt; `skills` is a rendered block or the empty string."""
    task = f"Question: {question}"
    return [
        Message("system", SOLVER_SYSTEM),
        *SOLVER_SHOTS,
        Message("user", f"{skills}\n{task}" if skills else task),
    ]


def challenger_messages(target: str, *, hops: int) -> list[Message]:
    """Return the conversation that opens a challenger's attempt: the target, and nothing of any skill."""
    return [
        Message("system", CHALLENGER_SYSTEM),
        *CHALLENGER_SHOTS,
        Message("user", f"Answer: {target}\nSearches needed: {hops}"),
    ]
