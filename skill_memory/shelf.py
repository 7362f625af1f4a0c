"""The skills of one moment with their vectors, ready to be ranked; immutable, so that a reader never sees a change.

    shelf = Shelf(skills, vector_KD)
    shelf.best(vector_QD, k=3, floor=-1.0, exclude_source=["q1"])
    shelf = shelf.plus(skill, vector_D)

K is the number of skills, D that of the encoder's dimensions, Q that of questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skill_memory.encode import Vectors
from skill_memory.skill import Skill

_DIGITS = 5
"""Cosines closer than this many digits are ties: an encoder's last digits depend on its batches."""


@dataclass(frozen=True)
class Shelf:
    """K skills, oldest first, and their (K, D) vectors of length 1, row by row."""

    skills: tuple[Skill, ...]
    vector_KD: Vectors

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of the skills."""
        return frozenset(skill.id for skill in self.skills)

    @cached_property
    def texts_hash(self) -> str:
        """Hash of all that a prompt could show of the skills, and of their sources; counters are no part of it."""
        texts = [(s.id, s.description, s.triggers, s.avoid, s.queries, s.source) for s in self.skills]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    def plus(self, skill: Skill, vector_D: Vectors) -> Shelf:
        """Return this shelf with one more skill at its end."""
        return Shelf((*self.skills, skill), np.vstack([self.vector_KD, vector_D[None, :]]))

    def minus(self, ids: Collection[str]) -> Shelf:
        """Return this shelf without those skills."""
        kept = [row for row, skill in enumerate(self.skills) if skill.id not in ids]
        return Shelf(tuple(self.skills[row] for row in kept), self.vector_KD[kept])

    def counted(self, ids: Collection[str], *, helped: bool) -> Shelf:
        """Return this shelf with one more use of each of those skills."""
        help, hurt = int(helped), int(not helped)
        skills = tuple(s.used(helped=help, hurt=hurt) if s.id in ids else s for s in self.skills)
        return Shelf(skills, self.vector_KD)

    def cosines(self, vector_QD: Vectors) -> Vectors:
        """Return the (Q, K) cosines, within [-1, 1] whatever rounding did."""
        # Not a matrix product: its threads wait for each other on a busy machine, and its sums depend on the batch.
        cosine_QK: Vectors = np.einsum("qd,kd->qk", vector_QD, self.vector_KD)
        return cosine_QK.clip(-1.0, 1.0)

    def best(
        self, vector_QD: Vectors, *, k: int, floor: float, exclude_source: Sequence[str] = ()
    ) -> list[list[Skill]]:
        """Return up to k skills for each question, best first; among ties the older first.

        Args:
            vector_QD: the vectors of Q questions.
            k: most skills per question.
            floor: least cosine.
            exclude_source: Q question ids whose own skills are left out, or nothing.
        """
        cosine_QK = np.round(self.cosines(vector_QD), _DIGITS)
        sources = exclude_source or [""] * len(cosine_QK)
        return [
            self._best(cosine_K, k=k, floor=floor, source=source)
            for cosine_K, source in zip(cosine_QK, sources, strict=True)
        ]

    def _best(self, cosine_K: Vectors, *, k: int, floor: float, source: str) -> list[Skill]:
        chosen: list[Skill] = []
        for row in np.argsort(-cosine_K, kind="stable"):
            if len(chosen) == k or cosine_K[row] < floor:
                break
            skill = self.skills[row]
            if not source or skill.source != source:
                chosen.append(skill)
        return chosen
