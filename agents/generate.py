"""Batched decoding: many prompts continued side by side, finished rows dropped, log-probabilities kept.

The log-probabilities are taken from the logits the sampler drew from, at the sampling temperature and over the whole
vocabulary: no truncating sampler (top-k, top-p) exists here, because the learner could not reproduce its ratios.

    completions = generate(model, prompts, stopped=..., end_ids={2}, pad_id=2, max_new_tokens=64, temperature=1.0)

Dimension key: N rows still being written, T token, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from agents.base import Completion


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    stopped: Callable[[Sequence[int]], bool],
    end_ids: Collection[int],
    pad_id: int,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator,
) -> list[Completion]:
    """Continue every prompt until it is stopped, ends itself, or is full.

    Args:
        model: a causal language model in evaluation mode.
        prompts: one non-empty list of token ids per row; lengths may differ.
        stopped: whether the tokens written so far end with a stop string; the last token is kept.
        end_ids: tokens that end the model's own turn; kept as the last token.
        pad_id: filler for the left of shorter prompts; masked out, so any id will do.
        max_new_tokens: most tokens written per row.
        temperature: divides the logits; 0 takes the most likely token.
        generator: the only source of randomness.

    Returns:
        One completion per prompt, in order.
    """
    cache = DynamicCache(config=model.config)
    shared = _common_prefix(prompts)
    if shared:  # instructions and demonstrations are the same in every prompt: run them once
        model(input_ids=torch.tensor([list(prompts[0][:shared])]), cache=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(len(prompts))
    tokens, attention_NT = _left_padded([prompt[shared:] for prompt in prompts], pad_id)
    position_NT = shared + (attention_NT.cumsum(dim=1) - 1).clamp(min=0)
    attention_NT = torch.cat([attention_NT.new_ones(len(prompts), shared), attention_NT], dim=1)
    written: list[list[int]] = [[] for _ in prompts]
    logps: list[list[float]] = [[] for _ in prompts]
    finish = ["length"] * len(prompts)
    rows = list(range(len(prompts)))  # which prompt each row of the batch belongs to
    for _ in range(max_new_tokens):
        logits_NV = model(
            input_ids=tokens,
            attention_mask=attention_NT,
            position_ids=position_NT,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        token_N, logp_N = _sample(logits_NV, temperature, generator)
        alive = []
        for index, (row, token, logp) in enumerate(zip(rows, token_N.tolist(), logp_N.tolist(), strict=True)):
            written[row].append(token)
            logps[row].append(logp)
            if token in end_ids:
                finish[row] = "end"
            elif stopped(written[row]):
                finish[row] = "stop"
            else:
                alive.append(index)
        if not alive:
            break
        if len(alive) < len(rows):
            keep_N = torch.tensor(alive)
            cache.batch_select_indices(keep_N)
            attention_NT, position_NT, token_N = attention_NT[keep_N], position_NT[keep_N], token_N[keep_N]
            rows = [rows[index] for index in alive]
        tokens = token_N[:, None]
        attention_NT = torch.cat([attention_NT, attention_NT.new_ones(len(rows), 1)], dim=1)
        position_NT = position_NT[:, -1:] + 1
    return [
        Completion(token_T=tuple(ids), logp_T=tuple(values), finish=end)  # type: ignore[arg-type]
        for ids, values, end in zip(written, logps, finish, strict=True)
    ]


def _common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many leading tokens all prompts share, leaving each at least one of its own."""
    first, last = (
        min(map(tuple, prompts)),
        max(map(tuple, prompts)),
    )  # in lexicographic order, whatever these two share all do
    most = min(len(prompt) for prompt in prompts) - 1
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b or i == most), most)


def _left_padded(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Return ids and attention mask (1: a real token), both (N, T), prompts flush right."""
    longest = max(len(prompt) for prompt in prompts)
    token_NT = torch.full((len(prompts), longest), pad_id)
    attention_NT = torch.zeros((len(prompts), longest), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        token_NT[row, longest - len(prompt) :] = torch.tensor(prompt)
        attention_NT[row, longest - len(prompt) :] = 1
    return token_NT, attention_NT


def _sample(logits_NV: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw one token per row and return it with its log-probability under the distribution it was drawn from."""
    if temperature == 0.0:
        logp_NV = logits_NV.float().log_softmax(dim=-1)
        token_N = logp_NV.argmax(dim=-1)
    else:
        logp_NV = (logits_NV.float() / temperature).log_softmax(dim=-1)
        token_N = torch.multinomial(logp_NV.exp(), num_samples=1, generator=generator).squeeze(-1)
    return token_N, logp_NV.gather(-1, token_N[:, None]).squeeze(-1)
