"""The commands about the mini policy: train it from scratch, and examine it.

sesa mini train --out runs/mini
sesa mini eval runs/mini/model --questions 170
sesa mini challenge runs/mini/model --targets 100
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sesa_env.errors import InvalidInput

app = typer.Typer(no_args_is_help=True, help="Make and measure the small policy that learns within minutes.")


@app.command("train")
def train_command(
    out: Annotated[Path, typer.Option(help="Folder of the training; new unless --resume.")],
    worlds: Annotated[int, typer.Option(min=1, help="Training worlds to go through; 15 take about an hour.")] = 15,
    early: Annotated[
        int | None, typer.Option(min=1, help="Also keep the policy as it is after so many worlds.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="Folder of a training to go on from, in worlds of its own.")
    ] = None,
    first_world: Annotated[int, typer.Option(min=0, help="Number of the first training world.")] = 0,
    lr: Annotated[float, typer.Option(min=0.0, help="Highest step size.")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    bfloat16: Annotated[
        bool,
        typer.Option("--bfloat16/--float32", help="Number format of matrix products; float32 on older processors."),
    ] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
) -> None:
    """Train the mini policy from scratch on scripted conversations from fictional worlds."""
    from agents.mini.train import MiniSettings, train

    def tell(row: dict[str, float]) -> None:
        if row["step"] % 25 == 0:
            typer.echo(f"step {row['step']}, world {row['world']}, loss {row['loss']:.3f}, right {row['accuracy']:.1%}")

    settings = MiniSettings(
        seed=seed,
        start=str(start) if start else None,
        first_world=first_world,
        worlds=worlds,
        early=early,
        lr=lr,
        bfloat16=bfloat16,
    )
    folder = train(None if resume else settings, out, resume=resume, on_step=tell)
    typer.echo(f"policy saved in {folder}")


@app.command("eval")
def eval_command(
    policy: Annotated[Path, typer.Argument(help="Folder of a policy.")],
    worlds: Annotated[str, typer.Option(help="Test worlds: odd numbers, comma-separated.")] = "1,3,5",
    questions: Annotated[int, typer.Option(min=1, help="Most questions of each family in each world.")] = 170,
    top_k: Annotated[int, typer.Option(min=1, help="Passages per search.")] = 3,
    out: Annotated[Path | None, typer.Option(help="New file for the rows.")] = None,
) -> None:
    """Measure exact match in test worlds by number of hops, and with relevant and irrelevant skills."""
    from benchmarks.mini_exam import evaluate_policy, table

    _require_new(out)
    rows = evaluate_policy(policy, worlds=_numbers(worlds), questions=questions, top_k=top_k)
    _write(rows, out)
    typer.echo(table(rows))


@app.command("challenge")
def challenge_command(
    policy: Annotated[Path, typer.Argument(help="Folder of a policy.")],
    worlds: Annotated[str, typer.Option(help="Test worlds: odd numbers, comma-separated.")] = "1,3,5",
    targets: Annotated[int, typer.Option(min=1, help="Answers to pose a question about, in each world.")] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="At which questions are written.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=1, help="Passages per search.")] = 1,
    out: Annotated[Path | None, typer.Option(help="New file for the rows.")] = None,
) -> None:
    """Measure a challenger in test worlds: shares of valid, right, different and frontier questions."""
    from benchmarks.mini_challenge import challenge, table

    _require_new(out)
    rows = challenge(policy, worlds=_numbers(worlds), targets=targets, temperature=temperature, top_k=top_k)
    _write(rows, out)
    typer.echo(table(rows))


def _require_new(out: Path | None) -> None:
    if out is not None and out.exists():
        raise InvalidInput(f"out must be a new file, got {str(out)!r}, which exists")


def _numbers(worlds: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", worlds):
        raise InvalidInput(f"worlds must be whole numbers, comma-separated, got {worlds!r}")
    return [int(world) for world in worlds.split(",")]


def _write(rows: Sequence[Any], out: Path | None) -> None:
    if out is not None:
        out.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")
