"""The `sesa` command: index a corpus, train by self-play, evaluate, measure retrieval.

    sesa train method=sesa corpus=atlas policy=smollm2 steps=4 --out runs/sesa
    sesa eval runs/sesa --data atlas:1 --memory on,off

Every command is one call of a library function.  A user's mistake is one line on stderr and exit code 2; a traceback
means a bug.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from benchmarks.manifest import require_own_packages
from sesa_env.errors import InvalidInput, MissingDependency, SesaError

try:
    import typer
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
except ImportError as error:
    raise MissingDependency("the `sesa` command needs the extra `cli`: pip install 'sesa-env[cli]'") from error

if TYPE_CHECKING:
    from agents.selfplay import StepReport

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
console = Console()
notes = Console(stderr=True)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE...", help="Settings: method, corpus, policy, steps, game.attempts, solver.lr, ..."
    ),
]


@app.callback()
def sesa() -> None:
    """Self-evolving search agents: pose, solve, remember, and measure."""


@app.command("index")
def index_command(
    corpus: Annotated[str, typer.Option(help="JSON-lines corpus: id, title, contents; may be gzipped.")],
    out: Annotated[Path, typer.Option(help="Folder for the index; new or empty.")],
    backend: Annotated[Literal["lucene", "bm25"], typer.Option(help="lucene (Pyserini) or bm25 (no Java).")] = "lucene",
) -> None:
    """Build a search index over a corpus."""
    from sesa_env.retrieval.index import build_index

    with _progress() as progress:
        task = progress.add_task("indexing", total=None)
        manifest = build_index(
            Path(corpus), out, backend=backend, progress=lambda passages: progress.update(task, completed=passages)
        )
    console.print(f"{manifest.passages:,} passages indexed in {out} ({backend})", highlight=False)


@app.command("train")
def train_command(
    settings: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default runs/METHOD-SEED.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run from its last checkpoint.")] = None,
) -> None:
    """Train a challenger and a solver by self-play."""
    if resume is not None and (settings or out is not None):
        raise InvalidInput("--resume takes the run's own settings and folder, so give neither settings nor --out")
    _quiet_libraries()
    from agents.config import load_settings
    from benchmarks.train import SETTINGS_FILE, train

    resolved = load_settings(resume / SETTINGS_FILE) if resume is not None else _resolve(settings or [])
    folder = resume or out or Path("runs") / f"{resolved.method}-{resolved.seed}"
    with _progress() as progress:
        task = progress.add_task("training", total=resolved.steps)
        train(
            resolved,
            folder,
            resume=resume is not None,
            on_tick=lambda: progress.update(task, description="playing"),
            on_step=lambda report: _show_step(progress, task, report),
        )
    console.print(f"run saved in {folder}", highlight=False)


@app.command("eval")
def eval_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    data: Annotated[list[str], typer.Option(help='JSON-lines questions, or "atlas:SEED"; may be given several times.')],
    memory: Annotated[str, typer.Option(help="on, off, or on,off.")] = "on,off",
    limit: Annotated[int, typer.Option(min=1, help="Most questions of each data set.")] = 100,
    gold_in_corpus: Annotated[bool, typer.Option(help="Only questions marked `gold_in_corpus`.")] = False,
    corpus: Annotated[
        str | None, typer.Option(help="Corpus to search; default the data's atlas, or the run's.")
    ] = None,
    retriever: Annotated[str | None, typer.Option(help="Default the run's.")] = None,
    index: Annotated[str | None, typer.Option(help="Index folder; default the run's.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the rows; default RUN/eval.jsonl.")] = None,
) -> None:
    """Measure a run's solver on given questions, memory on and off."""
    _quiet_libraries()
    from benchmarks.datasets import load_dataset
    from benchmarks.evaluate import evaluate
    from benchmarks.report import report, write_rows

    modes = tuple(memory.split(","))
    sets = [load_dataset(name, limit=limit, gold_in_corpus=gold_in_corpus) for name in data]
    rows = []
    with _progress() as progress:
        task = progress.add_task("answering", total=sum(len(one.questions) for one in sets) * len(modes))
        for one in sets:
            rows += evaluate(
                run,
                one.questions,
                dataset=one.name,
                memory_modes=modes,
                corpus=corpus or one.corpus,
                retriever=retriever,
                index=index,
                on_answers=lambda count: progress.advance(task, count),
            )
    write_rows(rows, out or run / "eval.jsonl")
    console.print(report(rows))


@app.command("retrieval")
def retrieval_command(
    corpus: Annotated[Path, typer.Option(help="JSON-lines corpus.")],
    data: Annotated[
        list[Path], typer.Option(help="JSON-lines questions with supporting_titles; several times for several.")
    ],
    index: Annotated[list[Path], typer.Option(help="Index folder of that corpus; several times to compare.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Most questions of each data set.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure how many gold passages a search finds, back ends side by side."""
    from benchmarks.retrieval import measure, report, write_runs
    from sesa_env.retrieval.index import read_manifest

    with _progress() as progress:
        task = progress.add_task("searching", total=None)
        runs = measure(
            corpus,
            data,
            indexes={read_manifest(folder).backend: folder for folder in index},
            limit=limit,
            progress=lambda backend, count: progress.update(task, description=backend, completed=count),
        )
    if out is not None:
        write_runs(runs, out)
    console.print(report(runs))


@app.command("oracle")
def oracle_command(
    data: Annotated[list[str], typer.Option(help='JSON-lines questions, or "atlas:SEED"; may be given several times.')],
    corpus: Annotated[str | None, typer.Option(help="Corpus to search; default the data's atlas.")] = None,
    retriever: Annotated[str, typer.Option(help="lucene or bm25.")] = "bm25",
    index: Annotated[str | None, typer.Option(help="Index folder of the corpus.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most questions of each data set.")] = 100,
    gold_in_corpus: Annotated[bool, typer.Option(help="Only questions marked `gold_in_corpus`.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Play gold queries and gold answers through the environment: it must score 100 %, or the plumbing leaks."""
    from benchmarks.datasets import load_dataset
    from benchmarks.evaluate import evaluate_oracle
    from benchmarks.report import report, write_rows

    rows = []
    for name in data:
        one = load_dataset(name, limit=limit, gold_in_corpus=gold_in_corpus)
        where = corpus or one.corpus
        if where is None:
            raise InvalidInput(f"corpus must be given for {name!r}, which does not bring its own")
        rows += evaluate_oracle(one.questions, dataset=one.name, corpus=where, retriever=retriever, index=index)
    if out is not None:
        write_rows(rows, out)
    console.print(report(rows))


@app.command("demo")
def demo_command(
    out: Annotated[Path | None, typer.Option(help="Folder for the runs; default a new one under runs/.")] = None,
    policy: Annotated[str, typer.Option(help="A registered policy, a model folder, or a hub id.")] = "smollm2",
    questions: Annotated[int, typer.Option(min=1, help="Questions of the test world.")] = 24,
) -> None:
    """Run the whole system on the embedded corpus: self-play with SSP and SESA, then an evaluation."""
    _quiet_libraries()
    from benchmarks.demo import demo
    from benchmarks.report import report, write_rows

    folder = out or _new_folder(Path("runs"), "demo")
    with _progress() as progress:
        task = progress.add_task("demo", total=None)
        rows = demo(
            folder,
            policy=policy,
            questions=questions,
            tell=lambda text: progress.console.print(text, style="bold", highlight=False),
            on_tick=lambda: progress.advance(task),
            on_step=lambda report: _show_step(progress, None, report),
        )
    write_rows(rows, folder / "eval.jsonl")
    console.print(report(rows))
    console.print(
        "Atlas is a made-up encyclopedia, so a right answer was found by searching. A model of 135M parameters after\n"
        "two steps shows that everything works, and nothing about which method is better.\n"
        f"Everything is in {folder}: settings, every round played, skills, checkpoints.",
        highlight=False,
    )


def _new_folder(parent: Path, name: str) -> Path:
    """Return the first of NAME, NAME-2, NAME-3 ... that does not exist yet."""
    return next(path for path in (parent / f"{name}{end}" for end in _endings()) if not path.exists())


def _endings() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in itertools.count(2))


def _resolve(overrides: list[str]):  # type: ignore[no-untyped-def]  # noqa: ANN202 - Settings, imported late
    """Resolve `method=NAME` and the other overrides into settings."""
    from agents.config import resolve
    from benchmarks.methods import method

    chosen = [override.partition("=")[2] for override in overrides if override.startswith("method=")]
    rest = [override for override in overrides if not override.startswith("method=")]
    return resolve(method(chosen[-1] if chosen else "sesa"), rest)


def _show_step(progress: Progress, task: TaskID | None, report: StepReport) -> None:
    numbers = report.numbers
    parts = [f"step {report.step}", f"valid {numbers.get('valid_share', 0):.0%}"]
    if "solve_rate/mean" in numbers:
        parts.append(f"solve rate {numbers['solve_rate/mean']:.2f}")
        parts.append(f"at the frontier {numbers['solve_rate/frontier_share']:.0%}")
    for role in ("challenger", "solver"):
        if f"{role}/loss" in numbers:
            parts.append(f"{role} loss {numbers[f'{role}/loss']:+.3f}")
    if numbers["memory/size"]:
        parts.append(f"skills {numbers['memory/size']:.0f}")
    if report.consolidation is not None:
        parts.append(f"({len(report.consolidation.admitted)} new)")
    progress.console.print(", ".join(parts), highlight=False)
    if task is not None:
        progress.advance(task)


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as progress:
        yield progress


def _quiet_libraries() -> None:
    """Keep the model libraries' own progress bars, and warnings meant for their developers, off the screen."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def main() -> None:
    """Run the command line; expected errors become one line and exit code 2."""
    try:
        require_own_packages()
        app()
    except SesaError as error:
        notes.print(f"sesa: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
