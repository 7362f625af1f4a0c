"""Whether a skill is about a question: one of its triggers stands in it, word by word and in whatever form.

    is_about(skill, "Who was the director of Polar Sky?")      # True for the trigger "who directed"

No model reads here: forms of a word are known by their first letters.
"""

from __future__ import annotations

from sesa_env.text import answer_tokens
from skill_memory.skill import Skill

_STEM = 4
"""Letters that two forms of one word share."""
_ASKING = frozenset(
    (
        *("who", "whom", "whose", "when", "where", "which", "what", "why", "how", "many", "much"),
        *("is", "are", "was", "were", "did", "do", "does", "of", "two", "both"),
    )
)


def is_about(skill: Skill, question: str) -> bool:
    """Whether a trigger of the skill stands in the question; a mere question word ("when") is no trigger."""
    asked = answer_tokens(question)
    triggers = [answer_tokens(trigger) for trigger in skill.triggers]
    return any(_stands_in(trigger, asked) for trigger in triggers if not _ASKING.issuperset(trigger))


def akin(one: str, other: str) -> bool:
    """Whether two words may be forms of one word, by their first letters."""
    length = min(len(one), len(other), _STEM)
    return one == other or (length > 2 and one[:length] == other[:length])


def _stands_in(trigger: list[str], asked: list[str]) -> bool:
    return all(any(akin(word, other) for other in asked) for word in trigger)
