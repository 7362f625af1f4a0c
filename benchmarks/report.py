"""Evaluation rows, one per question, and the tables that are made from them and from nothing else.

A row keeps what happened, not a percentage, so every number in a table can be counted again from the file.  A question
the solver left unanswered counts as wrong; one that could not be scored (the search tool failed) counts as neither.

    write_rows(rows, path)
    rich.print(report(read_rows(path)))

The arms of a comparison belong to one run: memory on, memory off, and "placebo", which shows equally long skills that
say nothing.  On minus off is what the memory is worth; on minus placebo is what its words are worth, the longer prompt
apart.  Several seeds are several runs, and each gets its own lines in the table.  Nothing here plays a round: see
`benchmarks.evaluate`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from benchmarks.statistics import Difference, Estimate, paired_difference, proportion
from sesa_env.errors import CorpusError, DuplicateName, InvalidInput, MissingDependency
from skill_memory.records import replacing

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

SCHEMA = 2
"""Written in every line; raise it when a field changes its meaning, and `read_rows` refuses the older files."""

ON = "on"
BASELINES = ("off", "placebo")
"""The arms that memory on is compared with, in this order."""

SEED = 0
"""Seeds each comparison's bootstrap afresh, so that a table is a function of its rows."""

_SUMMARY_COLUMNS = ("EM\n[95 %]", "F1", "con-\ntains", "sear-\nches", "search/\nanswer/\ninvalid", "no\nanswer")
_DIFFERENCE_COLUMNS = ("EM\n[95 %]", "gained", "lost", "F1\n[95 %]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question, put to one method, with the memory on, off, or replaced by a placebo.

    `em`, `f1` and `containment` are None, all three, when the attempt could not be scored.

    Raises:
        InvalidInput: a field breaks its rule; the message names the field and the question.
    """

    run: str
    method: str
    memory: Literal["on", "off", "placebo"]
    dataset: str
    fictional: bool
    """Whether the questions are about an invented world; every table says so."""
    question_id: str
    family: str
    """What kind of question it is; "" where the data does not say."""
    answers: tuple[str, ...]
    prediction: str | None
    """The solver's answer; None when it gave none."""
    em: bool | None
    f1: float | None
    containment: bool | None
    turns: int
    searches: int
    invalid: int
    """Turns that were neither a search nor an answer."""
    end_reason: str
    skill_ids: tuple[str, ...]
    """Skills the prompt showed; always empty with the memory off."""
    prompt_tokens: int
    completion_tokens: int
    retrieval: str
    """Fingerprint of the retriever."""
    top_k: int
    """Passages returned by each search."""

    def __post_init__(self) -> None:
        for name in ("run", "method", "dataset", "question_id", "end_reason", "retrieval"):
            self._require(name, "a non-blank string", _is_text(getattr(self, name)))
        for name in ("turns", "searches", "invalid", "prompt_tokens", "completion_tokens", "top_k"):
            self._require(name, "a whole number of at least 0", _is_count(getattr(self, name)))
        for name in ("answers", "skill_ids"):
            self._require(name, "a tuple of non-blank strings", _is_text_tuple(getattr(self, name)))
        self._require("memory", "'on', 'off' or 'placebo'", self.memory in (ON, *BASELINES))
        self._require("family", "a string", isinstance(self.family, str))
        self._require("fictional", "True or False", isinstance(self.fictional, bool))
        self._require("prediction", "a string or None", self.prediction is None or isinstance(self.prediction, str))
        self._require("em", "True, False or None", self.em is None or isinstance(self.em, bool))
        self._require(
            "f1", "a number from 0 to 1, or None with em", _is_share(self.f1) if self.scored else self.f1 is None
        )
        self._require(
            "containment",
            "True or False, or None with em",
            isinstance(self.containment, bool) if self.scored else self.containment is None,
        )
        self._require("skill_ids", "empty with the memory off", self.memory != "off" or not self.skill_ids)
        self._require("turns", "at least searches + invalid", self.turns >= self.searches + self.invalid)

    @property
    def scored(self) -> bool:
        """Whether the attempt counts: False when the infrastructure failed or the judge gave no verdict."""
        return self.em is not None

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What may occur only once: run, method, dataset, memory mode and question."""
        return (self.run, self.method, self.dataset, self.memory, self.question_id)

    def _require(self, name: str, rule: str, holds: bool) -> None:
        if not holds:
            raise InvalidInput(f"{name} of question {self.question_id!r} must be {rule}, got {getattr(self, name)!r}")


class Cell(NamedTuple):
    """One line of the summary: a method on a data set, in one memory mode.

    Shares and means are over scored questions; `em` is None when there are none.
    """

    run: str
    method: str
    dataset: str
    fictional: bool
    memory: str
    scored: int
    unscored: int
    em: Estimate | None
    f1: float
    containment: float
    searches: float
    """Mean searches for one question."""
    search_share: float
    """Of all turns, those that searched."""
    answer_share: float
    invalid_share: float
    no_answer: float
    """Share of questions left without an answer."""


class Comparison(NamedTuple):
    """Memory on minus one baseline, paired over the questions that were scored in both arms."""

    run: str
    method: str
    dataset: str
    fictional: bool
    baseline: str
    """Of `BASELINES`."""
    left_out: int
    """Questions that one arm or both could not score."""
    em: Difference | None
    """None when no question was scored in both arms."""
    f1: Difference | None


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write all rows as JSON lines, or none: a killed process leaves the old file whole.

    Raises:
        InvalidInput: there are no rows.
        DuplicateName: a question occurs twice in one arm.
        StoreError: the disk is full, or the folder cannot be written to.
    """
    rows = _checked(rows)
    lines = [json.dumps({"schema": SCHEMA, **asdict(row)}, sort_keys=True, allow_nan=False) + "\n" for row in rows]
    with replacing(path) as draft:
        draft.write_text("".join(lines), encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """Read the rows that `write_rows` wrote, in their order.

    Raises:
        CorpusError: the file is missing or empty, or a line is not a row of this schema; the message has its number.
        DuplicateName: a question occurs twice in one arm.
    """
    if not path.is_file():
        raise CorpusError(f"{path} is not a file of rows")
    with path.open("rb") as file:
        rows = [_read_row(line, f"{path}:{number}") for number, line in enumerate(file, start=1)]
    if not rows:
        raise CorpusError(f"{path} holds no rows")
    return _checked(rows)


def summarise(rows: Iterable[Row]) -> list[Cell]:
    """Count the rows of each method, data set and memory mode.

    Raises:
        InvalidInput: there are no rows, or they come from different retrievers or numbers of passages.
        DuplicateName: a question occurs twice in one arm.
    """
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in _comparable(rows):
        groups[row.run, row.method, row.dataset, row.memory].append(row)
    return [_cell(groups[key]) for key in sorted(groups)]


def compare(rows: Iterable[Row]) -> list[Comparison]:
    """Pair memory on with each baseline that is there, question by question; empty when no run has two such arms.

    Raises:
        InvalidInput: two arms were asked different questions, or `summarise` would refuse the rows.
        DuplicateName: a question occurs twice in one arm.
    """
    arms: dict[tuple[str, str, str], dict[str, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in _comparable(rows):
        arms[row.run, row.method, row.dataset][row.memory][row.question_id] = row
    return [
        _comparison(arm[ON], arm[baseline])
        for _, arm in sorted(arms.items(), key=lambda item: item[0])
        for baseline in BASELINES
        if arm[ON] and arm[baseline]
    ]


def summary_table(rows: Iterable[Row]) -> Table:
    """Lay out `summarise`: exact match in per cent with Wilson's 95 % interval, and how the turns were spent.

    Raises:
        InvalidInput, DuplicateName: see `summarise`.
        MissingDependency: rich is not installed.
    """
    rows = list(rows)
    cells = summarise(rows)
    table = _table("Evaluation, per cent", rows, columns=("method,\nmemory", "data set", "n", *_SUMMARY_COLUMNS))
    for cell, method in zip(cells, _methods(cells), strict=True):
        asked = _count(cell.scored, cell.unscored)
        table.add_row(*map(_text, (f"{method},\n{cell.memory}", _dataset(cell), asked, *_scores(cell))))
    return table


def difference_table(rows: Iterable[Row]) -> Table:
    """Lay out `compare`: memory on minus each baseline with a 95 % bootstrap interval, bold when it excludes zero.

    Raises:
        InvalidInput, DuplicateName: see `compare`.
        MissingDependency: rich is not installed.
    """
    rows = list(rows)
    comparisons = compare(rows)
    there = [name for name in BASELINES if any(comparison.baseline == name for comparison in comparisons)]
    title = f"Memory on minus memory {' and '.join(there)}, percentage points"
    table = _table(title, rows, columns=("method,\nminus", "data set", "n", *_DIFFERENCE_COLUMNS))
    for comparison, method in zip(comparisons, _methods(comparisons), strict=True):
        label = f"{method},\n{comparison.baseline}"
        table.add_row(_text(label), _text(_dataset(comparison)), *_difference_cells(comparison))
    return table


def report(rows: Iterable[Row]) -> Group:
    """Return what to print: the summary and, where a run has memory on and a baseline, the differences.

    Raises:
        InvalidInput, DuplicateName: see `summarise` and `compare`.
        MissingDependency: rich is not installed.
    """
    rows = list(rows)
    summary, differences = summary_table(rows), difference_table(rows)
    from rich.console import Group

    return Group(summary, differences) if differences.row_count else Group(summary)


def _checked(rows: Iterable[Row]) -> list[Row]:
    rows = list(rows)
    if not rows:
        raise InvalidInput("rows must not be empty, got []")
    seen: dict[tuple[str, ...], int] = {}
    for position, row in enumerate(rows):
        if (first := seen.setdefault(row.key, position)) != position:
            raise DuplicateName(
                f"question {row.question_id!r} occurs twice in {row.key[:4]!r}, at rows {first} and {position}"
            )
    return rows


def _comparable(rows: Iterable[Row]) -> list[Row]:
    rows = _checked(rows)
    if len(conditions := {(row.retrieval, row.top_k) for row in rows}) > 1:
        raise InvalidInput(f"rows of one table must share retrieval and top_k, got {sorted(conditions)!r}")
    return rows


def _read_row(line: bytes, place: str) -> Row:
    try:
        data = json.loads(line)
    except ValueError as error:  # bad JSON, and bytes that are not UTF-8
        raise CorpusError(f"{place}: not a JSON object: {error}") from error
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise CorpusError(f"{place}: not a row of schema {SCHEMA}, got {line[:80]!r}")
    if unlike := data.keys() ^ {field.name for field in fields(Row)}:
        raise CorpusError(f"{place}: fields missing or unknown: {', '.join(sorted(unlike))}")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    try:
        return Row(**values)
    except InvalidInput as error:
        raise CorpusError(f"{place}: {error}") from error


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_text_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_text, value))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0


def _cell(rows: Sequence[Row]) -> Cell:
    scored = [row for row in rows if row.scored]
    turns = sum(row.turns for row in scored)
    searches = sum(row.searches for row in scored)
    invalid = sum(row.invalid for row in scored)
    n = len(scored)
    return Cell(
        *(rows[0].run, rows[0].method, rows[0].dataset),
        fictional=any(row.fictional for row in rows),
        memory=rows[0].memory,
        scored=n,
        unscored=len(rows) - n,
        em=proportion(sum(bool(row.em) for row in scored), n) if n else None,
        f1=_share(sum(row.f1 or 0.0 for row in scored), n),
        containment=_share(sum(bool(row.containment) for row in scored), n),
        searches=_share(searches, n),
        search_share=_share(searches, turns),
        answer_share=_share(turns - searches - invalid, turns),
        invalid_share=_share(invalid, turns),
        no_answer=_share(sum(row.prediction is None for row in scored), n),
    )


def _share(part: float, whole: int) -> float:
    return part / whole if whole else float("nan")


def _comparison(on: Mapping[str, Row], off: Mapping[str, Row]) -> Comparison:
    sample, baseline = next(iter(on.values())), next(iter(off.values())).memory
    if unpaired := sorted(on.keys() ^ off.keys()):
        raise InvalidInput(
            f"memory on and {baseline} must be asked the same questions of {sample.dataset!r}, "
            f"got {len(unpaired)} in one arm only, as {unpaired[0]!r}"
        )
    both = [question for question in on if on[question].scored and off[question].scored]
    return Comparison(
        *(sample.run, sample.method, sample.dataset),
        fictional=any(row.fictional for row in (*on.values(), *off.values())),
        baseline=baseline,
        left_out=len(on) - len(both),
        em=_difference({q: float(bool(on[q].em)) for q in both}, {q: float(bool(off[q].em)) for q in both}),
        f1=_difference({q: on[q].f1 or 0.0 for q in both}, {q: off[q].f1 or 0.0 for q in both}),
    )


def _difference(on: Mapping[str, float], off: Mapping[str, float]) -> Difference | None:
    return paired_difference(on, off, rng=np.random.default_rng(SEED)) if on else None


def _table(title: str, rows: Sequence[Row], *, columns: Sequence[str]) -> Table:
    """Make an empty table: two columns of words, then numbers.

    Cells and headings break their own lines so that 80 characters are enough, which is what a log file gets.
    """
    try:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
    except ImportError as error:
        raise MissingDependency("a table needs the extra `cli` (rich): pip install 'sesa-env[cli]'") from error
    caption = f"retrieval {rows[0].retrieval}, {rows[0].top_k} passages a search"
    look: dict[str, Any] = {"box": SIMPLE_HEAD, "show_edge": False, "padding": (0, 1, 0, 0), "caption_justify": "left"}
    table = Table(title=title, caption=_text(caption), **look)
    for place, column in enumerate(columns):
        table.add_column(_text(column), justify="left" if place < 2 else "right", overflow="fold", vertical="bottom")
    return table


def _text(content: str, style: str = "") -> Text:
    """Wrap text so that rich takes square brackets in it literally."""
    from rich.text import Text

    return Text(content, style=style)


def _methods(lines: Sequence[Cell] | Sequence[Comparison]) -> list[str]:
    """Name each line by its method, and by its run where there are several."""
    several = len({line.run for line in lines}) > 1
    return [f"{line.method} ({line.run})" if several else line.method for line in lines]


def _dataset(line: Cell | Comparison) -> str:
    return f"{line.dataset}\n(fictional)" if line.fictional else line.dataset


def _count(scored: int, unscored: int) -> str:
    return f"{scored}/{scored + unscored}" if unscored else str(scored)


def _scores(cell: Cell) -> tuple[str, ...]:
    if cell.em is None:
        return ("-",) * len(_SUMMARY_COLUMNS)
    mix = "/".join(f"{100 * share:.0f}" for share in (cell.search_share, cell.answer_share, cell.invalid_share))
    return (
        _estimate(cell.em),
        f"{100 * cell.f1:.1f}",
        f"{100 * cell.containment:.1f}",
        f"{cell.searches:.2f}",
        mix,
        f"{100 * cell.no_answer:.1f}",
    )


def _estimate(estimate: Estimate, sign: str = "") -> str:
    value = f"{100 * estimate.value:{sign}.1f}"
    if estimate.interval is None:
        return f"{value}\n{estimate.why_none},\nno interval"
    low, high = estimate.interval
    return f"{value}\n[{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def _difference_cells(comparison: Comparison) -> tuple[Text, ...]:
    if comparison.em is None or comparison.f1 is None:
        return tuple(map(_text, (_count(0, comparison.left_out), *("-",) * len(_DIFFERENCE_COLUMNS))))
    em, f1 = comparison.em, comparison.f1
    return (
        _text(_count(em.estimate.n, comparison.left_out)),
        _text(_estimate(em.estimate, "+"), _style(em.estimate)),
        _text(str(em.better)),
        _text(str(em.worse)),
        _text(_estimate(f1.estimate, "+"), _style(f1.estimate)),
    )


def _style(estimate: Estimate) -> str:
    return "bold" if estimate.excludes_zero else ""
