"""Log-probabilities that a model gives to the tokens a policy wrote, in micro-batches with little padding.

A learner must see the numbers the sampler saw: the same ids, positions from 0 whatever the padding, dropout off, the
same temperature, float32 at the end.  Three things make it fast and change nothing else: sequences of like length run
together; what all sequences begin with, the root, is run once, and what those of a micro-batch go on with alike, once
there; and only positions that predict a written token pass the output layer.

    scorer = Scorer(model, temperature=1.0, device=device)
    batches = scorer.batches(rows, tokens=4096)
    root = scorer.root(batches)
    for batch in batches:
        logp_NT, entropy_NT = scorer.logps(batch, root)
        loss(logp_NT).backward()                     # through the batch, and to the keys and values of the root
    root.backward()                                  # from there on

Nothing here knows rewards, losses or optimisers.

Dimension key:  N sequence   T token   V vocabulary   D embedding   M written tokens of a micro-batch, end to end
S token after what is shared   H key head   K key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, GradientCheckpointingLayer
from transformers.cache_utils import DynamicLayer

from agents.grpo import token_scores
from agents.tokens import TokenTrajectory
from sesa_env.errors import InvalidInput, SettingsError

_STEP = 32
"""Lengths are made up to a multiple of this.  A processor's library compiles and keeps code for each shape of a product
in bfloat16, half a millisecond and three quarters of a megabyte each."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence to run: its place in the caller's order, its tokens and its advantage.

    Raises:
        InvalidInput: nothing was written, or the first token was, which nothing can predict.
    """

    position: int
    trajectory: TokenTrajectory
    advantage: float = 0.0

    def __post_init__(self) -> None:
        episode = self.trajectory.episode
        if self.trajectory.written_count == 0:
            raise InvalidInput(f"a trajectory must hold a written token, got none in {episode!r}")
        if self.trajectory.written_T[0]:
            raise InvalidInput(f"a trajectory must start with a prompt, got a written first token in {episode!r}")


class Batch(NamedTuple):
    """Sequences padded on the right; masks come from lengths and producers, never from a padding id.

    `mask_NT` is True where the policy wrote the token; `attention_NT` is 1 up to each sequence's length; the first
    `shared` tokens are the same in all sequences, and nothing was written or is predicted there.
    """

    rows: list[Row]
    shared: int
    token_NT: Tensor
    attention_NT: Tensor
    position_NT: Tensor
    mask_NT: Tensor
    old_logp_NT: Tensor
    advantage_N: Tensor


class Root(NamedTuple):
    """What all sequences of an update begin with, run once: its keys and values, and the gradient that comes back.

    Every micro-batch attends to the leaves, cut off from how they were computed and in float32, so that the gradients
    of all of them add up there.  Roots are multiples of `_STEP` tokens.
    """

    length: int = 0
    parts: Sequence[Tensor] = ()
    """Keys and values of each layer in turn, as computed: (1, H, K, D)."""
    leaves: Sequence[Tensor] = ()

    def cache(self, config: Any) -> DynamicCache:
        """Return a cache of transformers that holds the root, for one sequence."""
        cache = DynamicCache(config=config)
        seen = [leaf.to(part.dtype) for part, leaf in zip(self.parts, self.leaves, strict=True)]
        for layer, (key_1HKD, value_1HKD) in enumerate(zip(seen[::2], seen[1::2], strict=True)):
            cache.update(key_1HKD, value_1HKD, layer)
        return cache

    def backward(self) -> None:
        """Send the gradients of all micro-batches on to the weights."""
        reached = [
            (part, leaf.grad.to(part.dtype))
            for part, leaf in zip(self.parts, self.leaves, strict=True)
            if leaf.grad is not None
        ]
        if reached:
            torch.autograd.backward([part for part, _ in reached], [grad for _, grad in reached])


def micro_batches(rows: Sequence[Row], *, tokens: int, sharing: bool = True) -> list[list[Row]]:
    """Divide rows into parts of at most `tokens` to run.

    Two orders are tried, by length and by prompt, and the one that leaves less to run is taken.  Every row is kept
    whole: one that is longer than `tokens` is a part of its own.

    Args:
        rows: all sequences of an update.
        tokens: padding included, what the rows of a part share counted once, and what all rows share not at all.
        sharing: whether the model can share; if not, all tokens count.
    """
    root = _root_length(rows)

    def size(part: Sequence[Row]) -> int:
        shared = max(_shared(part), root) if sharing else 0
        counted = shared - root if sharing else 0
        return counted + len(part) * (max(len(row.trajectory) for row in part) - shared)

    by_length = sorted(rows, key=lambda row: -len(row.trajectory))
    longest: dict[tuple[int, ...], int] = {}
    for row in by_length:
        longest.setdefault(_prompt(row), len(row.trajectory))
    by_prompt = sorted(by_length, key=lambda row: (-longest[_prompt(row)], _prompt(row)))
    orders = [_cut(order, tokens, size) for order in (by_length, by_prompt)]
    return min(orders, key=lambda parts: sum(map(size, parts)))


def collate(rows: list[Row], *, device: torch.device) -> Batch:
    """Lay rows into tensors, padded on the right to the longest."""
    longest = max(len(row.trajectory) for row in rows)

    def padded(field: str, dtype: torch.dtype) -> Tensor:
        lists = [list(getattr(row.trajectory, field)) for row in rows]
        return torch.tensor([one + [0] * (longest - len(one)) for one in lists], dtype=dtype, device=device)

    position_NT = torch.arange(longest, device=device).expand(len(rows), longest)
    length_N1 = torch.tensor([[len(row.trajectory)] for row in rows], device=device)
    return Batch(
        rows=rows,
        shared=_shared(rows),
        token_NT=padded("token_T", torch.long),
        attention_NT=(position_NT < length_N1).long(),
        position_NT=position_NT,
        mask_NT=padded("written_T", torch.bool),
        old_logp_NT=padded("logp_T", torch.float32),
        advantage_N=torch.tensor([row.advantage for row in rows], device=device),
    )


class Scorer:
    """Scores written tokens under a causal model of transformers, with or without peft adapters.

    Args:
        model: called as model(input_ids=, attention_mask=, position_ids=, use_cache=False).logits
        temperature: the temperature the tokens were sampled at.
        device: where the model takes its ids.
        checkpointing: run each layer again in the backward pass instead of keeping what it computed.

    Raises:
        SettingsError: `checkpointing` is asked of a model that has no layers to run again.
    """

    def __init__(
        self, model: nn.Module, *, temperature: float, device: torch.device, checkpointing: bool = False
    ) -> None:
        self._model: Any = model
        self._temperature = temperature
        self._device = device
        self._layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        if checkpointing and not self._layers:
            raise SettingsError(
                f"gradient_checkpointing must be False with {type(model).__name__}, which has no layers to run again"
            )
        self._checkpointing = checkpointing
        with torch.no_grad(), without_dropout(model):
            self._split = _body_and_head(model, device=device)
        # A layer that is run again would write to the cache of what is shared twice.
        self._shares = self._split is not None and not checkpointing and _keeps_every_token(model)

    def batches(self, rows: Sequence[Row], *, tokens: int) -> list[Batch]:
        """Return all sequences of an update in micro-batches of at most `tokens`, counted as `micro_batches` does."""
        parts = micro_batches(rows, tokens=tokens, sharing=self._shares)
        return [collate(part, device=self._device) for part in parts]

    def root(self, batches: Sequence[Batch]) -> Root:
        """Run what all sequences of these micro-batches begin with."""
        length = _root_length([row for batch in batches for row in batch.rows]) if self._shares else 0
        if not length or self._split is None:
            return Root()
        cache: Any = DynamicCache(config=self._model.config)
        self._split[0](input_ids=batches[0].token_NT[:1, :length], cache=cache, use_cache=True)
        parts = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return Root(length, parts, [part.detach().float().requires_grad_(part.requires_grad) for part in parts])

    def logps(self, batch: Batch, root: Root) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of every written token, each (N, T) and 0.0 elsewhere.

        Args:
            batch: the sequences.
            root: what they and all others of the update begin with.
        """
        with self._run_again():
            logits_MV = self._trained_logits(batch, root)
        logp_M, entropy_M = token_scores(logits_MV, batch.token_NT[batch.mask_NT], temperature=self._temperature)
        zero_NT = torch.zeros(batch.mask_NT.shape, device=logp_M.device)
        return zero_NT.masked_scatter(batch.mask_NT, logp_M), zero_NT.masked_scatter(batch.mask_NT, entropy_M)

    def _trained_logits(self, batch: Batch, root: Root) -> Tensor:
        predicts_NT = batch.mask_NT[:, 1:]  # the position before a written token is the one that predicts it
        shared = max(root.length, batch.shared // _STEP * _STEP) if self._shares else 0
        missing = -(batch.token_NT.shape[1] - shared) % _STEP
        token_NT, attention_NT, position_NT = (
            functional.pad(part_NT, (0, missing)) for part_NT in (batch.token_NT, batch.attention_NT, batch.position_NT)
        )
        inputs = {"input_ids": token_NT, "attention_mask": attention_NT, "position_ids": position_NT}
        if self._split is None:
            logits_NTV: Tensor = self._model(**inputs, use_cache=False).logits
            return logits_NTV[:, : predicts_NT.shape[1]][predicts_NT]
        body, head = self._split
        if shared:
            cache = root.cache(self._model.config)
            if shared > root.length:
                part_1S = slice(root.length, shared)
                body(
                    input_ids=batch.token_NT[:1, part_1S],
                    position_ids=batch.position_NT[:1, part_1S],
                    cache=cache,
                    use_cache=True,
                )
            cache.batch_repeat_interleave(len(batch.rows))
            inputs |= {"input_ids": token_NT[:, shared:], "position_ids": position_NT[:, shared:]}
            hidden_NSD = body(**inputs, cache=cache, use_cache=True).last_hidden_state
        else:
            hidden_NSD = body(**inputs, use_cache=False).last_hidden_state
        predicts_NS = predicts_NT[:, shared:]
        logits_MV: Tensor = head(hidden_NSD[:, : predicts_NS.shape[1]][predicts_NS])
        return logits_MV

    @contextmanager
    def _run_again(self) -> Iterator[None]:
        """Checkpoint every layer; the switch of transformers itself works in training mode only, with dropout on."""
        if not (self._checkpointing and torch.is_grad_enabled()):
            yield
            return
        for layer in self._layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        try:
            yield
        finally:
            for layer in self._layers:
                del layer.forward


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode for a while; gradients still flow."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _prompt(row: Row) -> tuple[int, ...]:
    return row.trajectory.token_T[: row.trajectory.prompt_length]


def _shared(rows: Sequence[Row]) -> int:
    """Return how many leading tokens need to be run only once: those before any that predicts a written token."""
    if len(rows) <= 1:
        return 0
    prompts = [_prompt(row)[:-1] for row in rows]
    first, last = min(prompts), max(prompts)  # in lexicographic order, whatever these two share all do
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(map(len, prompts)))


def _root_length(rows: Sequence[Row]) -> int:
    return _shared(rows) // _STEP * _STEP


def _cut(rows: Sequence[Row], tokens: int, size: Callable[[Sequence[Row]], int]) -> list[list[Row]]:
    parts: list[list[Row]] = []
    for row in rows:
        if parts and size([*parts[-1], row]) <= tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _keeps_every_token(model: Any) -> bool:
    """Whether the model's cache holds every token seen, as attention without a window or a state does."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def _body_and_head(model: nn.Module, *, device: torch.device) -> tuple[Any, Any] | None:
    """Split a model into hidden states and output layer; None unless the two give exactly the model's own logits.

    Some models cap or scale their logits after the output layer, and the probe finds those.
    """
    inner: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    body, head = getattr(inner, "base_model", inner), getattr(inner, "get_output_embeddings", lambda: None)()
    if body is inner or head is None:
        return None
    token_NT = torch.tensor([[0, 1]], device=device)
    logits_NTV = model(input_ids=token_NT, use_cache=False).logits
    same = torch.equal(head(body(input_ids=token_NT, use_cache=False).last_hidden_state), logits_NTV)
    return (body, head) if same else None
