"""What 64 environments gain from searching at once, beside the same 64 one after the other.

    python -m benchmarks.perf.vector                                             # bm25 over the embedded encyclopedia
    python -m benchmarks.perf.vector --backend dense
    python -m benchmarks.perf.vector --backend lucene --corpus wiki.jsonl --questions questions.jsonl --index DIR

Every slot searches for another question; with `--alike 5` each question is searched for by five slots, as when the
attempts at it begin alike.  Only steps that search are timed, by the wall clock, since a back end may use threads.

"vector" is `gymnasium.make_vec`, "single" Gymnasium's `SyncVectorEnv` over as many environments; "tool" is the search
tool alone, called with all queries at once or with one after the other.  They take turns with the same questions, so
that a busy machine slows all, and a ratio is that of one repeat.  A word that no passage has makes each query a new
one, since some tools remember what they were asked.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import gymnasium

import sesa_env  # noqa: F401  (registers the environments)
from benchmarks.perf.env import spread
from sesa_env.corpora.questions import load_questions
from sesa_env.errors import InvalidInput, MissingDependency
from sesa_env.retrieval.base import Retriever
from sesa_env.retrieval.index import Backend, build_index

try:
    import typer
except ImportError as error:
    raise MissingDependency("this benchmark needs the extra `cli`: pip install 'sesa-env[cli]'") from error

TICKS = 4
"""Searches of a round; one more would be its last turn, and is not executed."""
WAYS = ("vector", "single", "tool at once", "tool one by one")


class Rate(NamedTuple):
    """Searches per second of one repeat."""

    way: str
    repeat: int
    searches_per_s: float


class Ways:
    """The four ways of searching for the same queries; each returns the seconds it took for ticks of as many queries.

    Args:
        slots: how many environments.
        arguments: of SESA-Solve-v0.
    """

    def __init__(self, *, slots: int, **arguments: Any) -> None:
        self._vector = gymnasium.make_vec("SESA-Solve-v0", slots, **arguments)
        self._single = gymnasium.make_vec("SESA-Solve-v0", slots, vectorization_mode="sync", **arguments)
        environments: Any = self._vector
        self._tool: Retriever = environments.envs[0].search_tool()
        self._top_k: int = environments.envs[0].settings.top_k
        self.timed: dict[str, Callable[[Sequence[Sequence[str]]], float]] = dict(
            zip(WAYS, (self._in_vector, self._in_single, self._at_once, self._one_by_one), strict=True)
        )

    def _in_vector(self, ticks: Sequence[Sequence[str]]) -> float:
        return _stepped(self._vector, ticks)

    def _in_single(self, ticks: Sequence[Sequence[str]]) -> float:
        return _stepped(self._single, ticks)

    def _at_once(self, ticks: Sequence[Sequence[str]]) -> float:
        return _timed(lambda: [self._tool.search(queries, self._top_k) for queries in ticks])

    def _one_by_one(self, ticks: Sequence[Sequence[str]]) -> float:
        return _timed(lambda: [self._tool.search([query], self._top_k) for queries in ticks for query in queries])


def _stepped(envs: Any, ticks: Sequence[Sequence[str]]) -> float:
    envs.reset(seed=0)
    texts = [tuple(f"<search>{query}</search>" for query in queries) for queries in ticks]
    return _timed(lambda: [envs.step(each) for each in texts])


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(ways: Ways, questions: Sequence[str], *, slots: int, alike: int, rounds: int, repeats: int) -> list[Rate]:
    """Let the ways take turns, after a round that is not counted, and return how fast each of them was.

    Raises:
        InvalidInput: there are not enough questions for the slots, or `alike` does not divide them.
    """
    if slots % alike or len(set(questions)) < slots // alike:
        raise InvalidInput(
            f"alike must divide {slots} slots, with a question for each part, got {alike}, {len(questions)} questions"
        )
    source = cycle(dict.fromkeys(questions))
    number = count()
    for timed in ways.timed.values():
        timed(_queries(_ticks(source, slots=slots, alike=alike), next(number)))
    rates = []
    for repeat in range(repeats):
        seconds = dict.fromkeys(WAYS, 0.0)
        for turn in range(rounds):
            ticks = _ticks(source, slots=slots, alike=alike)
            for place in range(len(WAYS)):
                way = WAYS[(place + turn + repeat) % len(WAYS)]
                seconds[way] += ways.timed[way](_queries(ticks, next(number)))
        rates += [Rate(way, repeat, rounds * TICKS * slots / taken) for way, taken in seconds.items()]
    return rates


def _ticks(source: Iterator[str], *, slots: int, alike: int) -> list[list[str]]:
    return [[query for query in islice(source, slots // alike) for _ in range(alike)] for _ in range(TICKS)]


def _queries(ticks: Sequence[Sequence[str]], number: int) -> list[list[str]]:
    return [[f"{question} q{number}t{tick}" for question in questions] for tick, questions in enumerate(ticks)]


def report(rates: Sequence[Rate]) -> str:
    """Return the rates, and the two ratios that matter, each with the range of the repeats."""
    by_way = {way: [rate.searches_per_s for rate in rates if rate.way == way] for way in WAYS}
    lines = [f"{way:<16} {spread(by_way[way], digits=0)} searches/s" for way in WAYS]
    for fast, slow in (WAYS[:2], WAYS[2:]):
        times = [one / other for one, other in zip(by_way[fast], by_way[slow], strict=True)]
        lines.append(f"{fast} / {slow}: {spread(times, digits=2)}")
    return "\n".join(lines)


def main(
    backend: Annotated[str, typer.Option(help='"bm25", "lucene" or "dense".')] = "bm25",
    corpus: Annotated[str, typer.Option(help='"atlas", or a JSON-lines file.')] = "atlas",
    questions: Annotated[str, typer.Option(help='"atlas", or a JSON-lines file.')] = "atlas",
    index: Annotated[
        Path | None, typer.Option(help="Folder of the corpus file's index; built where it is none.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Environments.")] = 64,
    alike: Annotated[int, typer.Option(min=1, help="Slots that search for the same.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help=f"Rounds of {TICKS} searches in a repeat.")] = 4,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats that are counted.")] = 5,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure searches per second and print the rates and ratios."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = None
        if corpus != "atlas":
            folder = index or Path(temporary) / "index"
            if not folder.exists():
                build_index(Path(corpus), folder, backend=cast(Backend, backend))
        ways = Ways(
            slots=slots,
            corpus=corpus,
            questions=questions,
            retriever=backend,
            index=str(folder) if folder else None,
        )
        asked = [question.text for question in load_questions(questions)]
        rates = measure(ways, asked, slots=slots, alike=alike, rounds=rounds, repeats=repeats)
    about = {"backend": backend, "corpus": Path(corpus).name, "slots": slots, "alike": alike}
    typer.echo(", ".join(f"{name} {value}" for name, value in about.items()))
    typer.echo(report(rates))
    if out is not None:
        out.write_text("".join(json.dumps({**about, **rate._asdict()}) + "\n" for rate in rates), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
