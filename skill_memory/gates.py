"""Who may enter a skill bank and who must leave it: two tables of small rules.

GATES are asked in order, and the first that objects names the refusal.  EVICTION lists the reasons to go.

    refusal = refuse(candidate, surroundings)       # None, or ("novel", "like skill-000012 (0.81)")
    for cause, rule in EVICTION.items():
        leaving = rule(skills, cap)

Source: SESA, sections on admission (cosine) and eviction (helped minus hurt); the other gates answer failures that
other skill memories have had.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skill_memory.abstraction import leak, skill_words
from skill_memory.base import Failure
from skill_memory.encode import Encoder, Vectors
from skill_memory.render import disarm
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill
from skill_memory.store import text_key

TOLERANCE = 1e-5
"""A cosine this little above the threshold counts as equal to it: encoders are not exact to the last digits."""
MIN_RETRIEVED = 3
"""Uses a skill must have had before it can be called harmful (SESA)."""


@dataclass(frozen=True)
class Candidate:
    """A skill that wants to enter, with the failure it was written from (None when written by hand)."""

    skill: Skill
    encoder: Encoder
    failure: Failure | None = None

    @cached_property
    def vector_D(self) -> Vectors:
        """The vector it will be found by."""
        vector_ND = self.encoder.encode_passages([self.skill.text])
        return vector_ND.reshape(-1)


@dataclass(frozen=True)
class Surroundings:
    """What a candidate is compared with: the skills so far, those of this pass included, and those that left."""

    shelf: Shelf
    tombstones: Mapping[str, Skill]
    max_similarity: float
    full: bool = False
    """Whether the bank is at its cap with nothing in it that could make room."""
    taught: Collection[str] = ()
    """Questions from which a skill has been admitted in this pass."""
    examine: Callable[[Skill, Failure], str] | None = None
    """Plays with and without a skill and says what speaks against it; None where skills are not put to the test."""


Gate = Callable[[Candidate, Surroundings], str]


def refuse(candidate: Candidate, surroundings: Surroundings) -> tuple[str, str] | None:
    """Return the first gate that objects and what it says; None when the candidate may enter."""
    for name, gate in GATES.items():
        detail = gate(candidate, surroundings)
        if detail:
            return name, detail
    return None


def parsed(candidate: Candidate, _: Surroundings) -> str:
    """Every part is there and is text."""
    skill = candidate.skill
    if not all(isinstance(part, tuple) for part in (skill.triggers, skill.queries)):
        return "triggers and queries must be tuples"
    texts = [skill.description, skill.avoid, skill.category, *skill.triggers, *skill.queries]
    if not all(isinstance(text, str) for text in texts):
        return "every part must be a string"
    needed = {"description": [skill.description], "triggers": skill.triggers, "queries": skill.queries}
    return next((f"no {name}" for name, part in needed.items() if not any(text.strip() for text in part)), "")


_LIMITS = {"description": 300, "avoid": 200, "category": 40, "trigger": 60, "query": 100}
_MOST_TRIGGERS, _MOST_QUERIES = 8, 3
_UNSAFE = {
    "an order": re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:questions?|instructions?|prompts?|rules|system|above)\b"
        r"|\b(?:answer|reply|respond)\s+(?:with\s+)?[\"'“‘]?(?:\d+|yes|no)\b"
        r"|\byou are now\b|\bsystem prompt\b|\bnew instructions\b|\bpretend (?:to be|that you)\b",
        re.IGNORECASE | re.DOTALL,
    ),
    "an address": re.compile(r"https?:|www\.|\b[\w-]+\.(?:com|org|net|io|dev|info|ru|cn)\b|\S@\S", re.IGNORECASE),
    "a secret": re.compile(r"\b(?:sk|ghp|xox[abp]|AKIA)[-_]?\w{16,}|[A-Za-z0-9+/_=-]{32,}"),
}


def unsafe_text(candidate: Candidate, _: Surroundings) -> str:
    """It is short, plain text without orders, addresses, secrets or control tags."""
    return flaw(candidate.skill)


def flaw(skill: Skill) -> str:
    """Return what makes a text unfit to be shown to a policy; the empty string when nothing."""
    text = skill_words(skill)
    if not text.isprintable() and any(unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cs") for letter in text):
        return "a control character"
    if disarm(text) != " ".join(text.split()):
        return "a control tag"
    folded = unicodedata.normalize("NFKC", text)
    return next((what for what, pattern in _UNSAFE.items() if pattern.search(folded)), _too_long(skill))


def _too_long(skill: Skill) -> str:
    parts = [("description", skill.description), ("avoid", skill.avoid), ("category", skill.category)]
    parts += [("trigger", trigger) for trigger in skill.triggers] + [("query", query) for query in skill.queries]
    for name, text in parts:
        if len(text) > _LIMITS[name]:
            return f"{name} longer than {_LIMITS[name]} characters"
    if len(skill.triggers) > _MOST_TRIGGERS or len(skill.queries) > _MOST_QUERIES:
        return f"more than {_MOST_TRIGGERS} triggers or {_MOST_QUERIES} queries"
    return ""


def abstract(candidate: Candidate, _: Surroundings) -> str:
    """It names nothing of its episode and copies nothing from it."""
    return leak(candidate.skill, candidate.failure) if candidate.failure else ""


def truncated(candidate: Candidate, _: Surroundings) -> str:
    """The encoder reads all of it; else two long skills with one beginning would look alike."""
    return "longer than the encoder reads" if candidate.encoder.truncates(candidate.skill.text) else ""


def echo(candidate: Candidate, surroundings: Surroundings) -> str:
    """It is no copy of a skill that was in the prompt, even of one that has left the bank since."""
    shown = set(candidate.failure.skill_ids) if candidate.failure else ()
    if not shown:
        return ""
    gone = [skill.text for skill in surroundings.tombstones.values() if skill.id in shown]
    vector_KD = np.vstack([surroundings.shelf.vectors_of(shown), candidate.encoder.encode_passages(gone)])
    if not len(vector_KD):
        return ""
    cosine = float(np.max(vector_KD @ candidate.vector_D))
    return f"like a skill that was shown ({cosine:.2f})" if cosine > surroundings.max_similarity + TOLERANCE else ""


def tombstone(candidate: Candidate, surroundings: Surroundings) -> str:
    """It has not been evicted before under the same text."""
    evicted = surroundings.tombstones.get(text_key(candidate.skill))
    return f"evicted before as {evicted.id}" if evicted else ""


def one_per_episode(candidate: Candidate, surroundings: Surroundings) -> str:
    """Its episode has not taught a skill in this pass already: one attempt must not teach a thing and its opposite."""
    taught = candidate.failure is not None and candidate.failure.question_id in surroundings.taught
    return "its question has taught a skill in this pass" if taught else ""


def novel(candidate: Candidate, surroundings: Surroundings) -> str:
    """Its cosine to every skill, those admitted just before it included, is at most the threshold."""
    shelf = surroundings.shelf
    twin = shelf.twin(candidate.skill)
    if twin:
        return f"same text as {twin}"
    if not shelf.skills:
        return ""
    cosine_K = shelf.cosines(candidate.vector_D[None, :])[0]
    nearest = int(np.argmax(cosine_K))
    if float(cosine_K[nearest]) <= surroundings.max_similarity + TOLERANCE:
        return ""
    return f"like {shelf.skills[nearest].id} ({float(cosine_K[nearest]):.2f})"


def room(_: Candidate, surroundings: Surroundings) -> str:
    """The bank is below its cap, or holds a skill that has not helped more than it hurt and can go."""
    return "the bank is full of skills that help" if surroundings.full else ""


def executed(candidate: Candidate, surroundings: Surroundings) -> str:
    """It raises success where it should and lowers it nowhere, if that is asked for; costly, and therefore last."""
    if surroundings.examine is None or candidate.failure is None:
        return ""
    return surroundings.examine(candidate.skill, candidate.failure)


GATES: dict[str, Gate] = {
    "parsed": parsed,
    "unsafe_text": unsafe_text,
    "abstract": abstract,
    "truncated": truncated,
    "echo": echo,
    "tombstone": tombstone,
    "one_per_episode": one_per_episode,
    "novel": novel,
    "room": room,
    "executed": executed,
}


def weakest_first(skills: Sequence[Skill]) -> list[Skill]:
    """Return the skills that may be evicted (seeds may not), lowest net help first; ties by age, then by id."""
    evictable = [skill for skill in skills if not skill.is_seed]
    return sorted(evictable, key=lambda skill: (skill.usage.net, skill.created_step, skill.id))


def harmful(skills: Sequence[Skill], _: int) -> list[Skill]:
    """Skills that were retrieved often enough to judge and hurt more than they helped."""
    return weakest_first([s for s in skills if s.usage.retrieved >= MIN_RETRIEVED and s.usage.net < 0])


def over_cap(skills: Sequence[Skill], cap: int) -> list[Skill]:
    """The weakest skills, as many as there are above the cap."""
    excess = len(skills) - cap
    return weakest_first(skills)[:excess] if excess > 0 else []


EVICTION: dict[str, Callable[[Sequence[Skill], int], list[Skill]]] = {"harmful": harmful, "over_cap": over_cap}
