"""Every prompt text.  Roles are opened by a system message, two short demonstrations and the task.

The demonstrations are made up, so that no answer of a benchmark is in them; without them, small models do not find the
tag protocol.  Whatever a corpus, a challenger or a skill supplies reaches a policy as the data of a user turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


TOOL_SENTENCES = {
    "open": "Write <open>a title</open> to read the whole page of that title.",
    "find": "Write <find>a text</find> to find a text in the page you opened last.",
}
"""Said only where the rules give the tool, like the demonstrations below."""

_LIGHTHOUSE = (
    Message("assistant", "<search>lighthouse of Marsh End</search>"),
    Message("user", "Doc 1(Title: Marsh End) Marsh End is a village at the mouth of the Orwen, known for…"),
)
_PAGE = "Page(Title: Marsh End) Marsh End is a village at the mouth of the Orwen, known for its eels. "
SOLVER_TOOL_SHOTS = {
    "open": (
        Message("user", "Question: Who built the lighthouse of Marsh End?"),
        *_LIGHTHOUSE,
        Message("assistant", "<open>Marsh End</open>"),
        Message("user", f"{_PAGE}Its lighthouse was built by Titus Wray."),
        Message("assistant", "<answer>Titus Wray</answer>"),
    ),
    "find": (
        Message("user", "Question: How tall is the lighthouse of Marsh End?"),
        *_LIGHTHOUSE,
        Message("assistant", "<open>Marsh End</open>"),
        Message("user", f"{_PAGE}Its church is…\n[cut: the page has 9000 characters]"),
        Message("assistant", "<find>lighthouse</find>"),
        Message("user", "Doc 1(Title: Marsh End) …the lighthouse, 31 metres tall, is still lit every night…"),
        Message("assistant", "<answer>31 metres</answer>"),
    ),
}
CHALLENGER_TOOL_SHOTS = {
    "open": (
        Message("user", "Answer: Titus Wray\nSearches needed: 1"),
        *_LIGHTHOUSE,
        Message("assistant", "<open>Marsh End</open>"),
        Message("user", f"{_PAGE}Its lighthouse was built by Titus Wray."),
        Message("assistant", "<question>Who built the lighthouse at the mouth of the river Orwen?</question>"),
    ),
    "find": (
        Message("user", "Answer: 31 metres\nSearches needed: 1"),
        *SOLVER_TOOL_SHOTS["find"][1:-1],
        Message("assistant", "<question>How tall is the lighthouse at the mouth of the river Orwen?</question>"),
    ),
}


def solver_messages(
    question: str, *, skills: str = "", demonstrated: bool = True, tools: Sequence[str] = ()
) -> list[Message]:
    """Return the conversation that opens a solver's attempt.

    Args:
        question: the task.
        skills: a rendered block, or the empty string.
        demonstrated: whether instructions and demonstrations come first; a policy trained on the protocol needs none.
        tools: those that the rules give next to search, "open" and "find".
    """
    task = f"Question: {question}"
    opening = _opening(SOLVER_SYSTEM, SOLVER_SHOTS, SOLVER_TOOL_SHOTS, tools) if demonstrated else []
    return [*opening, Message("user", f"{skills}\n{task}" if skills else task)]


def reader_messages(question: str, materials: str, *, demonstrated: bool = True) -> list[Message]:
    """Return the conversation in which a solver is to answer from given passages, as if it had searched for them."""
    search = Message("assistant", f"<search>{question}</search>")
    return [*solver_messages(question, demonstrated=demonstrated), search, Message("user", materials)]


def challenger_messages(
    target: str,
    *,
    hops: int,
    examples: Sequence[str] = (),
    demonstrated: bool = True,
    tools: Sequence[str] = (),
) -> list[Message]:
    """Return the conversation that opens a challenger's attempt: the target, and nothing of any skill.

    Args:
        target: the answer that the question must have.
        hops: how many searches it should take.
        examples: questions that came with the target, to show what a good one looks like.
        demonstrated: whether instructions and demonstrations come first.
        tools: those that the rules give next to search, "open" and "find".
    """
    opening = _opening(CHALLENGER_SYSTEM, CHALLENGER_SHOTS, CHALLENGER_TOOL_SHOTS, tools) if demonstrated else []
    shown = "".join(f"Example question: {example}\n" for example in examples)
    return [*opening, Message("user", f"{shown}Answer: {target}\nSearches needed: {hops}")]


def _opening(
    system: str, shots: Sequence[Message], tool_shots: Mapping[str, Sequence[Message]], tools: Sequence[str]
) -> list[Message]:
    instructions = " ".join([system, *(TOOL_SENTENCES[tool] for tool in tools)])
    return [Message("system", instructions), *shots, *(message for tool in tools for message in tool_shots[tool])]
