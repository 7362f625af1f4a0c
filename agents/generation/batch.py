"""Rows being written side by side: keys in one piece of memory, one new token per row and step.

Rows are flush right, so a step writes one column for all of them; a row that is done makes place for the last one.
What was written is handed back to a row's own memory when it leaves.

    batch = Batch(rows, steps=48)
    model(..., position_ids=batch.position_N[None], plan=batch)
    batch.advance(tokens)                    # those just read, in the order of `batch.rows`
    batch.leave([0, 5])

Dimension key: N row, H key head, G query head of a key head, Q query, T token of the memory, K key of a root, D head
size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from agents.generation.attention import HIDDEN, Found, Scores, join, look_up
from agents.generation.rows import Root, Row


class Batch:
    """The plan for writing one token per row, and the memory in which that is fast.

    Args:
        rows: what has been read so far; their own memory is left alone until they leave.
        steps: most tokens that will be read.
    """

    def __init__(self, rows: Sequence[Row], *, steps: int) -> None:
        shape = rows[0].shape
        self.dtype = shape.dtype
        self.rows = list(rows)
        """The rows still being written, in the order of the packed sequence."""
        self._written: list[list[int]] = [[] for _ in rows]
        self._start = self._column = max(row.own for row in rows)
        self._kv = shape.empty(self._start + steps, rows=len(rows))  # (layers, 2, N, H, T, D)
        self._bias_N11T = torch.zeros((len(rows), 1, 1, self._start + steps), dtype=shape.dtype, device=shape.device)
        for place, row in enumerate(rows):
            empty = self._start - row.own
            self._kv[:, :, place, :, :empty] = 0.0  # hidden, but what is hidden must still be a number
            self._kv[:, :, place, :, empty : self._start] = row.kv[..., : row.own, :]
            self._bias_N11T[place, ..., :empty] = HIDDEN
        self.position_N = torch.empty(0)
        """Where in its text each row's next token stands."""
        self._arrange()

    def attend(self, layer: int, query_HGTD: Tensor, key_HTD: Tensor, value_HTD: Tensor, scores: Scores) -> Tensor:
        """Keep the new keys and values and return what each token's query finds: (T, H, G, D)."""
        query_NHGD = query_HGTD.permute(2, 0, 1, 3)
        key_NHTD, value_NHTD = self._kv[layer, :, : len(self.rows)].unbind(0)
        key_NHTD[:, :, self._column] = key_HTD.transpose(0, 1)
        value_NHTD[:, :, self._column] = value_HTD.transpose(0, 1)
        end = self._column + 1
        # Flush right, all rows write the same column, so a window begins at the same column for all of them too.
        first = self._first if scores.window is None else max(self._first, end - scores.window)
        bias_N11T = self._bias_N11T[: len(self.rows), ..., first:end] if self._ragged else None
        found = look_up(query_NHGD, key_NHTD[:, :, first:end], value_NHTD[:, :, first:end], scores, bias=bias_N11T)
        for root, place_N in self._roots:
            if len(place_N) == len(self.rows):
                return join(found, self._look_up_root(layer, root, query_NHGD, self.position_N, scores)).value
            there = self._look_up_root(layer, root, query_NHGD[place_N], self.position_N[place_N], scores)
            found.value[place_N] = join(Found(found.value[place_N], found.lse[place_N]), there).value
        return found.value

    def advance(self, tokens: Sequence[int]) -> None:
        """Take note of the tokens just read, one per row."""
        for written, token in zip(self._written, tokens, strict=True):
            written.append(token)
        self._column += 1
        self.position_N = self.position_N + 1
        self._longest += 1

    def leave(self, places: Collection[int]) -> None:
        """Hand back what these rows wrote and go on without them."""
        for place in sorted(places, reverse=True):
            row, new = self.rows[place], self._column - self._start
            row.reserve(row.own + new)
            row.kv[..., row.own : row.own + new, :] = self._kv[:, :, place, :, self._start : self._column]
            row.read(self._written[place])
            last_row, last_written, last = self.rows.pop(), self._written.pop(), len(self.rows)
            if place != last:
                self._kv[:, :, place, :, : self._column] = self._kv[:, :, last, :, : self._column]
                self._bias_N11T[place] = self._bias_N11T[last]
                self.rows[place], self._written[place] = last_row, last_written
        if places and self.rows:
            self._arrange()

    def _arrange(self) -> None:
        """Look up how long each row is, where the longest begins, and which rows share a root."""
        device = self._kv.device
        lengths = [len(row) + len(written) for row, written in zip(self.rows, self._written, strict=True)]
        self.position_N = torch.tensor(lengths, device=device)
        self._longest = max(lengths)
        owned = [row.own for row in self.rows]
        self._first = self._start - max(owned)
        self._ragged = min(owned) < max(owned)
        places: dict[Root, list[int]] = {}
        for place, row in enumerate(self.rows):
            if len(row.root):
                places.setdefault(row.root, []).append(place)
        self._roots = [(root, torch.tensor(place, device=device)) for root, place in places.items()]

    def _look_up_root(self, layer: int, root: Root, query_NHGD: Tensor, position_N: Tensor, scores: Scores) -> Found:
        """Attend to a root: the queries of all its rows at once, as if they were one row's."""
        rows, heads, groups, size = query_NHGD.shape
        query_1HQD = query_NHGD.transpose(0, 1).reshape(1, heads, rows * groups, size)
        bias_QK = None
        if scores.window is not None and self._longest >= scores.window:
            hidden_NK = position_N[:, None] - torch.arange(len(root), device=position_N.device) >= scores.window
            bias_NK = torch.zeros_like(hidden_NK, dtype=query_NHGD.dtype).masked_fill_(hidden_NK, HIDDEN)
            bias_QK = bias_NK.repeat_interleave(groups, dim=0)
        key_1HKD, value_1HKD = root.kv[layer, :, None].unbind(0)
        found = look_up(query_1HQD, key_1HKD, value_1HKD, scores, bias=bias_QK)
        value_HNGD, lse_HNG = found.value.view(heads, rows, groups, size), found.lse.view(heads, rows, groups)
        return Found(value_HNGD.transpose(0, 1), lse_HNG.transpose(0, 1))
