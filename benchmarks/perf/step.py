"""What a whole GRPO step costs, beside TRL's GRPOTrainer with its environment hook.

    python -m benchmarks.perf.step --repeats 5                        # a random model of the mini policy's size
    python -m benchmarks.perf.step --model smollm2 --dtype bfloat16 --no-warm --repeats 1
    python -m benchmarks.perf.step --venvs DIR                        # keep TRL's virtual environment, and use it again

A step is eight questions with five attempts each, three searches and an answer of 64 written tokens each, and the
update of the weights.  Both get the same model, prompts and documents as data, sample at the same temperature from the
whole vocabulary, and write the same number of tokens; see `benchmarks.perf.trainers` for what is forced.  No KL term,
one optimiser step, AdamW.  TRL is installed with the versions of torch and transformers that run here.

Each has a process of its own, and they take turns, so that a busy machine slows both; a ratio is that of one repeat.
On a busy machine the seconds that the processor worked say more than those that passed, and both are given.  The peak
of memory is the whole process's.  With `--train full` ours keeps float32 weights, gradients and state of the optimiser
and computes in the number format of the run.  So does TRL with `--peer-float32`; without it TRL keeps all of
them in the format of the run, which is its fastest way.  TRL's `--checkpointing` takes less memory and more time; ours
never needs it here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Annotated, Any, cast

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from agents.config import ModelSettings
from agents.device import number_format, resolve_device
from agents.policies import source_of
from agents.prompts import solver_messages
from benchmarks.perf.env import spread
from benchmarks.perf.generation import SMALL
from sesa_env.corpora import load_passages
from sesa_env.errors import BackendUnavailable, InvalidInput, MissingDependency
from sesa_env.text import render_passages
from sesa_env.types import Passage

try:
    import typer
except ImportError as error:
    raise MissingDependency("this benchmark needs the extra `cli`: pip install 'sesa-env[cli]'") from error

SCRIPT = Path(__file__).with_name("trainers.py")
TRL = "trl==1.16.0"
PASSAGES, PASSAGE_CHARS = 3, 400
"""Documents of a search, and how much of each is shown: what a run does by default."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + ('user' if message['role'] == 'tool' else message['role']) + '\n' + message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}{{ call['function']['name'] }}{{ call['function']['arguments'] }}"
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""SmolLM2's own, for a conversation that opens with a system message; results of a tool are a user's turns in both."""
_TOKENS_DIFFER = 0.02
"""TRL adds no end to a turn that the model has not ended, which is one token in three hundred."""

Row = dict[str, Any]


def make_work(folder: Path, *, model: str, questions: int, attempts: int, turns: int, written: int, **how: Any) -> Path:
    """Write what all contenders are given, and return the file.

    Args:
        folder: where it is written, and the small model with it.
        model: "small", or a policy.
        questions: groups of a step.
        attempts: at each question.
        turns: of each attempt, the answer included.
        written: tokens of a turn.
        how: how they train, as `trainers` reads it.
    """
    passages = list(load_passages("atlas")[0])
    texts = [f"Which of the places near {passage.title} did its founder leave?" for passage in passages[:questions]]
    found, place = {}, 0
    for question in range(questions):
        for attempt in range(attempts):
            for turn in range(turns - 1):
                result = passages[place : place + PASSAGES]
                place = (place + PASSAGES) % (len(passages) - PASSAGES)
                found[f"{question} {attempt} {turn}"] = {
                    "passages": [[passage.id, passage.title, passage.text, 1.0] for passage in result],
                    "text": render_passages(result, max_chars=PASSAGE_CHARS),
                }
    source = str(_small_model(folder / "small", passages)) if model == "small" else str(source_of(model))
    work = {
        "model": source,
        "chat_template": CHAT_TEMPLATE,
        "questions": texts,
        "prompts": [[message._asdict() for message in solver_messages(text)] for text in texts],
        "found": found,
        "attempts": attempts,
        "turns": turns,
        "written": written,
        "max_context": 4096,
        "scratch": str(folder / "scratch"),
        **how,
    }
    path = folder / "work.json"
    path.write_text(json.dumps(work), encoding="utf-8")
    return path


def _small_model(folder: Path, passages: Sequence[Passage]) -> Path:
    """Save a random model of the mini policy's size, with a vocabulary learned from the passages."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SMALL.vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((passage.text for passage in passages), trainer)
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>", bos_token="<|im_start|>"
    )
    fast.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    LlamaForCausalLM(SMALL).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


class Process:
    """A trainer in a process of its own.

    Args:
        name: in `trainers.CONTENDERS`.
        python: the interpreter that has it.
        work: file that `make_work` wrote.
    """

    def __init__(self, name: str, python: str, work: Path) -> None:
        self._name = name
        self._errors = (work.parent / f"{name}.log").open("w+", encoding="utf-8")
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
        if name == "ours":
            environment["PYTHONPATH"] = root
        self._process = subprocess.Popen(
            [python, str(SCRIPT), name, str(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=work.parent,
        )

    def step(self) -> Row:
        """Let it take a step, and return what it took.

        Raises:
            BackendUnavailable: it does not run.
        """
        asked, answers = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        with suppress(BrokenPipeError):  # what it printed says why, below
            asked.write("step\n")
            asked.flush()
        line = answers.readline()
        if not line:
            self._errors.seek(0)
            told = self._errors.read().strip().splitlines() or ["it said nothing"]
            raise BackendUnavailable(f"{self._name} does not run: {told[-1]}")
        took: Row = json.loads(line)
        return took

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()


def install(folder: Path) -> str:
    """Return the interpreter of a virtual environment with TRL, and torch and transformers as they are here.

    Raises:
        BackendUnavailable: it cannot be installed.
    """
    python = folder / "trl" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "trl", with_pip=True)
    same = [f"{name}=={version(name).partition('+')[0]}" for name in ("torch", "transformers", "peft")]
    done = subprocess.run([python, "-m", "pip", "install", "-q", TRL, *same], capture_output=True, text=True)
    if done.returncode:
        told = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise BackendUnavailable(f"{TRL} cannot be installed: {told[-1]}")
    return str(python)


def measure(
    processes: Mapping[str, Any], *, repeats: int, warm: bool, tell: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Let the contenders take turns, each repeat beginning with another one, and return a row for each step.

    Args:
        processes: what takes steps, by name.
        repeats: steps of each that are counted.
        warm: whether each takes one before that is not.
        tell: hears each row when its step is done, since one can take minutes.

    Raises:
        InvalidInput: they did not do the same work.
    """
    names, rows = list(processes), []
    if warm:
        for process in processes.values():
            process.step()
    for repeat in range(repeats):
        for place in range(len(names)):
            name = names[(place + repeat) % len(names)]
            took = processes[name].step()
            rows.append({"contender": name, "repeat": repeat, **took, "load": round(os.getloadavg()[0], 2)})
            tell(rows[-1])
    for kind in ("prompt", "written", "read"):
        least, most = (extreme(row[kind] for row in rows) for extreme in (min, max))
        if most - least > _TOKENS_DIFFER * most or (kind == "written" and least != most):
            raise InvalidInput(f"contenders must do the same work, and had {least} to {most} {kind} tokens")
    return rows


def report(rows: Sequence[Row]) -> str:
    """Return a table: medians with the range of the repeats, and how often ours goes into each, repeat by repeat."""
    columns = [("s passed", "seconds"), ("s worked", "processor"), ("of them writing", "processor_writing")]
    heads = "".join(f" {head:>24}" for head, _ in columns) + f" {'passed / ours':>20} {'worked / ours':>20}"
    lines = [f"{'contender':<9}{heads} {'peak GiB':>9} {'/ ours':>6}"]
    ours = {row["repeat"]: row for row in rows if row["contender"] == "ours"}
    least = max(row["peak_bytes"] for row in ours.values())
    for name in dict.fromkeys(row["contender"] for row in rows):
        own = [row for row in rows if row["contender"] == name]
        peak = max(row["peak_bytes"] for row in own)
        cells = "".join(f" {spread([row[key] for row in own], digits=1):>24}" for _, key in columns)
        for key in ("seconds", "processor"):
            cells += f" {spread([row[key] / ours[row['repeat']][key] for row in own], digits=2):>20}"
        lines.append(f"{name:<9}{cells} {peak / 2**30:>9.2f} {peak / least:>6.2f}")
    return "\n".join(lines)


def _open(work: Path, venvs: Path, *, peer: bool) -> dict[str, Process]:
    """Start the contenders; a peer that cannot be had is told and left out."""
    processes = {"ours": Process("ours", sys.executable, work)}
    if peer:
        try:
            processes["trl"] = Process("trl", install(venvs), work)
        except BackendUnavailable as error:
            typer.echo(str(error))
    return processes


def _tell(row: Row) -> None:
    typer.echo(
        f"{row['contender']}: {row['seconds']:.1f} s, worked {row['processor']:.1f} s, load {row['load']}", err=True
    )


def main(
    model: Annotated[str, typer.Option(help='"small", or a policy: a registered name, a folder, a hub id.')] = "small",
    train: Annotated[str, typer.Option(help='"full" or "lora".')] = "full",
    dtype: Annotated[str, typer.Option(help='"auto", "float32" or "bfloat16".')] = "auto",
    device: Annotated[str, typer.Option(help='"cpu" or "cuda".')] = "cpu",
    questions: Annotated[int, typer.Option(min=1, help="Questions of a step.")] = 8,
    attempts: Annotated[int, typer.Option(min=2, help="Attempts at each.")] = 5,
    searches: Annotated[int, typer.Option(min=0, help="Search turns before the answer.")] = 3,
    written: Annotated[int, typer.Option(min=1, help="Tokens of a turn.")] = 64,
    micro_batch_tokens: Annotated[
        int, typer.Option(min=1, help="Ours: tokens of a forward pass of the update.")
    ] = 1024,
    sequences: Annotated[int, typer.Option(min=1, help="TRL: attempts in a forward pass of the update.")] = 5,
    peer_attention: Annotated[str, typer.Option(help='TRL: "sdpa", its default, or "eager".')] = "sdpa",
    peer_float32: Annotated[bool, typer.Option("--peer-float32", help="TRL: float32 weights, as ours.")] = False,
    checkpointing: Annotated[bool, typer.Option("--checkpointing", help="TRL: run layers again, its default.")] = False,
    peer: Annotated[bool, typer.Option(help="Measure TRL, too.")] = True,
    venvs: Annotated[Path | None, typer.Option(help="Folder for TRL's virtual environment.")] = None,
    warm: Annotated[bool, typer.Option(help="Let each take a step first that is not counted.")] = True,
    repeats: Annotated[int, typer.Option(min=1, help="Steps of each that are counted.")] = 3,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure the steps and print the table."""
    chosen = number_format(ModelSettings(train=train, dtype=dtype, device=device), resolve_device(device))
    how = {
        "train": train,
        "dtype": chosen.dtype,
        "device": device,
        "peer_attention": peer_attention,
        "peer_weights": "float32" if peer_float32 else chosen.dtype,
        "micro_batch_tokens": micro_batch_tokens,
        "sequences": sequences,
        "checkpointing": checkpointing,
    }
    folder = Path(tempfile.mkdtemp())
    processes: dict[str, Process] = {}
    try:
        work = make_work(
            folder,
            model=model,
            questions=questions,
            attempts=attempts,
            turns=searches + 1,
            written=written,
            **how,
        )
        processes = _open(work, venvs or folder, peer=peer)
        rows = measure(processes, repeats=repeats, warm=warm, tell=_tell)
    finally:
        for process in processes.values():
            process.close()
        shutil.rmtree(folder)
    about = {"model": model, "questions": questions, "attempts": attempts, "turns": searches + 1, **how}
    about |= {"threads": torch.get_num_threads(), "cpu": torch.backends.cpu.get_cpu_capability()}
    typer.echo(", ".join(f"{name} {value}" for name, value in about.items()))
    tokens = {kind: rows[0][kind] for kind in ("prompt", "written", "read")}
    typer.echo(", ".join(f"{count:,} tokens {kind}" for kind, count in tokens.items()))
    typer.echo(report(rows))
    if out is not None:
        out.write_text("".join(json.dumps({**about, **row}) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
