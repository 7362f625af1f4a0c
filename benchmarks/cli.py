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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

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

from benchmarks.mini import app as mini_app
from benchmarks.skills import app as skills_app
from sesa_env.corpora import is_atlas
from sesa_env.errors import InvalidInput

if TYPE_CHECKING:
    from agents.config import Settings
    from agents.selfplay import StepReport
    from benchmarks.datasets import Dataset
    from benchmarks.retrieval import Run

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
console = Console()
notes = Console(stderr=True)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE...", help="Settings: method, corpus, policy, steps, game.attempts, solver.lr, ..."
    ),
]


app.add_typer(skills_app, name="skills")
app.add_typer(mini_app, name="mini")


@app.callback()
def sesa() -> None:
    """Self-evolving search agents: pose, solve, remember, and measure."""
    # Torch's threads wait for one another by counting; with another process on one of their cores, a command whose
    # threads count for long takes five times as long and more (benchmarks/results/perf).  Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


@app.command("index")
def index_command(
    corpus: Annotated[str, typer.Option(help="JSON-lines corpus: id, title, contents; may be gzipped.")],
    out: Annotated[Path, typer.Option(help="Folder for the index; new or empty.")],
    backend: Annotated[
        str, typer.Option(help="lucene (Pyserini), bm25 (no Java), dense (FAISS), or several to fuse: lucene+dense.")
    ] = "lucene",
    encoder: Annotated[
        str | None, typer.Option(help="For dense: minilm, e5-base-v2, or a model's folder or id.")
    ] = None,
) -> None:
    """Build a search index over a corpus."""
    from sesa_env.retrieval.index import Backend, build_index, build_indexes

    backends = cast("list[Backend]", backend.split("+"))
    with _progress() as progress:
        task = progress.add_task("indexing", total=None)

        def tell(passages: int) -> None:
            progress.update(task, completed=passages)

        if len(backends) == 1:
            manifest = build_index(Path(corpus), out, backend=backends[0], encoder=encoder, progress=tell)
        else:
            manifest = build_indexes(Path(corpus), out, backends=backends, encoder=encoder, progress=tell)[0]
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


@app.command("sft")
def sft_command(
    settings: Overrides = None,
    out: Annotated[Path, typer.Option(help="Folder for the taught policy; new or empty.")] = Path("policies/start"),
    data: Annotated[
        list[str] | None,
        typer.Option(
            help='"atlas:SEED" (even), JSON-lines data with supporting_titles, or a run; several times for several.'
        ),
    ] = None,
    questions: Annotated[int, typer.Option(min=1, help="Most questions, or recorded attempts, of each.")] = 200,
    skills: Annotated[
        Literal["off", "on", "both"], typer.Option(help="Whether prompts show the memory's skills.")
    ] = "off",
    epochs: Annotated[int, typer.Option(min=1, help="How often each attempt is seen.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Attempts per update.")] = 16,
) -> None:
    """Teach a policy by example, from gold answers or from a run's successes, before it learns by itself."""
    _quiet_libraries()
    from benchmarks.sft import sft

    with _progress() as progress:
        task = progress.add_task("playing", total=None)
        sft(
            _resolve(settings or []),
            out,
            data=data or ["atlas:0"],
            questions=questions,
            skills=skills,
            epochs=epochs,
            batch=batch,
            on_update=lambda number, total, stats: progress.update(
                task, description=f"loss {stats.nll or float('nan'):.3f}", completed=number, total=total
            ),
        )
    console.print(f"policy saved in {out}: sesa train policy={out}", highlight=False)


@app.command("eval")
def eval_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    data: Annotated[list[str], typer.Option(help='JSON-lines questions, or "atlas:SEED"; may be given several times.')],
    memory: Annotated[
        str | None, typer.Option(help="Of on, off, placebo, comma-separated; default what the run has.")
    ] = None,
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
    """Measure a run's solver on given questions, with its memory on, off, or replaced by a placebo."""
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


@app.command("bench")
def bench_command(
    plan: Annotated[str, typer.Argument(help="methods, learning, challenger, demo, or the path of a plan in YAML.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the bench; the same one goes on; default runs/PLAN.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm.")] = 3,
    processes: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 1,
) -> None:
    """Train several methods with several seeds, and compare them question by question."""
    _quiet_libraries()
    from benchmarks.bench import POSED_FILE, bench, load_plan, table
    from benchmarks.learning import change_table, changes_of, gap_table, gaps_of, plot_learning, read_ends
    from benchmarks.posing import posing_table, read_posings
    from benchmarks.skill_effects import effect_table, read_effects

    folder = out or Path("runs") / Path(plan).stem
    asked = load_plan(plan)
    with _progress() as progress:
        rows = bench(
            asked,
            folder,
            seeds=seeds,
            processes=processes,
            tell=lambda text: progress.console.print(text, style="bold", highlight=False),
            on_step=lambda report: _show_step(progress, None, report),
        )
    arms = list(asked.arms)
    texts = [table(asked, rows)]
    runs = read_ends(folder, arms=arms, seeds=seeds)
    if changes := changes_of(runs):
        texts.append(change_table(changes))
        if gaps := gaps_of(runs):
            texts.append(gap_table(gaps))
        plot_learning(folder, arms=arms, seeds=seeds, path=folder / "learning.png")
    if asked.targets:
        files = [folder / f"{arm}-{seed}" / POSED_FILE for arm in arms for seed in range(seeds)]
        texts.append(posing_table([row for file in files for row in read_posings(file)]))
    if effects := read_effects(folder, arms=arms, rows=rows, seeds=seeds):
        texts.append(effect_table(effects))
    text = "\n\n".join(texts)
    (folder / "table.txt").write_text(text + "\n", encoding="utf-8")
    typer.echo(text)
    typer.echo(f"rows, runs, this table and the curves are in {folder}")


@app.command("retrieval")
def retrieval_command(
    data: Annotated[
        list[str],
        typer.Option(help='Questions with supporting_titles; or "atlas:SEED" for the hops of its questions.'),
    ],
    corpus: Annotated[Path | None, typer.Option(help="JSON-lines corpus of questions from a file.")] = None,
    index: Annotated[
        list[Path] | None, typer.Option(help="Index folder of that corpus; several times to compare.")
    ] = None,
    fuse: Annotated[bool, typer.Option(help="Measure the fusion of these indexes, too.")] = False,
    retriever: Annotated[
        list[str] | None, typer.Option(help="For an atlas: a registered name; default sparse, dense and fused ones.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most questions, or hops, of each data set.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure how many gold passages a search finds, back ends side by side."""
    if find_spec("transformers"):
        _quiet_libraries()
    from benchmarks.retrieval import report, write_runs

    place = _new_file(out) if out is not None else None
    with _progress() as progress:
        progress.add_task("searching", total=None)
        if all(map(is_atlas, data)):
            if corpus or index or fuse:
                raise InvalidInput("corpus, index and fuse are for questions from a file; an atlas takes retrievers")
            runs = _hop_runs(data, retriever, limit=limit)
        elif corpus and index and not retriever and not any(map(is_atlas, data)):
            runs = _index_runs(corpus, list(map(Path, data)), index, fuse=fuse, limit=limit)
        else:
            raise InvalidInput(f"corpus and index must be given for questions from files, and no retriever, got {data}")
    if place is not None:
        write_runs(runs, place)
    console.print(report(runs))


def _hop_runs(atlases: list[str], retrievers: list[str] | None, *, limit: int | None) -> list[Run]:
    from benchmarks.retrieval import HOP_RETRIEVERS, HOPS, WORDINGS, measure_hops

    names, n = retrievers or list(HOP_RETRIEVERS), limit or HOPS
    pairs = itertools.product(atlases, WORDINGS)
    return [run for atlas, wording in pairs for run in measure_hops(names, wording=wording, n=n, corpus=atlas)]


def _index_runs(corpus: Path, data: list[Path], index: list[Path], *, fuse: bool, limit: int | None) -> list[Run]:
    from benchmarks.retrieval import measure
    from sesa_env.retrieval.index import MANIFEST, read_manifest

    parts = [sorted(place.parent for place in folder.glob(f"*/{MANIFEST}")) or [folder] for folder in index]
    folders = [folder for part in parts for folder in part]
    backends = [read_manifest(folder).backend for folder in folders]
    if len(set(backends)) < len(backends):
        raise InvalidInput(f"index must name one folder for each back end, got {', '.join(backends)}")
    return measure(corpus, data, indexes=dict(zip(backends, folders, strict=True)), fuse=fuse, limit=limit)


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
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; one of an interrupted demo goes on; default a new one.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="A registered policy, a model folder, or a hub id.")] = None,
    questions: Annotated[int | None, typer.Option(min=1, help="Questions of the test world.")] = None,
) -> None:
    """Run the whole system on the embedded corpus: self-play with SSP and SESA, an evaluation, and what it means."""
    _quiet_libraries()
    from benchmarks.demo import demo

    folder = out or _first_free(Path("runs"), "demo")
    with _progress() as progress:
        text = demo(
            folder,
            policy=policy,
            questions=questions,
            tell=lambda text: progress.console.print(text, style="bold", highlight=False),
            on_step=lambda report: _show_step(progress, None, report),
        )
    typer.echo(text)
    typer.echo(f"\nEverything is in {folder}: settings, every round, skills, checkpoints, and curves in learning.png.")


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
    for warning in report.warnings:
        progress.console.print(f"warning: {warning}", style="yellow", highlight=False)
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
