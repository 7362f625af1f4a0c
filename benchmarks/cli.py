"""The `sesa` command: index a corpus, train by self-play, evaluate, measure retrieval.

    sesa train method=sesa corpus=atlas policy=smollm2 steps=4 --out runs/sesa
    sesa eval runs/sesa --data atlas:1 --memory on,off

Every command is one call of a library function; `benchmarks.__main__` runs them and turns mistakes into one line.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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

from sesa_env.errors import InvalidInput

if TYPE_CHECKING:
    from agents.config import Settings
    from agents.selfplay import StepReport
    from benchmarks.datasets import Dataset

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
    backend: Annotated[
        Literal["lucene", "bm25", "dense"], typer.Option(help="lucene (Pyserini), bm25 (no Java) or dense (FAISS).")
    ] = "lucene",
    encoder: Annotated[
        str | None, typer.Option(help="For dense: minilm, e5-base-v2, or a model's folder or id.")
    ] = None,
) -> None:
    """Build a search index over a corpus."""
    from sesa_env.retrieval.index import build_index

    with _progress() as progress:
        task = progress.add_task("indexing", total=None)
        manifest = build_index(
            Path(corpus),
            out,
            backend=backend,
            encoder=encoder,
            progress=lambda passages: progress.update(task, completed=passages),
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
    memory: Annotated[str | None, typer.Option(help="on, off, or on,off; default what the run has.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most questions of each data set.")] = 100,
    gold_in_corpus: Annotated[bool, typer.Option(help="Only questions marked `gold_in_corpus`.")] = False,
    corpus: Annotated[
        str | None, typer.Option(help="Corpus to search; default the data's atlas, or the run's.")
    ] = None,
    retriever: Annotated[str | None, typer.Option(help="Default the run's.")] = None,
    index: Annotated[str | None, typer.Option(help="Index folder; default the run's.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="New file for the rows; default the first free RUN/eval*.jsonl.")
    ] = None,
) -> None:
    """Measure a run's solver on given questions, memory on and off."""
    _quiet_libraries()
    from benchmarks.evaluate import evaluate
    from benchmarks.report import report, write_rows

    sets = _load_sets(data, limit=limit, gold_in_corpus=gold_in_corpus)
    place = _new_file(out or _first_free(run, "eval", ".jsonl"))
    modes = tuple(memory.split(",")) if memory else ()
    rows = []
    with _progress() as progress:
        task = progress.add_task("answering", total=None)
        for one in sets:
            rows += evaluate(
                run,
                one,
                memory_modes=modes,
                corpus=corpus,
                retriever=retriever,
                index=index,
                on_answers=lambda count: progress.advance(task, count),
            )
    write_rows(rows, place)
    console.print(report(rows))
    console.print(f"rows saved in {place}", highlight=False)


@app.command("retrieval")
def retrieval_command(
    corpus: Annotated[Path, typer.Option(help="JSON-lines corpus.")],
    data: Annotated[
        list[Path], typer.Option(help="JSON-lines questions with supporting_titles; several times for several.")
    ],
    index: Annotated[list[Path], typer.Option(help="Index folder of that corpus; several times to compare.")],
    encoder: Annotated[str | None, typer.Option(help="For a dense index.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most questions of each data set.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure how many gold passages a search finds, back ends side by side."""
    from benchmarks.retrieval import measure, report, write_runs
    from sesa_env.retrieval.index import read_manifest

    backends = [read_manifest(folder).backend for folder in index]
    if len(set(backends)) < len(backends):
        raise InvalidInput(f"index must name one folder for each back end, got {', '.join(backends)}")
    place = _new_file(out) if out is not None else None
    with _progress() as progress:
        task = progress.add_task("searching", total=None)
        runs = measure(
            corpus,
            data,
            indexes=dict(zip(backends, index, strict=True)),
            limit=limit,
            encoder=encoder,
            progress=lambda backend, count: progress.update(task, description=backend, completed=count),
        )
    if place is not None:
        write_runs(runs, place)
    console.print(report(runs))


@app.command("oracle")
def oracle_command(
    data: Annotated[list[str], typer.Option(help='JSON-lines questions, or "atlas:SEED"; may be given several times.')],
    corpus: Annotated[str | None, typer.Option(help="Corpus to search; default the data's atlas.")] = None,
    retriever: Annotated[str, typer.Option(help="A registered retriever: bm25, lucene, dense, ...")] = "bm25",
    index: Annotated[str | None, typer.Option(help="Index folder of the corpus.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most questions of each data set.")] = 100,
    gold_in_corpus: Annotated[bool, typer.Option(help="Only questions marked `gold_in_corpus`.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Play gold queries and gold answers through the environment: it must score 100 %, or the plumbing leaks."""
    from benchmarks.evaluate import evaluate_oracle
    from benchmarks.report import report, write_rows

    place = _new_file(out) if out is not None else None
    rows = []
    for one in _load_sets(data, limit=limit, gold_in_corpus=gold_in_corpus):
        where = corpus or one.corpus
        if where is None:
            raise InvalidInput(f"corpus must be given for {one.name!r}, which does not bring its own")
        rows += evaluate_oracle(one, corpus=where, retriever=retriever, index=index)
    if place is not None:
        write_rows(rows, place)
    console.print(report(rows))


@app.command("demo")
def demo_command(
    out: Annotated[Path | None, typer.Option(help="Folder for the runs; default a new one under runs/.")] = None,
    policy: Annotated[str, typer.Option(help="A registered policy, a model folder, or a hub id.")] = "smollm2",
    questions: Annotated[int, typer.Option(min=1, help="Questions of the test world.")] = 16,
) -> None:
    """Run the whole system on the embedded corpus: self-play with SSP and SESA, then an evaluation."""
    _quiet_libraries()
    from benchmarks.demo import demo
    from benchmarks.report import report, write_rows

    folder = out or _first_free(Path("runs"), "demo")
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
        "Atlas is a made-up encyclopedia: a right answer was found by searching.\n"
        "Two steps of a model of 135M parameters show that everything works,\n"
        "and nothing about which method is better.\n"
        f"Everything is in {folder}: settings, every round played, skills, checkpoints.",
        highlight=False,
    )


def _load_sets(names: list[str], *, limit: int, gold_in_corpus: bool) -> list[Dataset]:
    """Load question sets, whose names in a table must differ."""
    from benchmarks.datasets import load_dataset

    sets = [load_dataset(name, limit=limit, gold_in_corpus=gold_in_corpus) for name in names]
    known = [one.name for one in sets]
    if len(set(known)) < len(known):
        raise InvalidInput(f"data sets must have different names, got {', '.join(known)}")
    return sets


def _first_free(folder: Path, name: str, end: str = "") -> Path:
    """Return the first of NAME, NAME-2, NAME-3 ... that does not exist yet."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for path in (folder / f"{one}{end}" for one in names) if not path.exists())


def _new_file(path: Path) -> Path:
    """Refuse a file that is there already, before any work is done for it."""
    if path.exists():
        raise InvalidInput(f"out must be a new file, got {str(path)!r}, which exists")
    return path


def _resolve(overrides: list[str]) -> Settings:
    """Resolve `method=NAME` and the other overrides into settings."""
    from agents.config import resolve
    from benchmarks.methods import method

    chosen = [override.partition("=")[2] for override in overrides if override.startswith("method=")]
    rest = [override for override in overrides if not override.startswith("method=")]
    return resolve(method(chosen[-1] if chosen else "sesa"), rest)


def _show_step(progress: Progress, task: TaskID | None, report: StepReport) -> None:
    numbers = report.numbers
    parts = [f"step {report.step}"]
    if "valid_share" in numbers:
        parts.append(f"valid {numbers['valid_share']:.0%}")
    if numbers["rounds/unusable"]:
        parts.append(f"{numbers['rounds/unusable']:.0f} attempts lost to the search tool")
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
