"""One training run, as a folder that says everything about itself.

    train(resolve(method("sesa"), ["steps=4"]), Path("runs/sesa"))
    train(None, Path("runs/sesa"), resume=True)      # goes on from its last checkpoint

    settings.yaml      what was resolved              manifest.json   versions, corpus, index, targets, commit
    events.jsonl       one line of figures per step   rounds.jsonl    every round: questions, attempts, skills, rewards
    timings.jsonl      seconds per step, and rates    tensorboard/    the figures as curves
    bank.sqlite        the live skill memory          checkpoints/    weights, optimisers, memories, random streams

Nothing is written before the corpus, the index and the model have been opened.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agents.checkpoint import MEMORY_FILE, latest_checkpoint, load_checkpoint, load_loop, save_checkpoint
from agents.config import Settings, load_settings, save_settings
from agents.device import NumberFormat
from agents.guards import Guard
from agents.seats import load_model, make_reader, make_seats, settle
from agents.selfplay import SelfPlay, StepReport
from agents.trial import equip
from benchmarks.manifest import make_manifest, write_manifest
from benchmarks.rounds import describe_round, past_questions
from sesa_env.answerers import Answerer
from sesa_env.corpora import fingerprint
from sesa_env.corpora.questions import load_questions
from sesa_env.envs.world import open_retriever
from sesa_env.errors import IndexMismatch, InvalidInput, SettingsError
from sesa_env.judge import Judge, require_trainable
from sesa_env.registry import JUDGES, MEMORIES
from sesa_env.targets import Task, hop_balanced, open_targets, targets_fingerprint
from sesa_env.text import question_key
from sesa_env.validators import ValidatorChain
from skill_memory import SkillMemory, restore
from skill_memory.records import replacing

SETTINGS_FILE, EVENTS_FILE, ROUNDS_FILE, TIMINGS_FILE = "settings.yaml", "events.jsonl", "rounds.jsonl", "timings.jsonl"
MANIFEST_FILE, BANK_FILE, CHECKPOINTS = "manifest.json", "bank.sqlite", "checkpoints"


def train(
    settings: Settings | None,
    out: Path,
    *,
    resume: bool = False,
    on_tick: Callable[[], None] = lambda: None,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> Path:
    """Run self-play and return the run's folder.

    Args:
        settings: what to run; None to read them from the folder, when resuming.
        out: the run's folder, new or empty unless resuming.
        resume: go on from the folder's last checkpoint.
        on_tick: called after every turn of all seats.
        on_step: called with each step's report.

    Raises:
        InvalidInput: the folder is in use, or there is nothing to resume.
        IndexMismatch: a run is resumed over another corpus or index, or with other targets.
        TrainingStopped: a figure was past a limit of `settings.guard` for too long; the last step has no checkpoint.
        SesaError: the corpus, index, targets, checks, model or memory cannot be opened; nothing was written.
    """
    if settings is None:
        settings = load_settings(out / SETTINGS_FILE)
    if not resume and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InvalidInput(f"out must be a new or empty folder, got {str(out)!r}; --resume goes on with a run")
    place = latest_checkpoint(out / CHECKPOINTS) if resume else None
    if place is not None and settings.model.dtype == "auto":  # chosen once, when the run began
        settings = replace(settings, model=load_settings(out / SETTINGS_FILE).model)
    settings, chosen = settle(settings)
    retriever = open_retriever(
        settings.corpus,
        retriever=settings.retriever,
        index=settings.index,
        cache=settings.retrieval_cache,
        pages=bool(settings.game.tools),
    )
    tasks = open_tasks(settings)
    draw_tasks(tasks, settings, 1)  # raises when there are too few of some number of hops
    judge: Judge = JUDGES.make(settings.judge)
    require_trainable(judge)
    about = make_manifest(
        settings=asdict(settings),
        seeds=[settings.seed],
        corpus=fingerprint(settings.corpus),
        index=retriever.fingerprint,
    )
    about["targets"] = targets_fingerprint(tasks)
    with _claimed(out):
        if place is not None:
            _check_world(out / MANIFEST_FILE, about)
            restore(place / MEMORY_FILE, out / BANK_FILE)
        model = load_model(settings)
        validators = _make_validators(settings, judge, solver=make_reader(model, settings))
        memory: SkillMemory = MEMORIES.make(settings.memory.kind, settings.memory, out / BANK_FILE)
    with closing(memory):
        seats = make_seats(model, memory, settings)
        past = partial(past_questions, out / ROUNDS_FILE)
        equip(memory, settings, model=model, retriever=retriever, judge=judge, past=past)
        play = SelfPlay(
            settings,
            retriever=retriever,
            draw=lambda step: draw_tasks(tasks, settings, step),
            validators=validators,
            memory=memory,
            judge=judge,
            **seats,
            on_tick=on_tick,
        )
        done = 0
        if place is not None:
            done = load_checkpoint(place, model=model, seats=seats)
            play.set_state(load_loop(place))
        save = partial(save_checkpoint, out / CHECKPOINTS, model=model, seats=seats, memory=memory)
        if place is None:
            save_settings(settings, out / SETTINGS_FILE)
            write_manifest(about, out / MANIFEST_FILE)
            save(step=0, loop=play.get_state())
        with _Log(out, done=done) as log:
            if place is None and chosen.gflops:
                log.write_choice(chosen)
            guard = _guard_of(settings, out / EVENTS_FILE)
            for step in range(done + 1, settings.steps + 1):
                started = time.monotonic()
                report = play.step(step)
                log.write(report, seconds=time.monotonic() - started)
                report = replace(report, warnings=guard.watch(step, report.numbers))
                if step % settings.checkpoint_every == 0 or step == settings.steps:
                    save(step=step, loop=play.get_state())
                on_step(report)
    return out


@contextmanager
def _claimed(out: Path) -> Iterator[None]:
    """Make the folder, and take it away again when what the run needs cannot be opened."""
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if new:
            shutil.rmtree(out)
        raise


def _check_world(path: Path, about: Mapping[str, Any]) -> None:
    """Make sure that corpus, index and targets are those the run began with."""
    before = json.loads(path.read_text(encoding="utf-8"))
    for part in ("corpus", "index", "targets"):
        if before[part] != about[part]:
            raise IndexMismatch(f"the run began with {part} {before[part]}, and now there is {about[part]}")


def open_tasks(settings: Settings) -> Sequence[Task]:
    """Return what rounds begin with: the questions that are given, or else the targets for challengers.

    Raises:
        SettingsError: nothing is left without the test questions.
        SesaError: a source cannot be opened.
    """
    test_questions = settings.game.checks.test_questions
    if not settings.questions:
        return open_targets(settings.targets, corpus=settings.corpus, test_questions=test_questions)
    tested = {question_key(question.text) for source in test_questions for question in load_questions(source)}
    given = [question for source in settings.questions for question in load_questions(source, every=True)]
    clean = [question for question in given if question_key(question.text) not in tested]
    if not clean:
        raise SettingsError(f"questions {settings.questions!r} must hold some that no test has, got none")
    return clean


def draw_tasks(tasks: Sequence[Task], settings: Settings, step: int) -> list[Task]:
    """Return the targets or questions of a step, each of its batches balanced by hops.

    They are a function of the run's seed and the step's number, so that a resumed run agrees.
    """
    rng = np.random.default_rng([settings.seed, step])
    count = settings.rounds // settings.proposals
    batches = [hop_balanced(tasks, count, rng=rng) for _ in range(1 + settings.resample)]
    return [task for batch in batches for task in batch for _ in range(settings.proposals)]


def _make_validators(settings: Settings, judge: Judge, *, solver: Answerer) -> ValidatorChain:
    """Return the run's chain.

    Raises:
        SettingsError: a check cannot be made, or remembers what no checkpoint could hold.
    """
    game = settings.game
    chain = ValidatorChain(game.validators, checks=game.checks, judge=judge, solver=solver)
    chain.get_state()
    return chain


def _guard_of(settings: Settings, events: Path) -> Guard:
    """Return a guard that has seen the steps before."""
    guard = Guard(settings.guard)
    for line in events.read_bytes().splitlines():
        event = json.loads(line)
        guard.watch(event["step"], event)
    return guard


class _Log:
    """The run's append-only files; on resume, what came after the checkpoint is cut off first."""

    def __init__(self, out: Path, *, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._stack = ExitStack()
        self._files = {}
        for name in (EVENTS_FILE, ROUNDS_FILE, TIMINGS_FILE):
            keep_steps(out / name, done)
            self._files[name] = self._stack.enter_context((out / name).open("a", buffering=1, encoding="utf-8"))
        self._board = self._stack.enter_context(closing(SummaryWriter(str(out / "tensorboard"), purge_step=done + 1)))

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def write(self, report: StepReport, *, seconds: float) -> None:
        """Append one step."""
        event: dict[str, Any] = {"step": report.step, **report.numbers}
        if report.consolidation is not None:
            event["consolidation"] = asdict(report.consolidation)
        self._append(EVENTS_FILE, event)
        for round_ in report.rounds:
            self._append(ROUNDS_FILE, {"step": report.step, **describe_round(round_, report.tokens)})
        self._append(TIMINGS_FILE, {"step": report.step, "seconds": round(seconds, 3)})
        for name, value in {**report.numbers, "seconds": seconds}.items():
            self._board.add_scalar(name, value, report.step)

    def write_choice(self, chosen: NumberFormat) -> None:
        """Append what the number format was chosen by, where it was measured; a speed, so it is with the seconds."""
        rates = {name: round(rate, 1) for name, rate in chosen.gflops.items()}
        self._append(TIMINGS_FILE, {"step": 0, "dtype": chosen.dtype, "matrix_gflops": rates})

    def _append(self, name: str, record: dict[str, Any]) -> None:
        self._files[name].write(json.dumps(record, sort_keys=True, ensure_ascii=False) + "\n")


def keep_steps(path: Path, done: int) -> None:
    """Drop lines of steps after `done`, and a last line that a killed process left unfinished."""
    if not path.exists():
        return
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    with replacing(path) as draft:
        draft.write_bytes(b"".join(line for line in lines if json.loads(line)["step"] <= done))
