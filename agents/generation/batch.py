"""Rows being written side by side: keys in one piece of memory, one new token per row and step.

Rows are flush right, so a step writes one column for all of them; a row that is done makes place for the last one.
Every step attends to the whole memory, columns not yet written hidden: a part of it would be copied by each matrix
product in bfloat16.  So it is kept close: it grows a little at a time, and shrinks when the longest rows have left.
What was written is handed back to a row's own memory when it leaves.  Places are a multiple of `_PLACES`, and what is
computed in those without a row is never looked at.

    batch = Batch(rows)
    model(..., position_ids=batch.position_P[None], plan=batch)
    batch.advance(tokens)                    # those just read, in the order of `batch.rows`
    batch.leave([0, 5])

Dimension key: N row, P place of one, H key head, G query head of a key head, Q query, T token of the memory, K key of a
root, D head size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from agents.generation.attention import HIDDEN, Scores, Shared, look_up_once
from agents.generation.rows import Root, Row

_ROOM = 32
"""Columns by which the memory grows, and that must be free of any row's keys before it shrinks."""
_PLACES = 8
"""Shapes of products must be few (`agents.generation.attention`), and rows leave one by one."""


class Batch:
    """The plan for writing one token per row, and the memory in which that is fast.

    Args:
        rows: what has been read so far; while they are here, their own memory is free for others.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._shape = rows[0].shape
        self.dtype = self._shape.dtype
        self.rows = list(rows)
        """The rows still being written, in the order of the packed sequence."""
        self._written: list[list[int]] = [[] for _ in rows]
        self._start = self._column = max(row.own for row in rows)
        """Where tokens written here begin, and where the next one goes."""
        width, places = self._width(), self._places()
        # What is hidden must still be a number, so it is zero.
        self._kv = [self._shape.zeros(width, rows=places) for _ in range(self._shape.layers)]  # (2, P, H, T, D)
        self._bias_P11T = self._kv[0].new_full((places, 1, 1, width), HIDDEN)
        for place, row in enumerate(rows):
            for memory, kv in zip(self._kv, row.kv, strict=True):
                memory[:, place, :, self._start - row.own : self._start] = kv[:, :, : row.own]
            row.kv = self._shape.empty(0)
            self._bias_P11T[place, ..., self._start - row.own : self._start + 1] = 0.0
        self.position_P = torch.empty(0)
        """Where in its text each row's next token stands; 0 in places without a row."""
        self._arrange()

    def attend(self, layer: int, query_HGTD: Tensor, key_HTD: Tensor, value_HTD: Tensor, scores: Scores) -> Tensor:
        """Keep the new keys and values and return what each token's query finds: (H, G, T, D)."""
        query_PHGD = query_HGTD.permute(2, 0, 1, 3)
        key_PHTD, value_PHTD = self._kv[layer][:, : len(query_PHGD)].unbind(0)
        key_PHTD[:, :, self._column] = key_HTD.transpose(0, 1)
        value_PHTD[:, :, self._column] = value_HTD.transpose(0, 1)
        # Flush right, all rows write the same column, so a window begins at the same column for all of them too.
        first = 0 if scores.window is None else max(0, self._column + 1 - scores.window)
        key_PHTD, value_PHTD = key_PHTD[:, :, first:], value_PHTD[:, :, first:]
        bias_P11T = self._bias_P11T[: len(query_PHGD), ..., first:]
        roots = [
            Shared(root.kv[layer], place_N, self._root_bias(root, place_N, scores))
            for root, place_N in self._roots.items()
        ]
        found_PHGD = look_up_once(query_PHGD, key_PHTD, value_PHTD, scores, bias_N11K=bias_P11T, roots=roots)
        return found_PHGD.permute(1, 2, 0, 3)

    def advance(self, tokens: Sequence[int]) -> None:
        """Take note of the tokens just read, one per row."""
        for written, token in zip(self._written, tokens, strict=True):
            written.append(token)
        self._column += 1
        self.position_P = self.position_P + 1
        if self._column == self._bias_P11T.shape[-1]:
            self._move(first=0)
        self._bias_P11T[..., self._column : self._column + 1] = 0.0

    def leave(self, places: Collection[int]) -> None:
        """Hand back what these rows wrote and go on without them."""
        for place in sorted(places, reverse=True):
            row = self.rows[place]
            row.kv = torch.stack([kv[:, place, :, self._start - row.own : self._column] for kv in self._kv])
            row.read(self._written[place])
            last_row, last_written, last = self.rows.pop(), self._written.pop(), len(self.rows)
            if place != last:
                for kv in self._kv:
                    kv[:, place] = kv[:, last]
                self._bias_P11T[place] = self._bias_P11T[last]
                self.rows[place], self._written[place] = last_row, last_written
        if places and self.rows:
            first = self._start - max(row.own for row in self.rows)
            if first >= _ROOM:
                self._move(first=first)
            self._arrange()

    def _width(self) -> int:
        """Return how many columns to have: multiples of a number, so that shapes of products recur."""
        return (self._column // _ROOM + 1) * _ROOM

    def _places(self) -> int:
        """Return how many places the rows take up."""
        return -(-len(self.rows) // _PLACES) * _PLACES

    def _move(self, *, first: int) -> None:
        """Move to new memory without the columns before `first`, a layer at a time, so that little is there twice."""
        kept = slice(first, self._column)
        self._start, self._column = self._start - first, self._column - first
        places, width = self._places(), self._width()
        for layer, old in enumerate(self._kv):
            self._kv[layer] = functional.pad(old[:, :places, :, kept], (0, 0, 0, width - self._column))
        self._bias_P11T = functional.pad(self._bias_P11T[:places, ..., kept], (0, width - self._column), value=HIDDEN)
        self._bias_P11T[..., self._column : self._column + 1] = 0.0

    def _arrange(self) -> None:
        """Look up how long each row is, and which rows share a root."""
        device = self._shape.device
        lengths = [len(row) + len(written) for row, written in zip(self.rows, self._written, strict=True)]
        self.position_P = torch.tensor([*lengths, *[0] * (self._places() - len(lengths))], device=device)
        places: dict[Root, list[int]] = {}
        for place, row in enumerate(self.rows):
            if len(row.root):
                places.setdefault(row.root, []).append(place)
        self._roots = {
            root: None if len(place) == len(self.rows) else torch.tensor(place, device=device)
            for root, place in places.items()
        }

    def _root_bias(self, root: Root, place_N: Tensor | None, scores: Scores) -> Tensor | None:
        """Return what hides a root's keys that rows no longer see: (N, K); None where all are seen."""
        if scores.window is None:
            return None
        position_N = self.position_P if place_N is None else self.position_P[place_N]
        hidden_NK = position_N[:, None] - torch.arange(len(root), device=position_N.device) >= scores.window
        return torch.zeros_like(hidden_NK, dtype=self.dtype).masked_fill_(hidden_NK, HIDDEN)
