"""Continue many texts side by side, reading in each turn only what is new.

    writer = Writer(model, end_ids={2}, side_by_side=40, max_context=2048)
    completions = writer.write(prompts, stopped=..., max_new_tokens=48, temperature=1.0, generator=..., names=names)
    writer.forget(names)

A name stands for one attempt: keys and values of what was read and written are kept under it, and the next call with
that name reads only the tokens its prompt has beyond them.  Prompts that begin alike share that beginning, and equal
prompts are read once.

Dimension key: N row, T token, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agents.base import Completion
from agents.generation.attention import Plan, rows_attend
from agents.generation.batch import Batch
from agents.generation.kept import KeptRows
from agents.generation.rows import Reading, Root, Row, Shape
from agents.generation.sampling import sample
from sesa_env.errors import InvalidInput

_READ_AT_ONCE = 2048
"""Tokens read in one forward pass: enough to keep the machine busy, few enough to stay in its caches."""
_ROOT = 64
"""Roots are multiples of so many tokens: shorter ones are not worth products of their own, and shapes of products must
be few (`agents.generation.attention`)."""
_ATTENTION = frozenset({"full_attention", "sliding_attention"})
_GROWING_ROTATIONS = frozenset({"dynamic", "longrope"})
"""Rotary embeddings that change with the length of the text, and so would keys already kept."""


@dataclass(slots=True)
class _Text:
    """One text being continued."""

    number: int
    """Its place among the prompts of the call."""
    prompt: tuple[int, ...]
    name: str | None
    written: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    finish: Literal["stop", "end", "length"] = "length"


class Writer:
    """Writes with one model; what it keeps between calls is its own.

    Args:
        model: a causal language model in evaluation mode.
        end_ids: tokens that end the model's own turn; kept as the last token.
        side_by_side: most texts written at once.
        max_context: most tokens of a text; `side_by_side` texts of this length bound what is kept between calls.

    Raises:
        InvalidInput: the model does not attend in a way that can be reproduced from kept keys.
    """

    def __init__(self, model: Any, *, end_ids: Collection[int], side_by_side: int, max_context: int) -> None:
        self._model: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        _check_supported(self._model)
        self._end_ids = frozenset(end_ids)
        self._side_by_side = side_by_side
        self._shape = Shape.of(self._model)
        self.kept = KeptRows(self._model, most_tokens=side_by_side * max_context)

    @torch.no_grad()  # in inference mode, autocast would cast every weight again for every token
    def write(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        stopped: Callable[[Sequence[int]], bool],
        max_new_tokens: int,
        temperature: float,
        generator: torch.Generator,
        names: Sequence[str] | None = None,
    ) -> list[Completion]:
        """Continue every prompt until it is stopped, ends itself, or is full.

        Args:
            prompts: one non-empty list of token ids per text; lengths may differ.
            stopped: whether the tokens written so far end with a stop string; the last token is kept.
            max_new_tokens: most tokens written per text.
            temperature: divides the logits; 0 takes the most likely token.
            generator: the only source of randomness; a text's draws do not depend on which texts share its batch.
            names: what to keep each text under; None keeps nothing.

        Returns:
            One completion per prompt, in order.
        """
        if names is not None and not len(set(names)) == len(names) == len(prompts):
            raise InvalidInput(f"names must be {len(prompts)} different ones, got {names!r}")
        self._shape = Shape.of(self._model)  # anew in each call: it may be one within `torch.autocast`, or not
        uniform_NT = torch.zeros((len(prompts), max_new_tokens), device=generator.device, dtype=torch.float64)
        if temperature > 0.0:
            uniform_NT.uniform_(generator=generator)
        uniform_NT = uniform_NT.to(self._shape.device)
        texts = [
            _Text(number, tuple(prompt), None if names is None else names[number])
            for number, prompt in enumerate(prompts)
        ]
        with rows_attend(self._model):
            self.kept.check(self._shape.dtype)
            root = self._root([text.prompt for text in texts if not self.kept.has(text.name, text.prompt)])
            by_length = sorted(texts, key=lambda text: len(text.prompt))
            for start in range(0, len(texts), self._side_by_side):
                self._continue(
                    by_length[start : start + self._side_by_side], root, stopped, temperature, uniform_NT, names
                )
        return [Completion(tuple(text.written), tuple(text.logps), text.finish) for text in texts]

    def forget(self, names: Iterable[str]) -> None:
        """Drop what is kept of texts that will not be continued."""
        self.kept.forget(names)

    def _read(self, texts: Sequence[_Text], root: Root) -> tuple[dict[Row, _Text], Tensor]:
        """Read what is new in each prompt and return the texts by their rows, with the logits of the token to write."""
        spans: list[tuple[Row, Sequence[int]]] = []
        source: list[int] = []  # which span's logits each text goes on from
        fresh: dict[tuple[int, ...], int] = {}  # the span that reads a prompt of which nothing is kept
        for text in texts:
            row = self.kept.take(text.name, text.prompt)
            if row is None and text.prompt in fresh:
                source.append(fresh[text.prompt])
                continue
            if row is None:
                own_root = root if text.prompt[: len(root)] == root.token_T else Root.none(self._shape)
                row, fresh[text.prompt] = Row(own_root, self._shape), len(spans)
            source.append(len(spans))
            spans.append((row, text.prompt[len(row) :]))
        logits_NV = self._forward_spans(spans)
        rows: dict[Row, _Text] = {}
        for text, span in zip(texts, source, strict=True):
            row = spans[span][0]
            rows[row.copy() if row in rows else row] = text
        return rows, logits_NV[source]

    def _root(self, prompts: Sequence[tuple[int, ...]]) -> Root:
        """Return the beginning that all prompts share: the one at hand, a part of it, or a new one."""
        if not prompts:
            return Root.none(self._shape)
        common = _whole(_shared_beginning([*prompts, min(prompts, key=len)[:-1]]))  # leaves each a token of its own
        at_hand = self.kept.root
        if at_hand is not None:
            shared = len(_whole(_shared_beginning([common, at_hand.token_T])))
            lone = len(set(prompts)) == 1  # nothing says yet how much of it others share
            if shared and (lone or 2 * shared >= len(common)):
                root = self.kept.root = at_hand if shared == len(at_hand) else at_hand.cut(shared)
                return root
        if not common:
            return Root.none(self._shape)
        row = Row(Root.none(self._shape), self._shape)
        self._forward_spans([(row, common)])
        root = self.kept.root = Root(common, row.kv[..., : len(common), :].clone())
        return root

    def _forward_spans(self, spans: Sequence[tuple[Row, Sequence[int]]]) -> Tensor:
        """Let each row read its tokens and return the logits after the last of them, (spans, V)."""
        logits = []
        for chunk in _chunks(spans):
            plan: list[tuple[Row, int, int]] = []
            last_N, stop = [], 0
            for row, token_T in chunk:
                start, stop = stop, stop + len(token_T)
                row.reserve(row.own + len(token_T))
                plan.append((row, start, stop))
                last_N.append(stop - 1)
            reading = Reading(plan)
            tokens = [token for _, token_T in chunk for token in token_T]
            logits.append(self._forward(tokens, reading.position_T, reading, keep=self._tensor(last_N)))
            if len(reading.layers_seen) != self._shape.layers:
                raise InvalidInput(
                    f"{type(self._model).__name__} cannot be sampled from: {len(reading.layers_seen)} of its "
                    f"{self._shape.layers} layers attend through the attention interface of transformers"
                )
            for row, token_T in chunk:
                row.read(token_T)
        return torch.cat(logits)

    def _continue(
        self,
        texts: Sequence[_Text],
        root: Root,
        stopped: Callable[[Sequence[int]], bool],
        temperature: float,
        uniform_NT: Tensor,
        names: Collection[str] | None,
    ) -> None:
        """Read, write until every text is done, and keep the rows, which then hold all but the last token."""
        steps = uniform_NT.shape[1]
        rows, logits_NV = self._read(texts, root)
        batch = Batch(list(rows))
        for step in range(steps):
            writing = [rows[row] for row in batch.rows]
            if step:
                tokens = [text.written[-1] for text in writing]
                logits_NV = self._forward(tokens, batch.position_P, batch)
                batch.advance(tokens)
            uniform_N = uniform_NT[self._tensor([text.number for text in writing]), step]
            token_N, logp_N = sample(logits_NV, temperature=temperature, uniform_N=uniform_N)
            done = []
            for place, (text, token, logp) in enumerate(zip(writing, token_N.tolist(), logp_N.tolist(), strict=True)):
                text.written.append(token)
                text.logps.append(logp)
                if token in self._end_ids:
                    text.finish = "end"
                elif stopped(text.written):
                    text.finish = "stop"
                elif step + 1 < steps:
                    continue
                done.append(place)
            batch.leave(done)
            if not batch.rows:
                break
        for row, text in rows.items():
            if text.name is not None:
                self.kept.put(text.name, row, waiting=names or ())

    def _forward(self, tokens: Sequence[int], position_T: Tensor, plan: Plan, *, keep: Tensor | int = 0) -> Tensor:
        """Run the model over the new tokens of all rows and return the logits, (T or len(keep), V).

        The sequence is filled up to as many tokens as there are positions.
        """
        filling = [0] * (len(position_T) - len(tokens))
        logits_1TV: Tensor = self._model(
            input_ids=self._tensor([*tokens, *filling])[None],
            position_ids=position_T[None],
            use_cache=False,
            logits_to_keep=keep,
            plan=plan,
        ).logits
        return logits_1TV[0, : len(tokens)]

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self._shape.device)


def _shared_beginning(texts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the tokens that all texts begin with."""
    first, last = min(texts), max(texts)  # in lexicographic order: what these two share, all share
    differ = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differ, min(len(first), len(last)))]


def _whole(beginning: tuple[int, ...]) -> tuple[int, ...]:
    """Return as much of a beginning as a root can hold."""
    return beginning[: len(beginning) // _ROOT * _ROOT]


def _chunks(spans: Sequence[tuple[Row, Sequence[int]]]) -> Iterable[list[tuple[Row, Sequence[int]]]]:
    """Group spans into forward passes of about `_READ_AT_ONCE` tokens."""
    chunk: list[tuple[Row, Sequence[int]]] = []
    size = 0
    for row, token_T in spans:
        if chunk and size + len(token_T) > _READ_AT_ONCE:
            yield chunk
            chunk, size = [], 0
        chunk.append((row, token_T))
        size += len(token_T)
    if chunk:
        yield chunk


def _check_supported(model: PreTrainedModel) -> None:
    """Refuse what would be computed wrongly rather than not at all; `Writer` checks the rest in its first pass."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - _ATTENTION
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    why = ""
    if not hasattr(config, "num_attention_heads"):
        why = "no attention heads"
    elif kinds:
        why = f"layers of kind {sorted(kinds)}"
    elif rotation in _GROWING_ROTATIONS:
        why = f"rotary embedding {rotation!r}"
    if why:
        raise InvalidInput(f"{type(model).__name__} has {why}: keys of its texts cannot be kept between turns")
