"""How fast the learner updates a policy, beside a plain padded forward and backward pass with full logits.

    python -m benchmarks.perf.update                                    # a random model of the mini policy's shape
    python -m benchmarks.perf.update --shape small --dtype bfloat16
    python -m benchmarks.perf.update --policy smollm2 --questions 2

Both do the same work on the same synthetic attempts with the same model, number format and attention: the gradient of
the GRPO loss on the written tokens, and one AdamW step.  The plain way pads every attempt to the longest of the update,
runs every prompt in every row and makes the logits of every position.  The two take turns, so that a busy machine slows
both; the ratio is the median of those of each turn.  With one thread, seconds are those the processor worked.

A share of the matrix rate is 6 * parameters * tokens / seconds, attention left out, over what a matrix product of the
model's own shape reaches in the same run.  The tokens are those of the attempts, padding left out, however often they
are run; so a shared prompt that is run once can lift the share beyond what the processor did.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from agents.config import ModelSettings
from agents.device import attention_for, matrix_rate
from agents.grpo import group_advantages, policy_loss
from agents.learner import Learner, LearnerSettings, Sample
from agents.policies import source_of
from agents.tokens import TokenSequence
from agents.weights import FullWeights
from benchmarks.perf.timing import clock_of
from sesa_env.errors import MissingDependency

try:
    import typer
except ImportError as error:
    raise MissingDependency("this benchmark needs the extra `cli`: pip install 'sesa-env[cli]'") from error

SHAPES: dict[str, dict[str, Any]] = {
    "mini": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 2048,
    },
    "small": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 6,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    },
}
"""Models with random weights; "small" is SmolLM2-135M with a fifth of its layers."""

INSTRUCTIONS, QUESTION, WRITTEN, READ = 200, 70, 14, 110
"""Tokens of an attempt: instructions that all share, the question and its skills, each turn, each search result."""


class Turn(NamedTuple):
    """One repeat: seconds of either way, and the matrix rate measured beside them, in operations per second."""

    ours: float
    plain: float
    matrix_rate: float


def make_samples(*, questions: int, attempts: int, vocabulary: int, seed: int) -> list[Sample]:
    """Return groups of attempts of one to four turns, half of them right, with prompts as a run has them."""
    rng = np.random.default_rng(seed)

    def draw(count: int) -> list[int]:
        drawn: list[int] = rng.integers(3, vocabulary, count).tolist()
        return drawn

    samples, instructions = [], draw(INSTRUCTIONS)
    for question in range(questions):
        prompt = instructions + draw(QUESTION)
        for attempt in range(attempts):
            sequence = TokenSequence()
            sequence.append_context(prompt)
            for turn in range(int(rng.integers(1, 5))):
                if turn:
                    sequence.append_context(draw(READ))
                sequence.append_written(draw(WRITTEN), [-1.0] * WRITTEN)
            trajectory = sequence.freeze(episode=f"{question}/{attempt}")
            samples.append(Sample(trajectory, float(attempt % 2), group=question))
    return samples


def plain_update(model: Any, optimizer: torch.optim.Optimizer, samples: Sequence[Sample], *, rows: int) -> None:
    """Do what a straightforward script does: pad, run everything, make all logits, and mask the loss."""
    longest = max(len(sample.trajectory) for sample in samples)

    def padded(field: str) -> Tensor:
        lists = [list(getattr(sample.trajectory, field)) for sample in samples]
        return torch.tensor([one + [0] * (longest - len(one)) for one in lists])

    token_NT, written_NT, old_NT = padded("token_T"), padded("written_T").bool(), padded("logp_T")
    length_N1 = torch.tensor([[len(sample.trajectory)] for sample in samples])
    attention_NT = (torch.arange(longest) < length_N1).long()
    reward_N = torch.tensor([sample.reward for sample in samples])
    groups = [sample.group for sample in samples]
    advantage_N = group_advantages(reward_N, groups, scale="group", baseline="group").advantage_N
    divisor = float(written_NT.sum())
    optimizer.zero_grad(set_to_none=True)
    for start in range(0, len(samples), rows):
        part = slice(start, start + rows)
        logits_NTV = model(input_ids=token_NT[part], attention_mask=attention_NT[part], use_cache=False).logits
        logp_NTV = logits_NTV[:, :-1].float().log_softmax(dim=-1)
        logp_NT = logp_NTV.gather(-1, token_NT[part, 1:, None]).squeeze(-1)
        loss = policy_loss(
            logp_NT,
            old_NT[part, 1:],
            advantage_N[part],
            written_NT[part, 1:],
            clip_low=0.2,
            clip_high=0.2,
            aggregation="token",
            divisor=divisor,
        ).loss
        loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def measure(model: Any, samples: Sequence[Sample], *, dtype: str, micro_batch_tokens: int, repeats: int) -> list[Turn]:
    """Let the two ways take turns, after one turn that is not counted.

    Args:
        model: in float32; it is trained by both.
        samples: the update.
        dtype: "float32", or "bfloat16" to compute in that under autocast.
        micro_batch_tokens: of the learner; the plain way has as many padded rows in a pass as fit.
        repeats: turns that are counted.
    """
    weights = FullWeights({"policy": model}, autocast=torch.bfloat16 if dtype == "bfloat16" else None)
    settings = LearnerSettings(lr=1e-6, kl_coef=0.0, aggregation="token", micro_batch_tokens=micro_batch_tokens)
    learner = Learner(model, model.parameters(), settings, activate=lambda: weights.using("policy"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
    rows = max(micro_batch_tokens // max(len(sample.trajectory) for sample in samples), 1)
    config = model.config

    def plain() -> None:
        with weights.using("policy"):
            plain_update(model, optimizer, samples, rows=rows)

    turns = []
    for repeat in range(repeats + 1):
        rate = matrix_rate(
            rows=micro_batch_tokens,
            inner=config.hidden_size,
            columns=config.intermediate_size,
            dtype=getattr(torch, dtype),
        )
        turn = Turn(ours=_timed(lambda: learner.update(samples)), plain=_timed(plain), matrix_rate=rate)
        if repeat:
            turns.append(turn)
    return turns


def report(turns: Sequence[Turn], *, tokens: int, parameters: int) -> str:
    """Return what was measured as text: medians, with the smallest and the largest."""
    ratios = [turn.plain / turn.ours for turn in turns]
    lines = [
        f"learner   {_range([tokens / turn.ours for turn in turns])} tokens/s",
        f"plain     {_range([tokens / turn.plain for turn in turns])} tokens/s",
        f"ratio     {_range(ratios, digits=2)}",
        f"matrix    {_range([turn.matrix_rate / 1e9 for turn in turns])} GFLOP/s",
    ]
    for name, seconds in (("learner", [turn.ours for turn in turns]), ("plain", [turn.plain for turn in turns])):
        shares = [
            6.0 * parameters * tokens / second / turn.matrix_rate for second, turn in zip(seconds, turns, strict=True)
        ]
        lines.append(f"{name} is at {_range([100 * share for share in shares])} % of the matrix rate")
    return "\n".join(lines)


def _range(values: Sequence[float], *, digits: int = 0) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def _timed(work: Callable[[], object]) -> float:
    clock = clock_of(threads=torch.get_num_threads(), device="cpu")
    started = clock()
    work()
    return clock() - started


def _load(policy: str | None, shape: str, attention: str) -> Any:
    if policy is not None:
        return AutoModelForCausalLM.from_pretrained(
            str(source_of(policy)), dtype=torch.float32, attn_implementation=attention
        )
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**SHAPES[shape], tie_word_embeddings=True))
    model.set_attn_implementation(attention)
    return model


def main(
    shape: Annotated[str, typer.Option(help='"mini" or "small": the shape of a random model.')] = "mini",
    policy: Annotated[str | None, typer.Option(help="A policy to measure instead.")] = None,
    dtype: Annotated[str, typer.Option(help='"float32" or "bfloat16".')] = "float32",
    attention: Annotated[str, typer.Option(help='"auto", "eager" or "sdpa".')] = "auto",
    questions: Annotated[int, typer.Option(min=1, help="Groups in the update.")] = 8,
    attempts: Annotated[int, typer.Option(min=2, help="Attempts at each question.")] = 5,
    micro_batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a forward pass.")] = 4096,
    repeats: Annotated[int, typer.Option(min=1, help="Turns that are counted.")] = 5,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure the update and print tokens per second, the ratio, and the share of the matrix rate."""
    settings = ModelSettings(dtype=dtype, attention=attention)
    model = _load(policy, shape, attention_for(settings, torch.device("cpu"))).eval()
    samples = make_samples(questions=questions, attempts=attempts, vocabulary=model.config.vocab_size, seed=0)
    tokens = sum(len(sample.trajectory) for sample in samples)
    parameters = sum(one.numel() for one in model.parameters())
    written = sum(sample.trajectory.written_count for sample in samples)
    about = {
        "model": policy or shape,
        "parameters": parameters,
        "dtype": dtype,
        "attention": model.config._attn_implementation,
        "attempts": len(samples),
        "tokens": tokens,
        "written": written,
        "micro_batch_tokens": micro_batch_tokens,
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
    typer.echo(", ".join(f"{name} {value}" for name, value in about.items()))
    turns = measure(model, samples, dtype=dtype, micro_batch_tokens=micro_batch_tokens, repeats=repeats)
    typer.echo(report(turns, tokens=tokens, parameters=parameters))
    if out is not None:
        rows = [{**about, **turn._asdict()} for turn in turns]
        out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
