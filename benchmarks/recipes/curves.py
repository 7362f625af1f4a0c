"""Learning curves as rows of counts in a file, and the plot that is made from the rows alone.

    write_rows(rows, folder / "solver-0.jsonl")
    rows = read_runs(folder, "solver")

A row is a dictionary with a schema number; each recipe says what its rows hold.  A run rewrites its file at each point,
so one that is stopped leaves the curve up to there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

from sesa_env.errors import CorpusError, MissingDependency
from skill_memory.records import replacing

SCHEMA = 1
"""Written in every line; raise it when a field changes its meaning."""

COLOURS = ("#3366aa", "#cc7722", "#449966", "#aa4499", "#777777")

Row = dict[str, Any]


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as JSON lines, all or none."""
    lines = [json.dumps({"schema": SCHEMA, **row}) + "\n" for row in rows]
    with replacing(path) as draft:
        draft.write_text("".join(lines), encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file.

    Raises:
        CorpusError: a row is of another schema.
    """
    rows: list[Row] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows, start=1):
        if row.pop("schema") != SCHEMA:
            raise CorpusError(f"{path}, line {number}: schema must be {SCHEMA}; run the recipe again")
    return rows


def read_runs(folder: Path, name: str) -> list[Row]:
    """Return the rows of every file `NAME-*.jsonl` in a folder, file after file."""
    return [row for path in sorted(folder.glob(f"{name}-*.jsonl")) for row in read_rows(path)]


def in_parallel(job: Callable[..., object], arguments: Sequence[tuple[Any, ...]], *, processes: int) -> None:
    """Run a job once for each tuple of arguments, each in a fresh process."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in [pool.submit(job, *each) for each in arguments]:
            done.result()


def pyplot() -> ModuleType:
    """Return matplotlib's pyplot, drawing to files only.

    Raises:
        MissingDependency: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingDependency("plots need the extra `rl` (matplotlib): pip install 'sesa-env[rl]'") from error
    matplotlib.use("agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def stable_baselines() -> ModuleType:
    """Return stable_baselines3.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        import stable_baselines3
    except ImportError as error:
        raise MissingDependency("this recipe needs the extra `rl`: pip install 'sesa-env[rl]'") from error
    return stable_baselines3
