"""How much of the evidence a search brings back: recall of the gold titles, back end beside back end.

The bare question is the query, as in the published BM25 baselines: no model is in the way, so what is measured is the
corpus, the analyser and the ranking.  Recall at k is the share of a question's gold titles among the titles of the
first k passages, averaged over the questions.

    runs = measure(corpus, [Path("hotpotqa.jsonl.gz")], indexes={"lucene": Path("lucene"), "bm25": Path("bm25")})
    write_runs(runs, Path("retrieval.jsonl"))
    rich.print(report(runs))

What a run keeps is one count for each question, so back ends are compared question by question.

On an Atlas the gold of every hop is known, so `measure_hops` asks a finer question: does a query that a good searcher
would write find the page that states the fact?  Gold queries use the page's words, natural ones those of the question.

    runs = measure_hops(HOP_RETRIEVERS, wording="natural")
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from benchmarks.statistics import Estimate, paired_difference, proportion
from sesa_env.corpora import load_atlas
from sesa_env.corpora.jsonl import Row
from sesa_env.corpora.questions import read_questions
from sesa_env.errors import CorpusError, InvalidInput, MissingDependency
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval.base import Retriever
from sesa_env.retrieval.fuse import FusedRetriever
from sesa_env.retrieval.index import MANIFEST, Backend, Manifest, build_index, open_index, read_manifest
from sesa_env.types import Question
from skill_memory.records import replacing

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

SCHEMA = 1
KS = (3, 10)
HOPS = 2000
"""Of the 15,000 of an Atlas: enough for an interval of two points on either side."""
HOP_RETRIEVERS = ("bm25", "lucene", "dense", "bm25+dense", "lucene+dense")
Wording = Literal["gold", "natural"]
WORDINGS: tuple[Wording, ...] = ("gold", "natural")
SEED = 0
"""Seeds the bootstrap, so that a table is a function of its runs."""
_WARM_UP = 200
"""Searches before the clock starts."""


class Found(NamedTuple):
    """Of one question's `gold` titles, how many were among the first k passages, for each k of its run."""

    question_id: str
    gold: int
    found: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One back end on one set of questions."""

    dataset: str
    backend: str
    retriever: str
    """Fingerprint of corpus, analyser and settings."""
    libraries: dict[str, str]
    passages: int
    ks: tuple[int, ...]
    index_seconds: float | None
    """None when the index was there already."""
    search_seconds: float
    """For one call with every question, `max(ks)` passages each, after a warm-up."""
    questions: tuple[Found, ...]

    def recall(self, k: int) -> dict[str, float]:
        """Return each question's share of gold titles among the first `k` passages."""
        place = self.ks.index(k)
        return {question.question_id: question.found[place] / question.gold for question in self.questions}

    def complete(self, k: int) -> int:
        """Return how many questions have every gold title among the first `k` passages."""
        place = self.ks.index(k)
        return sum(question.found[place] == question.gold for question in self.questions)


def recall(retriever: Retriever, questions: Sequence[Question], *, ks: Sequence[int] = KS) -> list[Found]:
    """Search for each question as it stands, and count its gold titles among the titles found.

    Args:
        retriever: what to search.
        questions: questions with supporting titles.
        ks: how many passages to look at.

    Raises:
        InvalidInput: there are no questions, one has no supporting titles, or `ks` is empty or has a number below 1.
        SearchUnavailable: the back end failed.
    """
    if not questions or not ks:
        raise InvalidInput(f"questions and ks must not be empty, got {len(questions)} questions and ks={ks!r}")
    for question in questions:
        if not question.supporting_titles:
            raise InvalidInput(f"question {question.id!r} has no supporting titles, so its recall is not defined")
    if min(ks) < 1:
        raise InvalidInput(f"ks must be numbers from 1 up, got {ks!r}")
    found = retriever.search([question.text for question in questions], max(ks))
    return [
        _found(question, [passage.title for passage in hits], ks)
        for question, hits in zip(questions, found, strict=True)
    ]


def measure(
    corpus: Path,
    data: Sequence[Path],
    *,
    indexes: Mapping[Backend, Path],
    ks: Sequence[int] = KS,
    limit: int | None = None,
    encoder: str | None = None,
    fuse: bool = False,
    progress: Callable[[str, int], None] | None = None,
) -> list[Run]:
    """Measure each back end on each question file.

    Rows without supporting titles, and rows marked `gold_in_corpus: false`, are left out.

    Args:
        corpus: JSON-lines file of passages.
        data: JSON-lines files of questions.
        indexes: back ends and the folders of their indexes; one that is missing is built, and the time taken.
        ks: how many passages to look at.
        limit: most questions of each file.
        encoder: the encoder of a dense index that has to be built (`sesa_env.encoders.make_encoder`); one that is there
            knows its own.
        fuse: whether the fusion of all back ends, in their order, is measured too.
        progress: called while an index is built, with the back end and the number of passages done.

    Raises:
        InvalidInput: `ks` or `limit` breaks its rule.
        CorpusError: a file is missing or malformed, or has no question to measure.
        IndexMismatch: an index belongs to another corpus.
        MissingDependency: a back end's package is not installed.
        BackendUnavailable: there is no Java that fits.
        SearchUnavailable: a back end failed.
    """
    sets = {_name(path): _measurable(path, limit) for path in data}
    if fuse and len(indexes) < 2:
        raise InvalidInput(f"fuse must have two indexes or more to fuse, got {len(indexes)}")
    runs, parts, libraries = [], [], dict[str, str]()

    def run_all(retriever: Retriever, manifest: Manifest, **about: Any) -> list[Run]:
        about = {"backend": manifest.backend, "libraries": manifest.libraries, "index_seconds": None, **about}
        return [
            _run(retriever, questions, dataset=name, passages=manifest.passages, ks=ks, **about)
            for name, questions in sets.items()
        ]

    with ExitStack() as stack:
        for backend, folder in indexes.items():
            seconds = _build_if_missing(corpus, folder, backend, encoder, progress)
            manifest = read_manifest(folder)
            parts.append(stack.enter_context(closing(open_index(folder, corpus=corpus))))
            libraries |= manifest.libraries
            runs += run_all(parts[-1], manifest, index_seconds=seconds)
        if fuse:
            runs += run_all(FusedRetriever(parts), manifest, backend="+".join(indexes), libraries=libraries)
    return runs


def measure_hops(
    retrievers: Sequence[str],
    *,
    wording: Wording,
    n: int = HOPS,
    corpus: str = "atlas",
    ks: Sequence[int] = KS,
    seed: int = SEED,
) -> list[Run]:
    """Measure retrievers on single hops of an Atlas: one query, one gold page.

    Args:
        retrievers: names in `RETRIEVERS`.
        wording: "gold" for queries in the words of the page, "natural" for those of the question.
        n: how many hops, drawn from questions of all lengths; two questions may share a hop.
        corpus: "atlas" or "atlas:SEED".
        ks: how many passages to look at.
        seed: which draw of hops.

    Raises:
        InvalidInput: the corpus is no Atlas, there are not so many hops, `ks` breaks its rule, or the wording is
            neither.
        SesaError: whatever making a retriever raises.
        SearchUnavailable: a retriever failed.
    """
    hops = hop_questions(corpus, wording=wording, n=n, seed=seed)
    runs = []
    for name in retrievers:
        retriever = RETRIEVERS.make(name, corpus=corpus)
        runs.append(
            _run(
                retriever,
                hops,
                dataset=f"{corpus}, {wording}",
                backend=name,
                libraries={},
                passages=len(load_atlas(corpus).passages),
                ks=ks,
                index_seconds=None,
            )
        )
        retriever.close()
    return runs


def hop_questions(corpus: str, *, wording: Wording, n: int, seed: int = SEED) -> list[Question]:
    """Draw hops of an Atlas's questions, each as a question of its own whose text is the query.

    Raises:
        InvalidInput: the corpus is no Atlas, there are not so many hops, or the wording is neither.
    """
    atlas = load_atlas(corpus)
    if wording not in WORDINGS:
        raise InvalidInput(f"wording must be 'gold' or 'natural', got {wording!r}")
    queries_of = atlas.gold_queries if wording == "gold" else atlas.natural_queries
    hops = [
        Question(f"{question.id}#{hop}", query, (fact.object,), supporting_titles=(fact.subject,))
        for question in atlas.all_questions
        for hop, (fact, query) in enumerate(
            zip(atlas.chain(question.id), queries_of(question.id), strict=True), start=1
        )
    ]
    if n not in range(1, len(hops) + 1):
        raise InvalidInput(f"n must lie in [1, {len(hops)}], as many hops as there are, got {n!r}")
    return [hops[place] for place in np.random.default_rng(seed).permutation(len(hops))[:n]]


def write_runs(runs: Iterable[Run], path: Path) -> None:
    """Write runs as JSON lines, all or none."""
    lines = [json.dumps({"schema": SCHEMA, **asdict(run)}, sort_keys=True) + "\n" for run in runs]
    with replacing(path) as draft:
        draft.write_text("".join(lines), encoding="utf-8")


def report(runs: Sequence[Run]) -> Group:
    """Return what to print: recall and speed of each back end, and how the back ends differ question by question.

    Raises:
        InvalidInput: there are no runs, or they looked at different numbers of passages.
        MissingDependency: rich is not installed.
    """
    if len({run.ks for run in runs}) != 1:
        raise InvalidInput(f"runs of one table must share ks, got {[run.ks for run in runs]!r}")
    tables = [recall_table(runs), difference_table(runs)]
    from rich.console import Group

    return Group(*(table for table in tables if table.row_count))


def recall_table(runs: Sequence[Run]) -> Table:
    """Lay out recall and speed, the back ends of one data set under each other.

    Raises:
        MissingDependency: rich is not installed.
    """
    ks = runs[0].ks
    columns = ["data set", "back end", "n", *(f"recall\n@{k}" for k in ks), *(f"all@{k}\n[95 %]" for k in ks)]
    table = _table("Gold titles found, per cent", [*columns, "queries\n/s", "index\ns"])
    for run in sorted(runs, key=lambda run: run.dataset):
        n = len(run.questions)
        table.add_row(
            run.dataset,
            run.backend,
            str(n),
            *(_per_cent(sum(run.recall(k).values()) / n) for k in ks),
            *(_estimate(proportion(run.complete(k), n)) for k in ks),
            f"{n / run.search_seconds:,.0f}",
            "-" if run.index_seconds is None else f"{run.index_seconds:.1f}",
        )
    table.caption = (
        f"{runs[0].passages:,} passages; query: the bare question, in an atlas one hop's; all@k: every gold title found"
    )
    return table


def difference_table(runs: Sequence[Run]) -> Table:
    """Lay out the recall of one back end minus another's on the same questions; empty when no two can be compared.

    Raises:
        InvalidInput: two back ends were asked different questions of one data set.
        MissingDependency: rich is not installed.
    """
    ks = runs[0].ks
    columns = ["data set", "back ends", "n", *(f"recall@{k}\n[95 %]" for k in ks), *(f"won/lost\n@{k}" for k in ks)]
    table = _table("Difference in recall, percentage points", columns)
    for first, second in combinations(runs, 2):
        if first.dataset != second.dataset:
            continue
        rng = np.random.default_rng(SEED)
        differences = [paired_difference(first.recall(k), second.recall(k), rng=rng) for k in ks]
        table.add_row(
            first.dataset,
            f"{first.backend} - {second.backend}",
            str(len(first.questions)),
            *(_estimate(difference.estimate, sign="+") for difference in differences),
            *(f"{difference.better}/{difference.worse}" for difference in differences),
        )
    return table


def _run(
    retriever: Retriever,
    questions: list[Question],
    *,
    dataset: str,
    backend: str,
    libraries: dict[str, str],
    passages: int,
    ks: Sequence[int],
    index_seconds: float | None,
) -> Run:
    texts = [question.text for question in questions]
    retriever.search([f"{text} ?" for text in texts[:_WARM_UP]], max(ks))  # others than those that are timed
    search_seconds = _seconds(lambda: retriever.search(texts, max(ks)))
    return Run(
        dataset=dataset,
        backend=backend,
        retriever=retriever.fingerprint,
        libraries=libraries,
        passages=passages,
        ks=tuple(ks),
        index_seconds=index_seconds,
        search_seconds=search_seconds,
        questions=tuple(recall(retriever, questions, ks=ks)),
    )


def _found(question: Question, titles: Sequence[str], ks: Sequence[int]) -> Found:
    gold = set(question.supporting_titles)
    return Found(question.id, len(gold), tuple(len(gold.intersection(titles[:k])) for k in ks))


def _measurable(path: Path, limit: int | None) -> list[Question]:
    def has_gold(row: Row) -> bool:
        return bool(row.get("supporting_titles")) and row.get("gold_in_corpus") is not False

    questions = read_questions(path, limit=limit, keep=has_gold)
    if not questions:
        raise CorpusError(f"{path}: no question has supporting titles that are in the corpus")
    return questions


def _name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _build_if_missing(
    corpus: Path,
    folder: Path,
    backend: Backend,
    encoder: str | None,
    progress: Callable[[str, int], None] | None,
) -> float | None:
    if (folder / MANIFEST).exists():
        return None

    def tell(count: int) -> None:
        if progress:
            progress(backend, count)

    chosen = encoder if backend == "dense" else None
    return _seconds(lambda: build_index(corpus, folder, backend=backend, encoder=chosen, progress=tell))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _table(title: str, columns: Sequence[str]) -> Table:
    try:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
    except ImportError as error:
        raise MissingDependency("a table needs the extra `cli` (rich): pip install 'sesa-env[cli]'") from error
    table = Table(title=title, box=SIMPLE_HEAD, show_edge=False, padding=0, caption_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column.replace("[", r"\["), justify="left" if place < 2 else "right", vertical="bottom")
    return table


def _estimate(estimate: Estimate, sign: str = "") -> str:
    value = _per_cent(estimate.value, sign)
    if estimate.interval is None:
        return f"{value}\n{estimate.why_none}"
    low, high = (_per_cent(end, sign) for end in estimate.interval)
    return f"{value}\n\\[{low}, {high}]"


def _per_cent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.1f}"
