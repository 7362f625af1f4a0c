"""The skills of one moment with their vectors, ready to be ranked; immutable, so that a reader never sees a change.

    shelf = Shelf(skills, vector_KD)
    shelf.best(vector_QD, k=3, floor=-1.0, exclude_source=["q1"])
    shelf = shelf.plus(skill, vector_D)

Up to EXACT_UP_TO skills, a question is compared with each.  Beyond, FAISS names candidates and only they are compared:
a skill that belongs among the best may then be missed, and a bank that was opened anew may miss another one.

K is the number of skills, D that of the encoder's dimensions, Q that of questions, N that of candidates.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from skill_memory.encode import Vectors
from skill_memory.rows import Rows, cosines
from skill_memory.skill import Skill
from skill_memory.store import text_key
from skill_memory.triggers import is_about

EXACT_UP_TO = 30_000
"""Skills that are compared one by one, which takes 4 ms; `python -m benchmarks.perf.memory` measures both ways."""
_DIGITS = 5
"""Cosines closer than this many digits are ties: an encoder's last digits depend on its batches."""
_SPARE = 32
"""Candidates beyond k: FAISS's cosines are coarse, and some rows are those of skills that are gone."""


class Shelf:
    """K skills, oldest first, and their (K, D) vectors of length 1, row by row."""

    def __init__(self, skills: Sequence[Skill], vector_KD: Vectors) -> None:
        self.skills = tuple(skills)
        self._rows = Rows(vector_KD)
        self._row_K = np.arange(len(self.skills))

    @property
    def vector_KD(self) -> Vectors:
        """A copy of the vectors."""
        return self._rows.at(self._row_K)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of the skills."""
        return frozenset(skill.id for skill in self.skills)

    @cached_property
    def texts_hash(self) -> str:
        """Hash of all that a prompt could show of the skills, and of their sources; counters are no part of it."""
        texts = [(s.id, s.description, s.triggers, s.avoid, s.queries, s.source) for s in self.skills]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    def twin(self, skill: Skill) -> str:
        """Return the id of the skill with the same text, or the empty string."""
        return self._id_of_text.get(text_key(skill), "")

    def vectors_of(self, ids: Collection[str]) -> Vectors:
        """Return the (N, D) vectors of those of the skills that are here, oldest first."""
        return self._rows.at(self._row_K[[skill.id in ids for skill in self.skills]])

    def plus(self, skill: Skill, vector_D: Vectors) -> Shelf:
        """Return this shelf with one more skill at its end."""
        id_of_text = {**self._id_of_text, text_key(skill): skill.id}
        row_K = np.append(self._row_K, len(self._rows))
        return _shelf((*self.skills, skill), self._rows.plus(vector_D), row_K, id_of_text)

    def minus(self, ids: Collection[str]) -> Shelf:
        """Return this shelf without those skills."""
        gone = [position for position, skill in enumerate(self.skills) if skill.id in ids]
        skills, id_of_text = list(self.skills), dict(self._id_of_text)
        for position in reversed(gone):
            del id_of_text[text_key(skills.pop(position))]
        rows, row_K = self._rows, np.delete(self._row_K, gone)
        if 2 * len(skills) < len(rows):  # the rest are in the way by now
            rows, row_K = Rows(rows.at(row_K)), np.arange(len(skills))
        return _shelf(tuple(skills), rows, row_K, id_of_text)

    def counted(self, ids: Collection[str], *, helped: bool) -> Shelf:
        """Return this shelf with one more use of each of those skills."""
        help, hurt = int(helped), int(not helped)
        shelf = copy.copy(self)  # all that it has worked out holds for the copy: counters are no part of it
        shelf.skills = tuple(s.used(helped=help, hurt=hurt) if s.id in ids else s for s in self.skills)
        return shelf

    def cosines(self, vector_QD: Vectors) -> Vectors:
        """Return the (Q, K) cosines, within [-1, 1] whatever rounding did."""
        cosine_QR = self._rows.cosines(vector_QD)
        return cosine_QR if cosine_QR.shape[1] == len(self.skills) else cosine_QR[:, self._row_K]

    def best(
        self,
        vector_QD: Vectors,
        *,
        k: int,
        floor: float,
        exclude_source: Sequence[str] = (),
        questions: Sequence[str] = (),
    ) -> list[list[Skill]]:
        """Return up to k skills for each question, best first; among ties the older first.

        Args:
            vector_QD: the vectors of Q questions.
            k: most skills per question.
            floor: least cosine.
            exclude_source: Q question ids whose own skills are left out, or nothing.
            questions: the Q texts, to leave out what is not about them (`triggers.is_about`); or nothing.

        Raises:
            MissingDependency: there are more than EXACT_UP_TO skills, and FAISS is not installed.
        """
        sources = exclude_source or [""] * len(vector_QD)
        texts: Sequence[str | None] = questions or [None] * len(vector_QD)
        find = self._compare if len(self.skills) <= EXACT_UP_TO else self._approach
        return [
            self._choose(position_N, cosine_N, k=k, floor=floor, source=source, question=question)
            for (position_N, cosine_N), source, question in zip(find(vector_QD, k), sources, texts, strict=True)
        ]

    def _compare(self, vector_QD: Vectors, _: int) -> list[tuple[np.ndarray, Vectors]]:
        position_K = np.arange(len(self.skills))
        return [(position_K, cosine_K) for cosine_K in self.cosines(vector_QD)]

    def _approach(self, vector_QD: Vectors, k: int) -> list[tuple[np.ndarray, Vectors]]:
        found = []
        for vector_D, row_N in zip(vector_QD, self._rows.near(vector_QD, count=k + _SPARE), strict=True):
            position_N = self._position_R[row_N]
            position_N = position_N[position_N >= 0]
            cosine_N = cosines(vector_D[None, :], self._rows.at(self._row_K[position_N]))[0]
            found.append((position_N, cosine_N))
        return found

    def _choose(
        self, position_N: np.ndarray, cosine_N: Vectors, *, k: int, floor: float, source: str, question: str | None
    ) -> list[Skill]:
        cosine_N = np.round(cosine_N, _DIGITS)
        fits_N = cosine_N >= floor
        if source in self._positions_of:
            fits_N &= ~np.isin(position_N, self._positions_of[source])
        position_N, cosine_N = position_N[fits_N], cosine_N[fits_N]
        if len(cosine_N) > k and question is None:  # sorting all of them would cost more than all the rest
            best_N = cosine_N >= np.partition(cosine_N, -k)[-k]
            position_N, cosine_N = position_N[best_N], cosine_N[best_N]
        order = np.lexsort((position_N, -cosine_N))
        chosen = (self.skills[position] for position in position_N[order])
        return list(islice((skill for skill in chosen if question is None or is_about(skill, question)), k))

    @cached_property
    def _id_of_text(self) -> dict[str, str]:
        return {text_key(skill): skill.id for skill in self.skills}

    @cached_property
    def _positions_of(self) -> dict[str, list[int]]:
        """Where the skills of each question are that has taught any."""
        positions: dict[str, list[int]] = {}
        for position, skill in enumerate(self.skills):
            if skill.source:
                positions.setdefault(skill.source, []).append(position)
        return positions

    @cached_property
    def _position_R(self) -> np.ndarray:
        """Where the skill of each row is, -1 for one that is gone."""
        position_R = np.full(len(self._rows), -1)
        position_R[self._row_K] = np.arange(len(self.skills))
        return position_R


def _shelf(skills: tuple[Skill, ...], rows: Rows, row_K: np.ndarray, id_of_text: dict[str, str]) -> Shelf:
    shelf = object.__new__(Shelf)
    shelf.skills, shelf._rows, shelf._row_K = skills, rows, row_K
    shelf.__dict__["_id_of_text"] = id_of_text
    return shelf
