"""SkillRL's bank: principles for every question, skills for its kind, common mistakes; it grows where success is low.

    memory = SkillRLMemory(MemorySettings(kind="skillrl", k=6, lookup="keyword"), Path("run/bank.sqlite"))
    shown = memory.retrieve(["When was the author of ... born?"])[0]    # 6 general, those of its kind, 5 mistakes

A skill's category says where it belongs: "general", "mistake", or a kind of question.  Every `distil_every` steps the
success of each kind since the last time is measured; for kinds below `success_floor`, up to ten failures go to the
distiller, and at most three new skills come in.  Nothing is ever evicted, and only an equal text is a duplicate.

SkillRL measures and learns on its validation set.  Ours does on the training questions, since no memory here learns
from what it is evaluated on.  New skills join their kind, as the growth that the article reports; SkillRL's code puts
them among the principles.

Source: SkillRL, sections on retrieval and recursive evolution, and its published code.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sesa_env.errors import InvalidInput
from skill_memory.base import Consolidation, Failure, Use, check_questions
from skill_memory.batch import Batch, write_drafts
from skill_memory.card import Malformed
from skill_memory.distill import Distiller, Waiting
from skill_memory.encode import Encoder
from skill_memory.gates import Candidate
from skill_memory.learning import LearningMemory
from skill_memory.revision import Revision
from skill_memory.settings import MemorySettings
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill

GENERAL, MISTAKE = "general", "mistake"
MOST_GENERAL, MOST_MISTAKES = 6, 5
"""Principles and mistakes in a prompt."""
MOST_FAILURES, MOST_NEW = 10, 3
"""Failures that are looked at, and skills that are added, at a time."""

_DIRECT = "direct_retrieval"
_KEY_WORDS = {
    "comparison": re.compile(
        r"\b(?:both|same|in common)\b|\b\w+er\b.*\bor\b|\b(?:more|less|first|earlier|later)\b.*\bor\b"
        r"|^(?:is|are|was|were|do|does|did|has|have)\b.*\b(?:and|or)\b",
        re.IGNORECASE,
    ),
    "multi_hop_reasoning": re.compile(
        r"\bwhose\b|\bof the \w+ (?:of|that|who|which|where|in)\b|\bthe \w+ (?:that|who|which)\b.*\bof\b", re.IGNORECASE
    ),
    "entity_attribute_lookup": re.compile(
        r"^(?:when|where)\b|\bhow (?:many|much|old|long|tall|far|high|big)\b"
        r"|\b(?:what|which) (?:year|date|day|city|country|place|number|nationality|language)\b",
        re.IGNORECASE,
    ),
}
"""Kinds of questions by their words, asked in order; what none of them knows is a direct retrieval."""
_SECTIONS = {
    **{kind: kind for kind in (GENERAL, MISTAKE, _DIRECT, *_KEY_WORDS)},
    **dict.fromkeys(("bridging", "work to creator", "place chain", "family"), "multi_hop_reasoning"),
    **dict.fromkeys(("comparison", "yes or no"), "comparison"),
    **dict.fromkeys(("dates", "quantity"), "entity_attribute_lookup"),
}
"""Where a skill of each category belongs; one of any other category is a principle."""


def kind_of(question: str) -> str:
    """Return the kind of a question, by its key words."""
    return next((kind for kind, words in _KEY_WORDS.items() if words.search(question.strip())), _DIRECT)


class SkillRLMemory(LearningMemory):
    """SkillRL's bank in one file; see the module's docstring.

    Args:
        settings: what to start from, how to find skills, and when to grow.
        path: the file; made, and primed, when there is none.
        encoder: in place of the one the settings name.
        distiller: in place of the one the settings name.
    """

    def __init__(
        self,
        settings: MemorySettings,
        path: Path,
        *,
        encoder: Encoder | None = None,
        distiller: Distiller | None = None,
    ) -> None:
        super().__init__(settings, path, encoder=encoder, distiller=distiller)
        self.cap, self.max_similarity = sys.maxsize, 1.0

    @property
    def snapshot_id(self) -> str:
        """Hash of all that `retrieve` depends on; counters are no part of it."""
        categories = [skill.category for skill in self._shelf.skills]
        key = (super().snapshot_id, self.settings.lookup, categories)
        return hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return principles, the skills for each question or its kind, and common mistakes, in this order.

        Args:
            questions: the texts of Q questions.
            exclude_source: their Q ids, so that no question is shown a skill that was distilled from it; or nothing.

        Raises:
            InvalidInput: a bare string where a sequence belongs, or another number of ids than of questions.
        """
        check_questions(questions, exclude_source)
        shelf = self._shelf
        general, mistakes = (_newest_first(shelf, section) for section in (GENERAL, MISTAKE))
        sources = exclude_source or [""] * len(questions)
        found = []
        for source, own in zip(sources, self._for_questions(shelf, questions, sources), strict=True):
            parts = (general, MOST_GENERAL), (own, len(own)), (mistakes, MOST_MISTAKES)
            found.append([skill for part, most in parts for skill in _without(source, part)[:most]])
        return found

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Learn from failures at the kinds of questions that go badly, if it is time, and empty the queue.

        Raises:
            InvalidInput: the step is negative.
            Exception: whatever the distiller raised, as it is; skills and queue are as they were.
        """
        if step < 0:
            raise InvalidInput(f"step must be at least 0, got {step!r}")
        with self._lock:
            self._tell(step)
            if step % self.settings.distil_every:
                return None
            waiting = self._queue.waiting()
            chosen = _worst_first(waiting, self._rates(), below=self.settings.success_floor)[:MOST_FAILURES]
        drafts = write_drafts(self._distiller, Batch(tuple(chosen))) if chosen else []
        with self._revising(step=step) as revision:
            postponed = set()
            for item, written in zip(chosen, drafts, strict=True):
                if written is None:
                    revision.postpone(item.failure)
                    postponed.add(item.number)
                for part in written or ():
                    self._judge(revision, part, item.failure)
            done = [item for item in waiting if item.number not in postponed]
            self._queue.drain(done, step=revision.step)
            return revision.summary(drained=len(done))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _start(self) -> list[Skill]:
        return [part for skill in super()._start() for part in _placed(skill)]

    def _count(self, use: Use, revision: Revision) -> None:
        """Count the skills, and keep the outcome by the kind of the question."""
        super()._count(use, revision)
        if use.question:
            step, kind = self._tell(use.step), kind_of(use.question)
            self._store.log("outcome", step=step, cause=kind, question_id=use.question_id, solve_rate=use.solve_rate)

    def _rates(self) -> dict[str, float]:
        """Return the success rate of each kind since the last consolidation."""
        rates = defaultdict[str, list[float]](list)
        for event in self._store.events():
            if event.kind == "consolidate":
                rates.clear()
            elif event.kind == "outcome":
                rates[event.cause].append(event.data["solve_rate"])
        return {kind: sum(found) / len(found) for kind, found in rates.items()}

    def _judge(self, revision: Revision, part: Skill | Malformed, failure: Failure) -> None:
        if isinstance(part, Malformed):
            revision.discard(part, failure)
        elif revision.count_admitted < MOST_NEW:
            skill = replace(part, category=kind_of(failure.question))
            revision.admit(Candidate(skill, self._encoder, failure), cause="distilled")

    def _for_questions(self, shelf: Shelf, questions: Sequence[str], sources: Sequence[str]) -> list[list[Skill]]:
        """Return the skills for each question: all of its kind, or the k nearest of any kind."""
        if self.settings.lookup == "keyword":
            return [_newest_first(shelf, kind_of(question)) for question in questions]
        shown_anyway = {skill.id for skill in shelf.skills if skill.category in (GENERAL, MISTAKE)}
        vector_QD = self._encoder.encode_queries(questions)
        specific = shelf.minus(shown_anyway)
        return specific.best(vector_QD, k=self.settings.k, floor=self.settings.floor, exclude_source=sources)


def _newest_first(shelf: Shelf, category: str) -> list[Skill]:
    """Return the skills of a section: what was learned, newest first, then what the bank began with."""
    skills = [skill for skill in shelf.skills if skill.category == category]
    learned = [skill for skill in reversed(skills) if not skill.is_seed]
    return learned + [skill for skill in skills if skill.is_seed]


def _without(source: str, skills: Sequence[Skill]) -> list[Skill]:
    return [skill for skill in skills if not source or skill.source != source]


def _worst_first(waiting: Sequence[Waiting], rates: dict[str, float], *, below: float) -> list[Waiting]:
    """Return the failures at kinds of questions whose rate is too low, those of the lowest first."""
    rated = [(rates.get(kind_of(item.failure.question), 1.0), item) for item in waiting]
    return [item for rate, item in sorted(rated, key=lambda pair: pair[0]) if rate < below]


def _placed(skill: Skill) -> Iterator[Skill]:
    """Put a skill into its section; what a principle warns of becomes a common mistake of its own."""
    section = _SECTIONS.get(skill.category, GENERAL)
    if section != GENERAL or not skill.avoid:
        yield replace(skill, category=section)
        return
    yield replace(skill, category=section, avoid="")
    id = skill.id and f"{skill.id}-mistake"
    text = f"A common mistake: {skill.avoid}."
    yield replace(skill, id=id, category=MISTAKE, description=text, triggers=(), avoid="", queries=())
