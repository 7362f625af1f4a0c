"""How fast attempts of several turns are written, beside a loop of transformers' `generate` over the grown texts.

    python -m benchmarks.perf.generation --model small --quick           # a random model of 3.5 million parameters
    python -m benchmarks.perf.generation --model smollm2 --dtype float32

Both write the same number of tokens with the same model in the same number format and read observations of the same
lengths.  They take turns, so that a busy machine slows both, and a ratio is that of one repeat.  `generate` is asked
for no log-probabilities, and none of its rows ends early, so nothing is charged to it that it would not have to do.

An attempt's share of the texts is that of a search agent: half its context is the prompt, half of which is the same for
all; four attempts share a question; three turns are written, and two observations read.  With `--apart` no two prompts
have anything in common, which leaves only what keeping texts between turns and the decoding itself gain.

With one thread on a processor, seconds are those it worked; otherwise those that passed.

"decoding" is what a token takes after the first of a turn, which reading comes before.  Its limit on this machine is
the larger of two times: for reading all weights, and the keys and values of every text, once; and for the matrix
products, at the rate of one of the model's own shape.  Both rates are measured in the same run.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList

from agents.device import finish, matrix_rate, resolve_device
from agents.generation import Writer
from agents.policies import source_of
from benchmarks.perf.timing import clock_of
from sesa_env.errors import MissingDependency

try:
    import typer
except ImportError as error:
    raise MissingDependency("this benchmark needs the extra `cli`: pip install 'sesa-env[cli]'") from error

SMALL = LlamaConfig(
    hidden_size=256,
    intermediate_size=704,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=2048,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
)
ATTEMPTS, TURNS, MANY_TURNS = 4, 3, 10


class Work(NamedTuple):
    """What is to be written and read."""

    prompts: list[list[int]]
    observations: list[list[list[int]]]
    """For each turn but the last, one for each attempt."""
    written: int
    """Tokens written in each turn."""

    @property
    def total(self) -> int:
        """Tokens written in all."""
        return len(self.prompts) * (len(self.observations) + 1) * self.written


class Clock(NamedTuple):
    """What one way took, in seconds."""

    turns: list[float]
    decoding: float
    """A step of one token for each attempt, once a turn is under way; the mean over all turns."""

    @property
    def total(self) -> float:
        """All turns together."""
        return sum(self.turns)


def make_work(*, batch: int, context: int, turns: int, apart: bool, vocabulary: int, seed: int) -> Work:
    """Return attempts that fill about `context` tokens in `turns` turns; lengths vary by a quarter."""
    rng = np.random.default_rng(seed)

    def draw(count: float, *, ragged: bool = True) -> list[int]:
        low, high = (0.75, 1.25) if ragged else (1.0, 1.0)
        drawn: list[int] = rng.integers(3, vocabulary, max(1, round(count * rng.uniform(low, high)))).tolist()
        return drawn

    prompt = context // 2
    written = min(32, max(8, context // (8 * turns)))
    read = (context - prompt - turns * written) / max(1, turns - 1)
    if apart:
        prompts = [draw(prompt) for _ in range(batch)]
    else:
        shared = draw(prompt / 2, ragged=False)
        questions = [shared + draw(prompt / 2) for _ in range(-(-batch // ATTEMPTS))]
        prompts = [list(questions[row // ATTEMPTS]) for row in range(batch)]
    return Work(prompts, [[draw(read) for _ in range(batch)] for _ in range(turns - 1)], written)


def ours(model: Any, work: Work) -> Clock:
    """Write with what is kept between turns."""
    stamps: list[float] = []
    clock = _clock(model)

    def stopped(ids: Sequence[int]) -> bool:
        stamps.append(clock())
        return False

    rows = len(work.prompts)
    writer = Writer(model, end_ids=(), side_by_side=rows, max_context=model.config.max_position_embeddings)
    generator, names = torch.Generator(model.device).manual_seed(0), [str(row) for row in range(rows)]

    def write(prompts: list[list[int]]) -> tuple[list[list[int]], list[float]]:
        stamps.clear()
        completions = writer.write(
            prompts,
            stopped=stopped,
            max_new_tokens=work.written,
            temperature=1.0,
            generator=generator,
            names=names,
        )
        return [list(one.token_T) for one in completions], stamps[rows - 1 :: rows]

    return _play(work, write, clock)


def theirs(model: Any, work: Work) -> Clock:
    """Write with `generate`, which is given the whole text in each turn."""

    class Stamp(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
            stamps.append(clock())
            return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    stamps: list[float] = []
    clock = _clock(model)

    def write(prompts: list[list[int]]) -> tuple[list[list[int]], list[float]]:
        stamps.clear()
        longest = max(map(len, prompts))
        token_NT = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        attention_NT = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.inference_mode():
            out_NT = model.generate(
                input_ids=token_NT.to(model.device),
                attention_mask=attention_NT.to(model.device),
                max_new_tokens=work.written,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                eos_token_id=None,
                pad_token_id=0,
                stopping_criteria=StoppingCriteriaList([Stamp()]),
            )
        return out_NT[:, longest:].tolist(), list(stamps)

    return _play(work, write, clock)


def _clock(model: Any) -> Callable[[], float]:
    return clock_of(threads=torch.get_num_threads(), device=model.device.type)


def _play(
    work: Work,
    write: Callable[[list[list[int]]], tuple[list[list[int]], list[float]]],
    clock: Callable[[], float],
) -> Clock:
    texts, turns, decoding, steps = work.prompts, [], 0.0, 0
    for turn in range(len(work.observations) + 1):
        started = clock()
        written, stamps = write(texts)
        turns.append(clock() - started)
        if any(len(tokens) != work.written for tokens in written):
            raise AssertionError("both ways must write the same number of tokens")
        decoding += stamps[-1] - stamps[0]
        steps += len(stamps) - 1
        if turn < len(work.observations):
            texts = [[*t, *w, *o] for t, w, o in zip(texts, written, work.observations[turn], strict=True)]
    return Clock(turns, decoding / steps)


def read_rate(device: torch.device, *, megabytes: int = 256) -> float:
    """Return how many bytes per second the device reads from its memory, the best of several passes."""
    numbers = torch.ones(megabytes * 2**18, device=device)
    finish(device)
    best = 0.0
    for _ in range(5):
        started = time.perf_counter()
        torch.dot(numbers, numbers)
        finish(device)
        best = max(best, 4.0 * len(numbers) / (time.perf_counter() - started))
    return best


def limit(model: Any, *, batch: int, context: float, bytes_rate: float, product_rate: float) -> tuple[float, float]:
    """Return the least seconds of a decoding step: for reading memory, and for multiplying.

    Args:
        model: whose weights and keys are read.
        batch: attempts side by side.
        context: tokens that each has on average; shared ones are counted as if each attempt had its own.
        bytes_rate: bytes read per second.
        product_rate: floating-point operations per second.
    """
    config, size = model.config, model.dtype.itemsize
    parameters = sum(tensor.numel() for tensor in model.parameters())
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    keys = 2 * config.num_hidden_layers * config.num_key_value_heads * head
    memory = size * (parameters + batch * context * keys) / bytes_rate
    return memory, 2.0 * batch * parameters / product_rate


def measure(model: Any, work: Work, *, repeats: int) -> list[tuple[Clock, Clock]]:
    """Let the two ways take turns and return (ours, theirs) of each repeat, after a short one that is not counted."""
    short = Work(work.prompts[:2], [], 2)
    ours(model, short), theirs(model, short)
    clocks = []
    for repeat in range(repeats):
        if repeat % 2:
            their_clock, our_clock = theirs(model, work), ours(model, work)
        else:
            our_clock, their_clock = ours(model, work), theirs(model, work)
        clocks.append((our_clock, their_clock))
    return clocks


def load(name: str, dtype: torch.dtype, device: torch.device) -> Any:
    """Return the small random model, or a policy's, which then never ends a turn by itself."""
    if name == "small":
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(SMALL)
        model = model.to(dtype)
    else:
        model = AutoModelForCausalLM.from_pretrained(str(source_of(name)), dtype=dtype)
    model.generation_config.eos_token_id = None
    return model.to(device).eval()


def _spread(values: Iterable[float], digits: int = 2) -> str:
    values = list(values)
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def main(
    model: Annotated[str, typer.Option(help='"small", or a policy: a registered name, a folder, a hub id.')] = "small",
    dtype: Annotated[str, typer.Option(help='"float32" or "bfloat16".')] = "float32",
    device: Annotated[str, typer.Option(help='"auto", "cpu" or "cuda".')] = "cpu",
    batches: Annotated[str, typer.Option(help="Attempts side by side, separated by commas.")] = "16,64",
    contexts: Annotated[str, typer.Option(help="Tokens of a whole attempt, separated by commas.")] = "256,512,1024",
    repeats: Annotated[int, typer.Option(min=1, help="Repeats that are counted.")] = 5,
    apart: Annotated[bool, typer.Option("--apart", help="Let prompts have nothing in common.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Only batch 64 and context 256, two repeats.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure whole attempts, decoding alone, and the cost of ten turns, and print them beside `generate`."""
    if quick:
        batches, contexts, repeats = "64", "256", min(repeats, 2)
    number_format = getattr(torch, dtype)
    place = resolve_device(device)
    loaded = load(model, number_format, place)
    config = loaded.config
    bytes_rate = read_rate(place)
    typer.echo(
        f"{model}, {dtype}, {place}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, "
        f"load {os.getloadavg()[0]:.1f} before; memory is read at {bytes_rate / 1e9:.1f} GB/s"
    )
    typer.echo("median [least, most] of the repeats; tokens/s are of whole attempts, reading included\n")
    typer.echo(
        f"{'batch':>5} {'context':>7}  {'ours tokens/s':>24} {'generate tokens/s':>24} {'ratio':>19}  "
        f"{'decoding ms':>24} {'generate ms':>24} {'ratio':>19}  {'of the limit':>12}"
    )
    rows = []
    for context in map(int, contexts.split(",")):
        for batch in map(int, batches.split(",")):
            work = make_work(
                batch=batch, context=context, turns=TURNS, apart=apart, vocabulary=config.vocab_size, seed=0
            )
            clocks = measure(loaded, work, repeats=repeats)
            rate = matrix_rate(
                rows=batch,
                inner=config.hidden_size,
                columns=config.intermediate_size,
                dtype=number_format,
                device=place,
            )
            least = limit(loaded, batch=batch, context=0.75 * context, bytes_rate=bytes_rate, product_rate=rate)
            fastest = min(one.decoding for one, _ in clocks)
            typer.echo(
                f"{batch:>5} {context:>7}  {_spread((work.total / one.total for one, _ in clocks), 0):>24} "
                f"{_spread((work.total / other.total for _, other in clocks), 0):>24} "
                f"{_spread(other.total / one.total for one, other in clocks):>19}  "
                f"{_spread((1e3 * one.decoding for one, _ in clocks), 1):>24} "
                f"{_spread((1e3 * other.decoding for _, other in clocks), 1):>24} "
                f"{_spread(other.decoding / one.decoding for one, other in clocks):>19}  "
                f"{max(least) / fastest:>5.0%} {'memory' if least[0] > least[1] else 'products'}"
            )
            rows += [
                {
                    "model": model,
                    "dtype": dtype,
                    "batch": batch,
                    "context": context,
                    "apart": apart,
                    "tokens": work.total,
                    "ours": one.turns,
                    "generate": other.turns,
                    "decoding": one.decoding,
                    "generate_decoding": other.decoding,
                    "limit": least,
                    "threads": torch.get_num_threads(),
                }
                for one, other in clocks
            ]
    batch, context = max(map(int, batches.split(","))), max(512, *map(int, contexts.split(",")))
    work = make_work(batch=batch, context=context, turns=MANY_TURNS, apart=apart, vocabulary=config.vocab_size, seed=1)
    many = [ours(loaded, work) for _ in range(min(repeats, 3))]
    growth = _spread(one.turns[-1] / one.turns[0] for one in many)
    last = ", ".join(f"{seconds:.2f}" for seconds in many[-1].turns)
    typer.echo(
        f"\n{MANY_TURNS} turns, batch {batch}, up to {context} tokens: last / first turn {growth}; seconds: {last}"
    )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    typer.echo(
        f"whole process: {usage.ru_utime + usage.ru_stime:.0f} s of processor time, at most "
        f"{usage.ru_maxrss / 2**20:.1f} GiB of memory; load {os.getloadavg()[0]:.1f} after"
    )
    if out is not None:
        out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
