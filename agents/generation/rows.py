"""Keys and values of one text, kept so that the next turn only reads what is new.

    root = Root(token_T, kv)                 # the beginning that many texts share, kept once
    row = Row(root, shape)                   # one text: the root, and keys and values of its own
    with rows_attend(model):
        model(..., plan=Reading([(row, 0, 7), (other, 7, 9)]))
    row.read(token_T)                        # the text is now that much longer

Dimension key: L layer, H key head, G query head of a key head, T token, K key, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from agents.generation.attention import Scores, look_up
from sesa_env.errors import InvalidInput

_STEP = 64
"""Room for keys is made in multiples of this many tokens."""
_READ = 32
"""Tokens are read in multiples of this: shapes of products must be few (`agents.generation.attention`)."""


class Shape(NamedTuple):
    """What the keys and values of a model look like."""

    layers: int
    heads: int
    size: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: PreTrainedModel) -> Shape:
        """Read the shape off a model's configuration; the number format is autocast's where that is on."""
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        device = model.device
        computing = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else model.dtype
        return cls(config.num_hidden_layers, heads, size, computing, device)

    def empty(self, tokens: int) -> Tensor:
        """Return room for a text's keys and values: (L, 2, H, tokens, D)."""
        return torch.empty((self.layers, 2, self.heads, tokens, self.size), dtype=self.dtype, device=self.device)

    def zeros(self, tokens: int, *, rows: int) -> Tensor:
        """Return zeros for those of many texts in one layer: (2, rows, H, tokens, D)."""
        return torch.zeros((2, rows, self.heads, tokens, self.size), dtype=self.dtype, device=self.device)


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """The beginning that several rows share, with its keys and values (L, 2, H, T, D)."""

    token_T: tuple[int, ...]
    kv: Tensor

    @classmethod
    def none(cls, shape: Shape) -> Root:
        """Return the empty beginning."""
        return cls((), shape.empty(0))

    def __len__(self) -> int:
        """How many tokens are shared."""
        return len(self.token_T)

    def cut(self, length: int) -> Root:
        """Return the first `length` tokens; the keys are the same memory."""
        return Root(self.token_T[:length], self.kv[..., :length, :])


class Row:
    """One text and what the model computed for it: a root's keys and values, followed by its own."""

    def __init__(self, root: Root, shape: Shape) -> None:
        self.root = root
        self.token_T = root.token_T
        self.shape = shape
        self.kv = shape.empty(0)

    def __len__(self) -> int:
        """How many tokens have been read."""
        return len(self.token_T)

    @property
    def own(self) -> int:
        """How many tokens have been read beyond the root."""
        return len(self.token_T) - len(self.root)

    @property
    def room(self) -> int:
        """How many tokens' keys the memory of this row could hold."""
        return int(self.kv.shape[-2])

    def reserve(self, length: int) -> None:
        """Make room for `length` own tokens; in larger steps than asked for, so that a growing row is seldom moved."""
        if length <= self.room:
            return
        roomier = self.shape.empty(-(-length * 5 // (4 * _STEP)) * _STEP)
        roomier[..., : self.own, :] = self.kv[..., : self.own, :]
        self.kv = roomier

    def read(self, token_T: Sequence[int]) -> None:
        """Take note that keys and values of these tokens now follow in `kv`."""
        self.token_T = (*self.token_T, *token_T)

    def copy(self) -> Row:
        """Return a row with the same text and root that grows by itself."""
        twin = Row(self.root, self.shape)
        twin.reserve(self.own)
        twin.kv[..., : self.own, :] = self.kv[..., : self.own, :]
        twin.token_T = self.token_T
        return twin


class Reading:
    """The plan for reading new tokens: which span of the packed sequence continues which row.

    Args:
        spans: (row, start, stop), in the order of the sequence; a row occurs once and has room for its span.
    """

    def __init__(self, spans: Sequence[tuple[Row, int, int]]) -> None:
        self._spans = spans
        shape = spans[0][0].shape
        self.dtype = shape.dtype
        self.position_T = torch.cat(
            [torch.arange(len(row), len(row) + stop - start, device=shape.device) for row, start, stop in spans]
        )
        missing = -len(self.position_T) % _READ
        self.position_T = functional.pad(self.position_T, (0, missing))
        """Where in its text each token stands; 0 where a token only fills the sequence up."""
        self.layers_seen: set[int] = set()

    def attend(self, layer: int, query_HGTD: Tensor, key_HTD: Tensor, value_HTD: Tensor, scores: Scores) -> Tensor:
        """Keep the new keys and values and return what each token's query finds: (H, G, T, D)."""
        self.layers_seen.add(layer)
        found = []
        for row, start, stop in self._spans:
            _keep(row, layer, key_HTD[:, start:stop], value_HTD[:, start:stop])
            kv_2HKD = row.kv[layer, :, :, : row.own + stop - start]
            if len(row.root):  # few keys are soon copied; scores of two parts would be many more numbers
                kv_2HKD = torch.cat([row.root.kv[layer], kv_2HKD], dim=2)
            found.append(look_up(query_HGTD[:, :, start:stop], kv_2HKD[0], kv_2HKD[1], scores))
        missing = query_HGTD.shape[2] - sum(part_HGQD.shape[2] for part_HGQD in found)
        return functional.pad(torch.cat(found, dim=2), (0, 0, 0, missing))


def _keep(row: Row, layer: int, key_HTD: Tensor, value_HTD: Tensor) -> None:
    """Write keys and values behind those the row already has."""
    place = row.kv[layer, :, :, row.own : row.own + key_HTD.shape[1]]
    if key_HTD.shape != place[0].shape or value_HTD.shape != place[1].shape:
        raise InvalidInput(
            f"layer {layer} has keys and values of shapes {tuple(key_HTD.shape)} and {tuple(value_HTD.shape)}, the "
            f"model's configuration says {tuple(place[0].shape)}: models whose layers differ cannot be sampled from"
        )
    place[0], place[1] = key_HTD, value_HTD
