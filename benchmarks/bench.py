"""Several arms and seeds, one table: train each, put the same questions to each, compare them question by question.

    plan = load_plan("methods")                    # a file of benchmarks/plans, or the path of one's own
    rows = bench(plan, Path("runs/bench"), seeds=3)
    print(table(plan, rows))

    plan.yaml     what was asked for; a folder belongs to one plan
    ARM-SEED/     the run of each arm and seed, its rows in eval.jsonl and, of its challenger, in posed.jsonl
    rows.jsonl    all rows, once all runs are done

What has its rows is not run again, and a run that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml

from benchmarks.report import Row, read_rows, write_rows
from benchmarks.statistics import Estimate, mean_over_seeds
from sesa_env.corpora import is_atlas
from sesa_env.errors import InvalidInput, SettingsError, UnknownName

if TYPE_CHECKING:
    from agents.selfplay import StepReport

Job = tuple[str, int]
"""An arm and a seed."""

PLANS = Path(__file__).with_name("plans")
PLAN_FILE, ROWS_FILE, EVAL_FILE, POSED_FILE = "plan.yaml", "rows.jsonl", "eval.jsonl", "posed.jsonl"
BOOTSTRAP_SEED = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is trained, and what it is asked.

    Raises:
        SettingsError: a value breaks its rule.
    """

    arms: Mapping[str, tuple[str, ...]]
    """The settings of each arm as "key=value", `method=NAME` among them."""
    data: tuple[str, ...]
    """Questions for all arms: "atlas:SEED", or JSON-lines files."""
    settings: tuple[str, ...] = ()
    """Settings that all arms share; an arm's own come after them."""
    limit: int = 500
    """Most questions of each data set."""
    targets: int = 0
    """Targets that each run's challenger poses for before its training and after, in the world of the first data."""
    compare: tuple[str, ...] = ()
    """Differences to report, written "ARM/MEMORY - ARM/MEMORY", such as "sesa/on - ssp/off"; with " in FAMILY" behind
    it, on questions of that family alone."""

    def __post_init__(self) -> None:
        if not self.arms:
            raise SettingsError("arms must name at least one, got none")
        if not self.data:
            raise SettingsError("data must name at least one set of questions, got none")
        for name, least in (("limit", 1), ("targets", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise SettingsError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if self.targets and not is_atlas(self.data[0]):
            raise SettingsError(f'targets must come with data that begins with "atlas:SEED", got {self.data[0]!r}')
        for pair in self.compare:
            sides = pair.partition(" in ")[0].split(" - ")
            known = len(sides) == 2 and all(side.partition("/")[0] in self.arms for side in sides)
            if not known or not all(side.partition("/")[2] for side in sides):
                rule = '"ARM/MEMORY - ARM/MEMORY" or "ARM/MEMORY - ARM/MEMORY in FAMILY" of the plan\'s arms'
                raise SettingsError(f"compare must hold {rule}, got {pair!r}")


class Line(NamedTuple):
    """An arm with its memory on or off, over all seeds; searches and tokens are means for a question."""

    arm: str
    memory: str
    seeds: int
    em: Estimate
    f1: float
    searches: float
    written: float


class Contrast(NamedTuple):
    """One line minus another in exact match, paired by seed and question."""

    pair: str
    em: Estimate


def load_plan(name: str) -> Plan:
    """Return a plan by the name of a shipped one, or by the path of a file.

    Raises:
        UnknownName: there is neither.
        SettingsError: it is not YAML, or not a plan.
    """
    shipped = {path.stem: path for path in sorted(PLANS.glob("*.yaml"))}
    path = shipped.get(name, Path(name))
    if not path.is_file():
        raise UnknownName(f"no plan named {name!r}; known: {', '.join(shipped)}; or give the path of a file")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    names = [field.name for field in fields(Plan)]
    if not isinstance(values, dict) or not {"arms", "data"} <= set(values) <= set(names):
        raise SettingsError(f"{path} must map {', '.join(names)} (arms and data are needed), got {values!r:.80}")
    arms = values.pop("arms")
    if not isinstance(arms, dict) or not all(map(_is_texts, arms.values())):
        raise SettingsError(f"{path}: arms must map names to lists of settings, got {arms!r:.80}")
    for key in values.keys() - {"limit", "targets"}:
        if not _is_texts(values[key]):
            raise SettingsError(f"{path}: {key} must be a list of texts, got {values[key]!r:.80}")
        values[key] = tuple(values[key])
    return Plan({str(arm): tuple(settings) for arm, settings in arms.items()}, **values)


def bench(
    plan: Plan,
    out: Path,
    *,
    seeds: int,
    processes: int = 1,
    tell: Callable[[str], None] = lambda text: None,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> list[Row]:
    """Train and examine what is not done yet, and return all rows.

    Args:
        plan: the arms and the questions.
        out: folder of the bench; one that exists must be of the same plan.
        seeds: runs of each arm, with the seeds 0, 1, ...
        processes: runs side by side, which share the processor's cores.
        tell: called with a sentence whenever a run is done.
        on_step: called with each training step's report, where there is one process.

    Raises:
        InvalidInput: the folder belongs to another plan, or is not one of a bench.
        SesaError: a run fails.
    """
    _claim(plan, out)
    jobs = [(arm, seed) for seed in range(seeds) for arm in plan.arms]
    left = [job for job in jobs if not (_folder(out, *job) / EVAL_FILE).exists()]
    if len(left) < len(jobs):
        tell(f"{len(jobs) - len(left)} of {len(jobs)} runs are done already")
    begun = time.monotonic()
    for done, (arm, seed) in enumerate(_run_all(plan, out, left, processes, on_step), start=1):
        minutes = (time.monotonic() - begun) / 60
        rest = f"about {minutes / done * (len(left) - done):.0f} minutes left"
        tell(f"{arm}, seed {seed}: done ({done} of {len(left)} in {minutes:.1f} minutes, {rest})")
    rows = [row for job in jobs for row in read_rows(_folder(out, *job) / EVAL_FILE)]
    write_rows(rows, out / ROWS_FILE)
    return rows


def _run_all(
    plan: Plan, out: Path, jobs: Sequence[Job], processes: int, on_step: Callable[[StepReport], None]
) -> Iterator[Job]:
    """Run the jobs and yield each when it is done."""
    if processes == 1:
        for job in jobs:
            run_one(plan, out, job, on_step=on_step)
            yield job
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = {pool.submit(_run_beside, plan, out, job, processes): job for job in jobs}
        for future in as_completed(waiting):
            future.result()
            yield waiting[future]


def _run_beside(plan: Plan, out: Path, job: Job, processes: int) -> None:
    """Run a job in a process that shares the cores with others."""
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    run_one(plan, out, job)


def run_one(plan: Plan, out: Path, job: Job, *, on_step: Callable[[StepReport], None] = lambda report: None) -> None:
    """Train one arm with one seed, or go on with it, and keep the rows of its evaluation."""
    from agents.checkpoint import has_checkpoint
    from benchmarks.datasets import load_dataset
    from benchmarks.evaluate import evaluate
    from benchmarks.posing import pose, write_posings
    from benchmarks.train import CHECKPOINTS, train

    folder = _folder(out, *job)
    resume = has_checkpoint(folder / CHECKPOINTS)
    if folder.exists() and not resume:  # killed before it had anything to keep
        shutil.rmtree(folder)
    train(None if resume else settings_of(plan, *job), folder, resume=resume, on_step=on_step)
    if plan.targets:
        write_posings(pose(folder, targets=plan.targets, corpus=plan.data[0]), folder / POSED_FILE)
    rows = [row for name in plan.data for row in evaluate(folder, load_dataset(name, limit=plan.limit))]
    write_rows(rows, folder / EVAL_FILE)


def settings_of(plan: Plan, arm: str, seed: int) -> Any:
    """Return the settings of an arm's run.

    Raises:
        SettingsError: a setting is unknown or breaks its rule.
    """
    from agents.config import resolve
    from benchmarks.methods import method

    overrides = [*plan.settings, *plan.arms[arm], f"seed={seed}"]
    names = [one.removeprefix("method=") for one in overrides if one.startswith("method=")]
    return resolve(method(names[-1] if names else "sesa"), [one for one in overrides if not one.startswith("method=")])


def lines(rows: Sequence[Row]) -> list[Line]:
    """Summarise each arm and memory mode, in the order of the rows.

    Raises:
        InvalidInput: seeds of an arm were asked different questions.
    """
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.run.rpartition("-")[0], row.memory].append(row)
    return [_line(arm, memory, group) for (arm, memory), group in groups.items()]


def contrasts(plan: Plan, rows: Sequence[Row]) -> list[Contrast]:
    """Return the differences that the plan asks for.

    Raises:
        InvalidInput: a side was not evaluated, or the sides were asked different questions.
    """
    found = []
    for pair in plan.compare:
        compared, _, family = pair.partition(" in ")
        scores = _scores([row for row in rows if row.family == family] if family else rows)
        for side in (sides := compared.split(" - ")):
            if side not in scores:
                raise InvalidInput(f"compare must name what was evaluated, {', '.join(scores)}, got {side!r}")
        first, second = (scores[side] for side in sides)
        if [set(seed) for seed in first] != [set(seed) for seed in second]:
            raise InvalidInput(f"both sides of {pair!r} must have answered the same questions")
        differences = [{q: one[q] - other[q] for q in one} for one, other in zip(first, second, strict=True)]
        found.append(Contrast(pair, mean_over_seeds(differences, rng=np.random.default_rng(BOOTSTRAP_SEED))))
    return found


def table(plan: Plan, rows: Sequence[Row]) -> str:
    """Return the summary and the differences as text, exact match in per cent with 95 % intervals."""
    width = max(len("arm"), *(len(arm) for arm in plan.arms))
    text = [f"{'arm':<{width}} {'memory':<8} {'seeds':>5} {'n':>5} {'EM':>6}  {'95 % interval':<16}"]
    text[0] += f" {'F1':>5} {'searches':>8} {'tokens':>6}"
    for line in lines(rows):
        text.append(
            f"{line.arm:<{width}} {line.memory:<8} {line.seeds:>5} {line.em.n:>5} {100 * line.em.value:>6.1f}  "
            f"{line.em.bounds():<16} {100 * line.f1:>5.1f} {line.searches:>8.2f} {line.written:>6.1f}"
        )
    text += _family_lines(rows)
    if plan.compare:
        longest = max(map(len, plan.compare))
        text += ["", f"{'paired difference':<{longest}} {'n':>5} {'EM':>6}  95 % interval"]
        text += [
            f"{one.pair:<{longest}} {one.em.n:>5} {100 * one.em.value:>+6.1f}  {one.em.bounds('+')}"
            for one in contrasts(plan, rows)
        ]
    return "\n".join(text)


def _family_lines(rows: Sequence[Row]) -> list[str]:
    """Lay out exact match by kind of question, a column for each arm and memory mode; nothing for a single kind."""
    scored = [row for row in rows if row.scored]
    families = sorted({row.family for row in scored})
    if len(families) < 2:
        return []
    columns = list(dict.fromkeys((row.run.rpartition("-")[0], row.memory) for row in scored))
    cells: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for row in scored:
        cells[row.family, row.run.rpartition("-")[0], row.memory].append(bool(row.em))
    width = max(len("EM by kind of question"), *map(len, families))
    heads = [f"{arm}/{memory}" for arm, memory in columns]
    lines = ["", " ".join([f"{'EM by kind of question':<{width}} {'n':>5}", *(f"{head:>10}" for head in heads)])]
    for family in families:
        found = [cells[family, *column] for column in columns]
        shares = [
            f"{100 * sum(one) / len(one) if one else float('nan'):>{max(10, len(head))}.1f}"
            for one, head in zip(found, heads, strict=True)
        ]
        lines.append(" ".join([f"{family or 'unknown':<{width}} {max(map(len, found)):>5}", *shares]))
    return lines


def _claim(plan: Plan, out: Path) -> None:
    """Make the folder and write the plan into it, or see that it is there for the same plan."""
    file = out / PLAN_FILE
    wanted = yaml.safe_dump(_plain(asdict(plan)), sort_keys=False)
    if file.exists():
        if file.read_text(encoding="utf-8") != wanted:
            raise InvalidInput(f"out must be a new folder or one of the same plan, got {str(out)!r}")
        return
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InvalidInput(f"out must be a new or empty folder, or one of a bench, got {str(out)!r}")
    out.mkdir(parents=True, exist_ok=True)
    for arm in plan.arms:
        settings_of(plan, arm, 0)  # a wrong setting is found before anything is trained
    file.write_text(wanted, encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _folder(out: Path, arm: str, seed: int) -> Path:
    return out / f"{arm}-{seed}"


def _scores(rows: Sequence[Row]) -> dict[str, list[dict[str, float]]]:
    """Return exact match by line ("ARM/MEMORY"), seed and question; what could not be scored counts nowhere."""
    runs: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        arm, _, seed = row.run.rpartition("-")
        if row.scored:
            runs[f"{arm}/{row.memory}"][seed][f"{row.dataset}/{row.question_id}"] = float(bool(row.em))
    return {line: [by_seed[seed] for seed in sorted(by_seed)] for line, by_seed in runs.items()}


def _line(arm: str, memory: str, rows: Sequence[Row]) -> Line:
    scores = _scores(rows)[f"{arm}/{memory}"]
    scored = [row for row in rows if row.scored]
    return Line(
        arm,
        memory,
        seeds=len(scores),
        em=mean_over_seeds(scores, rng=np.random.default_rng(BOOTSTRAP_SEED)),
        f1=sum(row.f1 or 0.0 for row in scored) / len(scored),
        searches=sum(row.searches for row in scored) / len(scored),
        written=sum(row.completion_tokens for row in scored) / len(scored),
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
