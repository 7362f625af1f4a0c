"""Measure the mini policy in worlds it has never seen: does it search, and does it follow a skill it is given.

    rows = evaluate_policy(folder, worlds=[1, 3, 5], questions=500)
    print(table(rows))

Every question is played through the real environment, greedily, once.  Questions behind a wording gap are asked with
different skills: none, the one that translates the world's own word ("relevant", "distilled") beside two irrelevant
ones, or irrelevant ones only.  So are questions about a page in plain words ("no gap"), where the relevant skill is
true, but of other pages, and questions about pages with unexpected English words ("gap, English"), which self-play has.
"distilled" is the relevant skill as the rule-based distiller writes it: the word alone, without the kind of page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agents.config import ModelSettings
from agents.mini.hints import UNSEEN, draw_hint, draw_irrelevant, fitting_triggers
from agents.mini.lessons import Classroom, Step
from agents.policies import recommended_settings
from agents.policies.hf import LanguageModel
from agents.solver import make_solver
from benchmarks.evaluate import attempt_all
from benchmarks.statistics import wilson
from sesa_env.corpora.atlas import generate
from sesa_env.errors import InvalidInput
from sesa_env.game import GameSettings
from sesa_env.types import Question
from skill_memory import NoMemory, Skill
from skill_memory.wording import Gap, translate

ENTITIES = 1000
BATCH = 50
TOKEN_BUDGET = 400
NONE, RELEVANT, DISTILLED, IRRELEVANT = "none", "relevant", "distilled", "irrelevant"


@dataclass(frozen=True, slots=True)
class MiniRow:
    """One question and how it went; `skills` says what was in front of it."""

    world: int
    question_id: str
    family: str
    skills: str
    solved: bool
    searches: int
    answered: bool


class GivenSkills(NoMemory):
    """A memory that shows each question the skills it was given for it."""

    def __init__(self, skills: dict[str, list[Skill]]) -> None:
        super().__init__()
        self._skills = skills

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return the given skills of each question."""
        return [self._skills[question] for question in questions]


def evaluate_policy(
    folder: Path, *, worlds: Sequence[int], questions: int, top_k: int = 3, settings: ModelSettings | None = None
) -> list[MiniRow]:
    """Play a policy on test worlds and return a row for each question and kind of skills.

    Args:
        folder: the policy, as a transformers folder.
        worlds: odd seeds; each world is asked about with jargon of its own, and at last without.
        questions: of each family in each world, at most.
        top_k: passages per search.
        settings: how the policy is loaded; None is what it was made for, in float32.

    Raises:
        InvalidInput: a world is one to train on.
    """
    require_test_worlds(worlds)
    model = LanguageModel.load(
        folder,
        adapters=("solver",),
        settings=settings or made_for(folder),
        seed=0,
    )
    rows = []
    for world in worlds:
        for jargon, draw in ((True, _exam), (False, _english_exam)):
            classroom = Classroom(generate(world, entities=ENTITIES, jargon=jargon), seed=0)
            for family, skills, asked in draw(classroom, questions):
                rows += _sit(model, classroom, family, skills, asked, GameSettings(top_k=top_k))
    return rows


def made_for(folder: Path) -> ModelSettings:
    """Return the settings that a policy's folder brings, in float32."""
    brought = recommended_settings(str(folder)).get("model", {})
    return replace(ModelSettings(**({"demonstrations": False} | brought)), dtype="float32", rollout_batch=BATCH)


def require_test_worlds(worlds: Sequence[int]) -> None:
    """Raise unless no policy is trained in any of these worlds.

    Raises:
        InvalidInput: a world is one to train on.
    """
    if trained := [world for world in worlds if world % 2 == 0]:
        raise InvalidInput(f"worlds must be odd, the others are to train on, got {trained}")


def table(rows: Sequence[MiniRow]) -> str:
    """Return exact match by family and kind of skills, with 95 % intervals, as text."""
    lines = [f"{'family':<14} {'skills':<11} {'n':>5}  {'EM':>5}  {'95 % interval':<15} {'searches':>8}"]
    for family in dict.fromkeys(row.family for row in rows):
        for skills in (NONE, RELEVANT, DISTILLED, IRRELEVANT):
            group = [row for row in rows if (row.family, row.skills) == (family, skills)]
            if group:
                solved = sum(row.solved for row in group)
                low, high = wilson(solved, len(group))
                searches = sum(row.searches for row in group) / len(group)
                lines.append(
                    f"{family:<14} {skills:<11} {len(group):>5}  {solved / len(group):5.3f}  "
                    f"[{low:.3f}, {high:.3f}]  {searches:>8.2f}"
                )
    return "\n".join(lines)


Part = tuple[str, str, dict[str, tuple[Question, list[Skill]]]]


def _exam(classroom: Classroom, count: int) -> Iterator[Part]:
    """Yield the parts of the exam: family, kind of skills, and the questions by text with their skills."""
    rng = np.random.default_rng([classroom.atlas.seed, 1])
    pool = classroom.atlas.all_questions
    shuffled = [pool[i] for i in rng.permutation(len(pool)).tolist()]
    for hops in (1, 2, 3, 4):
        plain = [q for q in shuffled if q.hops == hops and not classroom.coined(q)][:count]
        for skills in (NONE, IRRELEVANT):
            yield f"{hops} hop", skills, {q.text: (q, _skills(classroom, q, skills, rng)) for q in plain}
    gaps = _gaps(classroom, shuffled)
    for family, unseen in (("gap, seen", False), ("gap, unseen", True)):
        asked = [q for q in gaps if (classroom.coined(q)[0].relation.name in UNSEEN) == unseen][:count]
        for skills in (NONE, RELEVANT, DISTILLED, IRRELEVANT):
            yield family, skills, {q.text: (q, _skills(classroom, q, skills, rng)) for q in asked}
    asked = [q for q in shuffled if q.family != "comparison" and (q.hops or 9) <= 2 and not classroom.coined(q)]
    asked = [q for q in asked if _translatable(classroom, q)][:count]
    for skills in (NONE, RELEVANT, DISTILLED, IRRELEVANT):
        yield "no gap", skills, {q.text: (q, _skills(classroom, q, skills, rng)) for q in asked}


def _english_exam(classroom: Classroom, count: int) -> Iterator[Part]:
    """Yield the parts about a world whose reworded pages use unexpected English words."""
    rng = np.random.default_rng([classroom.atlas.seed, 2])
    pool = classroom.atlas.all_questions
    asked = _gaps(classroom, [pool[i] for i in rng.permutation(len(pool)).tolist()])[:count]
    for skills in (NONE, RELEVANT, DISTILLED, IRRELEVANT):
        yield "gap, English", skills, {q.text: (q, _skills(classroom, q, skills, rng)) for q in asked}


def _gaps(classroom: Classroom, questions: Sequence[Question]) -> list[Question]:
    """Return the short questions with one hop whose page has another word."""
    short = [q for q in questions if q.family == "wording-gap" and (q.hops or 9) <= 2]
    return [q for q in short if len(classroom.coined(q)) == 1]


def _translatable(classroom: Classroom, question: Question) -> list[Step]:
    """Return the hops for which some pages have a word of the world's own; only reworded pages use it."""
    return [step for step in classroom.steps(question) if step.relation.gap_cue]


def _skills(classroom: Classroom, question: Question, kind: str, rng: np.random.Generator) -> list[Skill]:
    if kind == NONE:
        return []
    names = [step.relation.name for step in classroom.steps(question)]
    skills = [draw_irrelevant(names, question=question.text, coin=classroom.coin, rng=rng) for _ in range(2)]
    if kind in (RELEVANT, DISTILLED):
        step = (classroom.coined(question) or _translatable(classroom, question))[0]
        suffix = step.relation.query_words(back=step.back, reworded=True)
        trigger, *_ = (*fitting_triggers(step.relation, back=step.back, question=question.text), step.relation.cue)
        hint = translate(Gap(tuple(trigger.split()), step.relation.gap_cue))
        if kind == RELEVANT:
            hint = draw_hint(step.relation, back=step.back, suffix=suffix, rng=rng, question=question.text)
        skills.insert(int(rng.integers(len(skills) + 1)), hint)
    return skills


def _sit(
    model: LanguageModel,
    classroom: Classroom,
    family: str,
    skills: str,
    asked: dict[str, tuple[Question, list[Skill]]],
    rules: GameSettings,
) -> list[MiniRow]:
    solver = make_solver(
        model.policy("solver", seed=0),
        GivenSkills({text: given for text, (_, given) in asked.items()}),
        token_budget=TOKEN_BUDGET,
        max_new_tokens=model.settings.max_new_tokens,
        temperature=0.0,
        demonstrated=model.settings.demonstrations,
    )
    questions = [question for question, _ in asked.values()]
    attempts = attempt_all(questions, solver, classroom.retriever, rules)
    solver.drain()
    return [
        MiniRow(
            world=classroom.atlas.seed,
            question_id=question.id,
            family=family,
            skills=skills,
            solved=attempt.reward > 0,
            searches=len(attempt.queries),
            answered=attempt.output is not None,
        )
        for question, attempt in zip(questions, attempts, strict=True)
    ]
