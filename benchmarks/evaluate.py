"""Put a run's solver to given questions, with its memory on, off or a placebo, and keep one row per question.

    rows = evaluate(Path("runs/sesa"), load_dataset("atlas:1", limit=100), memory_modes=("off", "on"))

Greedy decoding, one attempt per question, the run's own rules and prompts.  The skill bank is a copy of the
checkpoint's, so nothing an evaluation does can change the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from agents.base import Agent
from agents.checkpoint import MEMORY_FILE, latest_checkpoint, load_weights
from agents.config import Settings, load_settings
from agents.llm import LLMAgent
from agents.policies.hf import LanguageModel
from agents.rollout import play
from agents.scripted import Oracle
from agents.seats import adapter_of, load_model
from agents.solver import make_solver
from agents.tokens import TokenTrajectory
from benchmarks.datasets import Dataset, gold_queries
from benchmarks.report import Row
from benchmarks.train import CHECKPOINTS, SETTINGS_FILE
from sesa_env.corpora import is_atlas, load_atlas
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.registry import MEMORIES
from sesa_env.retrieval.base import Retriever
from sesa_env.rewards import containment, exact_match, f1
from sesa_env.types import SOLVER, Question, Trajectory
from skill_memory import NoMemory, SkillMemory, restore
from skill_memory.placebo import Placebo

MEMORY_MODES = ("off", "on", "placebo")


def evaluate(
    run: Path,
    data: Dataset,
    *,
    memory_modes: Sequence[str] = (),
    corpus: str | None = None,
    retriever: str | None = None,
    index: str | None = None,
    on_answers: Callable[[int], None] = lambda count: None,
) -> list[Row]:
    """Return a row for each question and memory mode.

    Args:
        run: a folder made by `benchmarks.train.train`.
        data: the questions.
        memory_modes: "on" shows the checkpoint's skills, "placebo" as many words that say nothing in their place, "off"
            builds no memory at all; none given means "off" and "on", or "off" alone for a run without skills.
        corpus: what to search; None takes the data's own corpus, or else the run's.
        retriever: by what; None takes the run's own.
        index: in which index; None takes the run's own, or for another corpus one in the user cache.
        on_answers: called with the number of questions just finished, for progress bars.

    Raises:
        InvalidInput: a mode is unknown, or the run has no skills to show.
        SesaError: the run, its model or its index cannot be opened.
    """
    for mode in memory_modes:
        if mode not in MEMORY_MODES:
            raise InvalidInput(f"memory must be of {MEMORY_MODES}, got {mode!r}")
    settings = load_settings(run / SETTINGS_FILE)
    place = latest_checkpoint(run / CHECKPOINTS)
    where = corpus or data.corpus or settings.corpus
    search = open_retriever(
        where,
        retriever=retriever or settings.retriever,
        index=index or (settings.index if where == settings.corpus else None),
        cache=settings.retrieval_cache,
        pages=bool(settings.game.tools),
    )
    model = load_model(settings)
    load_weights(place, model)
    about: dict[str, object] = {"run": run.name, "method": settings.method, "fictional": data.fictional}
    about |= {"dataset": _label(data, settings), "retrieval": search.fingerprint, "top_k": settings.game.top_k}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch, closing(_saved_memory(settings, place, Path(scratch))) as saved:
        for mode in dict.fromkeys(memory_modes or (("off", "on") if len(saved) else ("off",))):
            if mode != "off" and not len(saved):
                raise InvalidInput(f"memory cannot be {mode!r}: this run has no skills; use --memory off")
            solver = _solver(model, _shown(saved, mode), settings)
            for start in range(0, len(data.questions), settings.model.rollout_batch):
                batch = data.questions[start : start + settings.model.rollout_batch]
                attempts = attempt_all(batch, solver, search, settings.game)
                tokens = solver.drain()
                rows += [
                    _row(question, attempt, tokens.get(attempt.episode), memory=mode, **about)
                    for question, attempt in zip(batch, attempts, strict=True)
                ]
                on_answers(len(batch))
    return rows


def evaluate_oracle(data: Dataset, *, corpus: str, retriever: str, index: str | None) -> list[Row]:
    """Let the scripted oracle play every question through the environment and return its rows.

    It searches for the gold titles (in an Atlas, by the gold queries) and answers with the gold answer, so anything
    below 100 % is a fault of rules, parsing or scoring.

    Args:
        data: the questions.
        corpus: what is searched.
        retriever: by what.
        index: in which index; None takes one in the user cache.

    Raises:
        SesaError: the corpus or the index cannot be opened.
    """
    questions = data.questions
    search = open_retriever(corpus, retriever=retriever, index=index)
    rules = GameSettings(solver_turns=1 + max((len(question.supporting_titles) for question in questions), default=0))
    oracle = Oracle.knowing(questions, gold_queries(data))
    about: dict[str, object] = {"run": "oracle", "method": "oracle", "memory": "off", "dataset": data.name}
    about |= {"fictional": data.fictional, "retrieval": search.fingerprint, "top_k": rules.top_k}
    attempts = attempt_all(questions, oracle, search, rules)
    return [_row(question, attempt, None, **about) for question, attempt in zip(questions, attempts, strict=True)]


def attempt_all(
    questions: Sequence[Question], solver: Agent, retriever: Retriever, rules: GameSettings
) -> list[Trajectory]:
    """Let any agent attempt each question once, side by side, and return the attempts in order."""
    games = []
    for question in questions:
        game = Game(rules, judge=ExactMatchJudge(), id=question.id)
        game.ask(question, attempts=1)
        games.append(game)
    return [round_.solvers[0] for round_ in play(games, {SOLVER: solver}, retriever)]


def _label(data: Dataset, settings: Settings) -> str:
    """Name the data in tables, and say so when a run is asked about the very world it was trained in."""
    if not (data.corpus and is_atlas(data.corpus) and is_atlas(settings.corpus)):
        return data.name
    trained_here = load_atlas(data.corpus).seed == load_atlas(settings.corpus).seed
    return f"{data.name}, training world" if trained_here else data.name


def _saved_memory(settings: Settings, place: Path, scratch: Path) -> SkillMemory:
    """Open a copy of the checkpoint's memory, so that nothing an evaluation does can reach the run."""
    restore(place / MEMORY_FILE, scratch / MEMORY_FILE)
    memory: SkillMemory = MEMORIES.make(settings.memory.kind, settings.memory, scratch / MEMORY_FILE)
    return memory


def _shown(saved: SkillMemory, mode: str) -> SkillMemory:
    """Return the memory of a mode."""
    return {"off": NoMemory(), "on": saved, "placebo": Placebo(saved)}[mode]


def _solver(model: LanguageModel, memory: SkillMemory, settings: Settings) -> LLMAgent:
    return make_solver(
        model.policy(adapter_of(SOLVER, settings), seed=settings.seed),
        memory,
        token_budget=settings.memory.token_budget,
        max_new_tokens=settings.model.max_new_tokens,
        temperature=0.0,
        demonstrated=settings.model.demonstrations,
    )


def _row(question: Question, attempt: Trajectory, tokens: TokenTrajectory | None, **about: object) -> Row:
    kinds = [turn.action.kind for turn in attempt.turns]
    scored = attempt.usable
    return Row(
        **about,  # type: ignore[arg-type]
        question_id=question.id,
        family=question.family,
        answers=question.answers,
        prediction=attempt.output,
        em=exact_match(attempt.output, question.answers) if scored else None,
        f1=f1(attempt.output, question.answers) if scored else None,
        containment=containment(attempt.output, question.answers) if scored else None,
        turns=len(kinds),
        searches=kinds.count("search"),
        invalid=kinds.count("invalid"),
        end_reason=attempt.end_reason,
        skill_ids=tokens.skill_ids if tokens else (),
        prompt_tokens=tokens.prompt_length if tokens else 0,
        completion_tokens=tokens.written_count if tokens else 0,
    )
