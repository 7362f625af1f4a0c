"""Rows kept between turns under the names of their attempts, never beyond a bound and never with stale weights.

    kept = KeptRows(model, most_tokens=80_000)
    kept.check(torch.float32)                  # at the start of each call: forgets everything if weights changed
    row = kept.take("q7/solver_0", prompt)     # the row that the prompt continues, or None
    kept.put("q7/solver_0", row, waiting=names_of_this_call)

A row that is not there costs time only: the prompt is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch
from transformers import PreTrainedModel

from agents.generation.rows import Root, Row


class KeptRows:
    """A bounded store of rows.

    Args:
        model: whose keys and values they are.
        most_tokens: how many tokens' keys may be kept, all rows together.
    """

    def __init__(self, model: PreTrainedModel, *, most_tokens: int) -> None:
        self._parameters = model.parameters
        self._most_tokens = most_tokens
        self._rows: dict[str, Row] = {}
        self.root: Root | None = None
        """The beginning that new texts are likely to share."""
        self._computed_with: tuple[object, ...] = ()

    def __len__(self) -> int:
        """How many rows are kept."""
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        """Whether a row of that name is kept."""
        return name in self._rows

    @property
    def tokens(self) -> int:
        """How many tokens' keys there is room for in the kept rows and their roots."""
        roots = {row.root for row in self._rows.values()} | ({self.root} if self.root else set())
        return sum(row.room for row in self._rows.values()) + sum(map(len, roots))

    def check(self, dtype: torch.dtype) -> None:
        """Forget every row if it was computed in another number format, or with weights that changed since.

        A weight has changed when its tensor was written to (optimisers and loaders do that in place) or replaced.
        """
        weights = [(tensor.data_ptr(), tensor._version) for tensor in self._parameters()]
        computed_with = (dtype, *weights)
        if computed_with != self._computed_with:
            self._rows.clear()
            self.root = None
            self._computed_with = computed_with

    def has(self, name: str | None, prompt: Sequence[int]) -> bool:
        """Whether a row of that name is kept that the prompt continues."""
        row = None if name is None else self._rows.get(name)
        return row is not None and len(row) < len(prompt) and row.token_T == tuple(prompt[: len(row)])

    def take(self, name: str | None, prompt: Sequence[int]) -> Row | None:
        """Remove the row of that name, and return it if the prompt continues it."""
        continued = self.has(name, prompt)
        row = None if name is None else self._rows.pop(name, None)
        return row if continued else None

    def put(self, name: str, row: Row, *, waiting: Collection[str]) -> None:
        """Keep a row; the longest unused ones make place for it, but none that this very call still waits for.

        When that is not enough the row is not kept: of many attempts that take turns, some then never need be read
        again, while keeping the newest would lose each just before it is needed.
        """
        for other in [name for name in self._rows if name not in waiting]:
            if self.tokens + row.room <= self._most_tokens:
                break
            del self._rows[other]
        if self.tokens + row.room <= self._most_tokens:
            self._rows[name] = row

    def forget(self, names: Iterable[str]) -> None:
        """Drop rows that will not be continued; unknown names are fine."""
        for name in names:
            self._rows.pop(name, None)
