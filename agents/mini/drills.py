"""Exercises beside the whole conversations: much of what is hard, little of what only has to be read.

A conversation of 400 tokens reads two or three names off a page, and plans once.  A reading drill notes every fact of
its pages, and a planning drill plans one question after the other without waiting for results; half of those have
skills in front of each question, to follow or to pass over.

    lesson = reading_drill(classroom, rng)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from agents.base import Message
from agents.mini.lessons import IRRELEVANT_SHARE, PASSAGE_CHARS, Classroom, Lesson
from sesa_env.corpora.atlas.world import Fact
from sesa_env.text import render_passages
from sesa_env.types import Question

_T = TypeVar("_T")

PAGES, QUESTIONS, SKILLED = 3, 10, 3
"""In a drill, the last being questions with skills: about as many tokens as a conversation has."""


def draw_drills(
    classroom: Classroom, *, reading: int, planning: int, skilled: int = 0, rng: np.random.Generator
) -> list[Lesson]:
    """Return so many drills of each kind.

    Args:
        classroom: the world.
        reading: drills of a few pages.
        planning: drills of a few questions.
        skilled: drills of a few questions with skills in front of each.
        rng: decides which pages and questions, and the order of the facts.
    """
    facts: dict[str, list[Fact]] = defaultdict(list)
    for fact in classroom.atlas.facts:
        facts[fact.subject].append(fact)
    titles = list(facts)
    asked = [question for question in classroom.atlas.all_questions if not classroom.coined(question)]
    drills = [_reading(classroom, _some(titles, PAGES, rng), facts, rng) for _ in range(reading)]
    drills += [_planning(classroom, _some(asked, QUESTIONS, rng)) for _ in range(planning)]
    return drills + [_skilled(classroom, rng) for _ in range(skilled)]


def _reading(
    classroom: Classroom, titles: Sequence[str], facts: Mapping[str, list[Fact]], rng: np.random.Generator
) -> Lesson:
    messages = []
    for title in titles:
        page = render_passages([classroom.atlas.page(title)], max_chars=PASSAGE_CHARS)
        order = rng.permutation(len(facts[title])).tolist()
        noted = "; ".join(_note(classroom, facts[title][index]) for index in order)
        messages += [Message("user", f"Note: {page}"), Message("assistant", f"<think> {noted}</think>")]
    return Lesson(tuple(messages), "drill-reading")


def _note(classroom: Classroom, fact: Fact) -> str:
    relation = classroom.atlas.relations[fact.relation]
    target = classroom.entities.get(fact.object)
    words = relation.query_words(back=False, reworded=classroom.entities[fact.subject].reworded)
    return f"{words} {target.name if target else fact.object}"


def _planning(classroom: Classroom, questions: Sequence[Question]) -> Lesson:
    messages = []
    for question in questions:
        steps = classroom.steps(question)
        plan = "; ".join(step.suffix for step in steps)
        messages += [
            Message("user", f"Question: {question.text}"),
            Message("assistant", f"<think> {plan}</think><search> {steps[0].query}</search>"),
        ]
    return Lesson(tuple(messages), "drill-planning")


def _skilled(classroom: Classroom, rng: np.random.Generator) -> Lesson:
    messages: list[Message] = []
    while len(messages) < 2 * SKILLED:
        (question,) = _some(classroom.atlas.all_questions, 1, rng)
        plan = classroom.plan(question)
        wanted = plan is not None and (plan.family.startswith("hint") or rng.random() < IRRELEVANT_SHARE)
        if plan is not None and plan.skills and wanted:
            messages += [plan.opening, plan.first_turn]
    return Lesson(tuple(messages), "drill-skills")


def _some(items: Sequence[_T], count: int, rng: np.random.Generator) -> list[_T]:
    return [items[int(index)] for index in rng.integers(len(items), size=count)]
