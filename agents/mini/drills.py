"""Exercises beside the whole conversations: much of what is hard, little of what only has to be read.

A conversation of 400 tokens reads two or three names off a page, and plans once.  A reading drill notes every fact of
its pages, and a planning drill plans one question after the other without waiting for results; some of those have
skills in front of each question, to follow or to pass over, and a following drill goes from a hint to the answer.  A
comparing drill says which of two years is the earlier.  For the challenger, a posing drill words one chain after the
other as a question, and a finding drill says how pages mention a name.

    lesson = reading_drill(classroom, rng)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from agents.base import Message
from agents.mini.hints import SAYS, UNSEEN, triggers_of
from agents.mini.lessons import (
    IRRELEVANT_SHARE,
    PASSAGE_CHARS,
    SHORT_QUERY_SHARE,
    Classroom,
    Lesson,
    Plan,
    note_comparison,
)
from agents.mini.walks import draw_chains
from sesa_env.corpora.atlas.relations import RELATIONS, YEAR
from sesa_env.corpora.atlas.world import Fact
from sesa_env.text import render_passages
from sesa_env.types import Question

_T = TypeVar("_T")

PAGES, QUESTIONS, SKILLED, POSED, MENTIONS, FOLLOWED, COMPARED = 3, 10, 3, 6, 4, 4, 8
"""Exercises in a drill of each kind, about as many tokens as a conversation has."""

BACK_SHARE = 0.6
"""Share of the hops followed that lead from the object of a fact to the page that states it."""
IDLE_SHARE = 0.35
"""Share of the hints in drills of following whose page is in plain words all the same."""
UNMENTIONED_SHARE = 0.25
"""Share of the pages, in drills of finding mentions, that do not mention what was searched for."""


def draw_drills(
    classroom: Classroom,
    *,
    reading: int = 0,
    planning: int = 0,
    skilled: int = 0,
    following: int = 0,
    comparing: int = 0,
    posing: int = 0,
    finding: int = 0,
    rng: np.random.Generator,
) -> list[Lesson]:
    """Return so many drills of each kind.

    Args:
        classroom: the world.
        reading: drills of a few pages.
        planning: drills of a few questions.
        skilled: drills of a few questions with skills in front of each.
        following: drills of a few hops, from a hint in the world's own words to the answer.
        comparing: drills of a few pairs of years.
        posing: drills of a few chains to be made into questions.
        finding: drills of a few pages that mention a name.
        rng: decides which pages and questions, and the order of the facts.
    """
    titles = list(classroom.facts)
    asked = [question for question in classroom.atlas.all_questions if not classroom.coined(question)]
    mentions = [fact for title in classroom.entities for fact in classroom.mentions[title]]
    drills = [_reading(classroom, _some(titles, PAGES, rng), rng) for _ in range(reading)]
    drills += [_planning(classroom, _some(asked, QUESTIONS, rng)) for _ in range(planning)]
    drills += [_skilled(classroom, rng) for _ in range(skilled)]
    drills += [_following(classroom, rng) for _ in range(following)]
    drills += [_comparing(classroom, rng) for _ in range(comparing)]
    chains = draw_chains(classroom, POSED * posing, rng=rng)
    drills += [_posing(chains[start : start + POSED]) for start in range(0, len(chains), POSED)]
    return drills + [_finding(classroom, _some(mentions, MENTIONS, rng), rng) for _ in range(finding)]


def _reading(classroom: Classroom, titles: Sequence[str], rng: np.random.Generator) -> Lesson:
    messages = []
    for title in titles:
        page = render_passages([classroom.atlas.page(title)], max_chars=PASSAGE_CHARS)
        order = rng.permutation(len(classroom.facts[title])).tolist()
        noted = "; ".join(_note(classroom, classroom.facts[title][index]) for index in order)
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
        plan = Plan(question, question.text, classroom.steps(question), (), question.family)
        messages += [plan.opening, plan.first_turn]
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


def _following(classroom: Classroom, rng: np.random.Generator) -> Lesson:
    messages = []
    for _ in range(FOLLOWED):
        fact = _taught(classroom, idle=bool(rng.random() < IDLE_SHARE), rng=rng)
        relation, page_of = classroom.atlas.relations[fact.relation], classroom.entities[fact.subject]
        target = classroom.entities.get(fact.object)
        back = target is not None and bool(relation.ask_back) and rng.random() < BACK_SHARE
        known, value = page_of.full_name, target.name if target else fact.object
        if back:
            known, value = value, page_of.name
        (trigger,) = _some(triggers_of(relation, back=back), 1, rng)
        own, words = (relation.query_words(back=back, reworded=reworded) for reworded in (False, True))
        told = f"{SAYS} {words}" if page_of.reworded else own
        page = render_passages([classroom.atlas.page(fact.subject)], max_chars=PASSAGE_CHARS)
        said = words.split()[0] if rng.random() < SHORT_QUERY_SHARE else words
        hint = f"{trigger} {SAYS} {said}"
        messages += [
            Message("user", f"Follow: {known}; {hint} {SAYS} {own}"),
            Message("assistant", f"<think> {hint} {SAYS} {own}</think><search> {known} {hint}</search>"),
            Message("user", page),
            Message("assistant", f"<think> {told} {value}</think><answer> {value}</answer>"),
        ]
    return Lesson(tuple(messages), "drill-following")


def _taught(classroom: Classroom, *, idle: bool, rng: np.random.Generator) -> Fact:
    """Draw a fact whose relation has a word of the world's own, from a page in plain words if `idle`."""
    while True:
        (fact,) = _some(classroom.atlas.facts, 1, rng)
        told = classroom.atlas.relations[fact.relation].gap_cue and fact.relation not in UNSEEN
        if told and classroom.entities[fact.subject].reworded is not idle:
            return fact


def _comparing(classroom: Classroom, rng: np.random.Generator) -> Lesson:
    dated = [fact for fact in classroom.atlas.facts if RELATIONS[fact.relation].object == YEAR]
    messages: list[Message] = []
    while len(messages) < 2 * COMPARED:
        one, other = _some(dated, 2, rng)
        if one.relation == other.relation and one.object != other.object:
            first, second = note_comparison((one, other))
            earlier = min(one, other, key=lambda fact: int(fact.object)).subject
            messages += [
                Message("user", f"Compare: {first}; {second.rpartition('; ')[0]}"),
                Message("assistant", f"<think> {first}; {second}</think><answer> {earlier}</answer>"),
            ]
    return Lesson(tuple(messages), "drill-comparing")


def _posing(chains: Sequence[tuple[str, str]]) -> Lesson:
    messages = []
    for chain, question in chains:
        messages += [
            Message("user", f"Pose: {chain}"),
            Message("assistant", f"<think> {chain}</think><question> {question}</question>"),
        ]
    return Lesson(tuple(messages), "drill-posing")


def _finding(classroom: Classroom, facts: Sequence[Fact], rng: np.random.Generator) -> Lesson:
    messages = []
    for fact, other in zip(facts, [*facts[1:], facts[0]], strict=True):
        known = classroom.entities[fact.object].full_name
        also = any(one.subject == other.subject for one in classroom.mentions[fact.object])
        mentioned = also or rng.random() >= UNMENTIONED_SHARE
        page = render_passages([classroom.atlas.page((fact if mentioned else other).subject)], max_chars=PASSAGE_CHARS)
        page_of = classroom.entities[fact.subject]
        words = classroom.atlas.relations[fact.relation].query_words(back=False, reworded=page_of.reworded)
        chain = f"{page_of.full_name}; {words}" if mentioned else known
        messages += [Message("user", f"Answer: {known}\n{page}"), Message("assistant", f"<think> {chain}</think>")]
    return Lesson(tuple(messages), "drill-finding")


def _some(items: Sequence[_T], count: int, rng: np.random.Generator) -> list[_T]:
    return [items[int(index)] for index in rng.integers(len(items), size=count)]
