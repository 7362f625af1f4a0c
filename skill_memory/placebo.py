"""A bank whose skills are shown with other words: as many, as long, found by the same questions, and of no use.

    memory = Placebo(SkillBank(settings, path))
    memory.retrieve(["Who directed ...?"])    # the bank's skills, their texts replaced by remarks about bread and rain

The control arm that tells what skills say from what a longer prompt does.  Everything else goes on as without it: the
bank counts, learns and evicts, and its file is that of a bank.  A part of n characters becomes n other characters.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from skill_memory.bank import SkillBank
from skill_memory.base import Consolidation, Failure, SkillMemory, Use
from skill_memory.batch import Lab
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill

_PROSE = """
Let the dough rest under a damp cloth while the oven warms. A pinch of salt is enough for a small pot of rice. Rain
came in the night and the grass was wet until noon. She keeps her gloves in the drawer beside the lamp. Beans grow up
a string if it is tied to the fence. The kettle sings a little before the water boils. Wool shrinks when it is washed
too hot. They painted the door green in the spring and blue in the autumn. Dry the cups with a soft towel and put them
back on the shelf. The cat sleeps on the warm side of the wall. Cut the apples thin and lay them in rings on the cake.
Snow slid off the roof with a sound like a sigh. He folds his shirts on the bed and hums. A stool with three legs never
rocks. Stir the soup from time to time so that it does not stick. The path behind the barn is muddy after a storm. Soap
made with olive oil is mild and smells of almost nothing. Leave the window open an inch for some fresh air.
"""
_SENTENCES = re.findall(r"\S[^.]*\.", _PROSE)
_FITTING = ("", "a", "so", "the", "warm", "bread", "butter", "kitchen", "saucepan")
"""A word for each number of letters, up to the longest of the prose."""


class Placebo:
    """Shows the skills of a memory in other words, and passes everything else on to it."""

    def __init__(self, memory: SkillMemory) -> None:
        self._memory = memory

    @property
    def snapshot_id(self) -> str:
        """That of the memory, marked: the prompts are others."""
        return f"placebo-{self._memory.snapshot_id}"

    def __len__(self) -> int:
        """Return how many skills are active."""
        return len(self._memory)

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return what the memory would, each skill in other words."""
        found = self._memory.retrieve(questions, exclude_source=exclude_source)
        return [[placebo(skill) for skill in skills] for skills in found]

    def credit(self, uses: Iterable[Use]) -> None:
        """Count help and hurt, as ever."""
        self._memory.credit(uses)

    def offer(self, failure: Failure) -> bool:
        """Queue a failure, as ever."""
        return self._memory.offer(failure)

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Learn and evict, as ever."""
        return self._memory.consolidate(step=step)

    def save(self, path: Path) -> None:
        """Write a complete copy of the memory, in its own words."""
        self._memory.save(path)

    def close(self) -> None:
        """Close the memory; closing twice is harmless."""
        self._memory.close()


class PlaceboBank(Placebo):
    """SESA's bank, shown in other words."""

    def __init__(self, settings: MemorySettings, path: Path) -> None:
        self._bank = SkillBank(settings, path)
        super().__init__(self._bank)

    def equip(self, lab: Lab) -> None:
        """Supply what attribution and the executed gate work with."""
        self._bank.equip(lab)


def placebo(skill: Skill) -> Skill:
    """Return the skill with each part of its text replaced by other words of equal length; the same every time."""
    return replace(
        skill,
        description=_other_words(skill.description),
        triggers=tuple(map(_other_words, skill.triggers)),
        avoid=_other_words(skill.avoid),
        queries=tuple(map(_other_words, skill.queries)),
    )


def _other_words(text: str) -> str:
    """Return as many characters of prose, cut at a word and filled up with one that fits; a last stop stays."""
    body = text.rstrip(".!?")
    start = zlib.crc32(text.encode("utf-8", "replace")) % len(_SENTENCES)
    words = " ".join([*_SENTENCES[start:], *_SENTENCES[:start]]).split()
    if body == text:  # a few words, and no sentence
        words = [word.rstrip(".") for word in words]
    written = ""
    for word in words * (1 + len(body) // 100):
        longer = f"{written} {word}" if written else word
        if len(longer) > len(body):
            break
        written = longer
    gap = len(body) - len(written)
    if written and gap:
        written += f" {_FITTING[gap - 1]}" if gap > 1 else "s"
    return (written or _FITTING[gap]) + text[len(body) :]
