"""Cold start: teach a policy the protocol and the search by example, before it learns by reinforcement.

    settings = resolve({}, ["policy=smollm2", "solver.lr=1e-4"])
    sft(settings, Path("policies/start"), data=["atlas:0", "atlas:2"], questions=200, skills="both")
    # sesa train policy=policies/start          or          sesa train solver.start=policies/start/weights

    config.json, *.safetensors, ...   the taught policy as a model folder, adapters merged
    weights/                          the trained weights alone, as a checkpoint that a seat can start from
    sft.jsonl                         one line per update       manifest.json, settings.yaml

Two kinds of teachers.  For questions with known gold (an Atlas, a file with supporting titles) the scripted oracle
searches for the gold and answers; for a run's folder, its solvers' own successful attempts are played again.  Every
attempt goes through the real environment, and only those that end right are learned from; the loss is on what was
written, never on what was read.  Worlds with odd seeds are for tests and are refused.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from agents.base import Agent, Policy
from agents.checkpoint import SHARED, save_start
from agents.config import Settings, load_settings, save_settings
from agents.imitation import Pupil, Recorded, fit, updates_of
from agents.learner import Learner
from agents.llm import LLMAgent
from agents.policies import SETTINGS_FILE as POLICY_SETTINGS_FILE
from agents.rollout import play
from agents.scripted import Oracle
from agents.seats import load_model, settle
from agents.solver import make_solver
from agents.tokens import TokenTrajectory
from agents.update import UpdateStats
from benchmarks.datasets import gold_queries, load_dataset
from benchmarks.manifest import make_manifest, write_manifest
from benchmarks.rounds import read_rounds
from benchmarks.train import MANIFEST_FILE, ROUNDS_FILE, SETTINGS_FILE
from sesa_env.corpora import is_atlas, load_atlas
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.base import Retriever
from sesa_env.types import SOLVER, Question
from skill_memory import NoMemory, SkillMemory, make_memory

SKILLS = ("off", "on", "both")
LOG_FILE, START = "sft.jsonl", "weights"


class Class(NamedTuple):
    """Questions by the episode that attempts them, who shows how, what is searched, and by which rules."""

    questions: dict[str, Question]
    teacher: Agent
    retriever: Retriever
    rules: GameSettings


def sft(
    settings: Settings,
    out: Path,
    *,
    data: Sequence[str],
    questions: int,
    skills: str = "off",
    epochs: int = 1,
    batch: int = 16,
    on_update: Callable[[int, int, UpdateStats], None] = lambda number, total, stats: None,
) -> Path:
    """Teach the policy of the settings and return the folder it is saved in.

    Args:
        settings: policy, model, rules, memory, seed, and in `solver` how the steps are made.
        out: new or empty folder.
        data: "atlas:SEED" with an even seed, JSON-lines files with `supporting_titles`, or folders of runs.
        questions: most questions, or recorded attempts, of each of them.
        skills: show each question the memory's skills ("on"), none ("off"), or once each ("both").
        epochs: how often each attempt is seen.
        batch: attempts per update.
        on_update: called with the number of an update, how many there are, and its statistics.

    Raises:
        InvalidInput: an argument breaks its rule, a world is one for tests, or no attempt ended right.
        SesaError: data, corpus, index, model or memory cannot be opened; nothing was written.
    """
    if skills not in SKILLS:
        raise InvalidInput(f"skills must be one of {SKILLS}, got {skills!r}")
    for name, value in (("questions", questions), ("epochs", epochs), ("batch", batch)):
        if value < 1:
            raise InvalidInput(f"{name} must be at least 1, got {value!r}")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InvalidInput(f"out must be a new or empty folder, got {str(out)!r}")
    settings, _ = settle(replace(settings, shared_weights=True))
    classes = [_class(name, settings, questions) for name in data]
    model = load_model(settings)
    with _memories(settings, skills) as memories:
        lessons = [
            lesson
            for one in classes
            for memory in memories
            for lesson in _attend(one, memory, settings, policy=model.policy(SHARED, seed=0), encode=model.encode)
        ]
    if not lessons:
        raise InvalidInput(f"data must hold an attempt that ends right within {settings.model.max_context} tokens")
    total = updates_of(len(lessons), epochs=epochs, batch=batch)
    learner = Learner(
        model.weights.model(SHARED),
        model.weights.parameters(SHARED),
        replace(settings.solver, kl_coef=0.0, entropy_coef=0.0, epochs=1, total_updates=total),
        activate=partial(model.weights.using, SHARED),
    )
    draft = _draft_of(out)
    with (draft / LOG_FILE).open("w", encoding="utf-8") as log:
        for number, stats in enumerate(fit(learner, lessons, epochs=epochs, batch=batch, seed=settings.seed), start=1):
            figures = {name: value for name, value in stats.as_dict().items() if name in _LOGGED}
            log.write(json.dumps({"update": number, **figures}, sort_keys=True) + "\n")
            on_update(number, total, stats)
    model.save(draft, SHARED)
    about = {"model": {"demonstrations": settings.model.demonstrations}}
    (draft / POLICY_SETTINGS_FILE).write_text(json.dumps(about), encoding="utf-8")
    save_start(draft / START, model, name=SHARED)
    save_settings(settings, draft / SETTINGS_FILE)
    manifest = make_manifest(
        settings={**asdict(settings), "sft": {"data": list(data), "questions": questions, "skills": skills}},
        seeds=[settings.seed],
        corpus="; ".join(one.retriever.fingerprint for one in classes),
        index="; ".join(one.retriever.fingerprint for one in classes),
    )
    write_manifest(manifest, draft / MANIFEST_FILE)
    if out.exists():
        out.rmdir()
    draft.rename(out)
    return out


_LOGGED = ("nll", "lr", "grad_norm", "tokens", "sequences", "skipped_nonfinite")


def _draft_of(out: Path) -> Path:
    """Make the folder that is written to and renamed when complete."""
    draft = out.with_name(f".{out.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    return draft


def _class(name: str, settings: Settings, limit: int) -> Class:
    if is_atlas(name) and load_atlas(name).seed % 2:
        raise InvalidInput(f"data must be worlds to train on, with even seeds, got {name!r}; odd ones are for tests")
    if (Path(name) / ROUNDS_FILE).is_file():
        return _recorded(Path(name), limit)
    return _known(name, settings, limit)


def _known(name: str, settings: Settings, limit: int) -> Class:
    """Return questions whose gold is known, shown by the oracle."""
    dataset = load_dataset(name, limit=limit)
    corpus = dataset.corpus or settings.corpus
    queries = gold_queries(dataset)
    asked = [one for one in dataset.questions if queries(one)]
    if not asked:
        raise InvalidInput(f"data must know what to search for, and no question of {name} has supporting_titles")
    oracle = Oracle.knowing(asked, queries)
    longest = max(len(queries(one)) for one in asked)
    rules = replace(settings.game, solver_turns=max(settings.game.solver_turns, 1 + longest))
    index = settings.index if corpus == settings.corpus else None
    retriever = open_retriever(corpus, retriever=settings.retriever, index=index, pages=bool(rules.tools))
    return Class({f"{name}/{question.id}": question for question in asked}, oracle, retriever, rules)


def _recorded(run: Path, limit: int) -> Class:
    """Return a run's successful attempts, shown by themselves; an attempt like an earlier one is passed over."""
    played = load_settings(run / SETTINGS_FILE)
    questions: dict[str, Question] = {}
    texts: dict[str, tuple[str, ...]] = {}
    seen = set()
    for _, round_, _ in read_rounds(run / ROUNDS_FILE):
        for attempt in round_.solvers:
            said = tuple(turn.text for turn in attempt.turns)
            clean = attempt.usable and all(turn.action.kind != "invalid" for turn in attempt.turns)
            if round_.question is None or attempt.reward <= 0 or not clean or (round_.question.text, said) in seen:
                continue
            seen.add((round_.question.text, said))
            name = f"{run.name}/{attempt.episode}"
            questions[name], texts[f"{name}/{SOLVER}_0"] = round_.question, said
    if not questions:
        raise InvalidInput(f"data must hold successful attempts, and {run} has none")
    kept = list(questions)[-limit:]  # the latest: the policy that made them was the most able
    pages = bool(played.game.tools)
    retriever = open_retriever(played.corpus, retriever=played.retriever, index=played.index, pages=pages)
    return Class({name: questions[name] for name in kept}, Recorded(texts), retriever, played.game)


@contextmanager
def _memories(settings: Settings, skills: str) -> Iterator[list[SkillMemory]]:
    """Open what shows skills: nothing, the memory of the settings as it is primed, or one after the other."""
    with tempfile.TemporaryDirectory() as scratch:
        shown = [] if skills == "off" else [make_memory(settings.memory, Path(scratch) / "memory.sqlite")]
        if shown and not len(shown[0]):
            raise InvalidInput(f"skills cannot be {skills!r}: the memory {settings.memory.kind!r} starts without any")
        try:
            yield [*([] if skills == "on" else [NoMemory()]), *shown]
        finally:
            for memory in shown:
                memory.close()


def _attend(
    one: Class, memory: SkillMemory, settings: Settings, *, policy: Policy, encode: Callable[[str], list[int]]
) -> list[TokenTrajectory]:
    """Play every question as its teacher shows, and return what ended right and fits the context."""

    def make_agent(pen: Policy) -> LLMAgent:
        return make_solver(
            pen,
            memory,
            token_budget=settings.memory.token_budget,
            max_new_tokens=settings.model.max_new_tokens,
            temperature=settings.model.solver_temperature,
            demonstrated=settings.model.demonstrations,
        )

    pupil = Pupil(policy, one.teacher, make_agent, encode=encode)
    games = []
    for name, question in one.questions.items():
        game = Game(one.rules, judge=ExactMatchJudge(), id=name)
        game.ask(question, attempts=1)
        games.append(game)
    attempts = [round_.solvers[0] for round_ in play(games, {SOLVER: pupil}, one.retriever)]
    tokens = pupil.drain()
    right = [tokens[attempt.episode] for attempt in attempts if attempt.usable and attempt.reward > 0]
    return [lesson for lesson in right if len(lesson) <= settings.model.max_context]
