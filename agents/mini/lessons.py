"""What the mini policy imitates: conversations of a player who knows the gold, in worlds to train on.

A solver's turn notes what the page it has just read says, plans the hops that are left and searches for the first of
them.  Skills are in front of some questions: some translate a word that the question uses, and the player plans by the
skill's words and its own ("director = helmed = directed"), for it cannot know which of them the page has, searches by
the skill's, and notes what it finds under those that the page has.  The others have nothing to say about the question,
and the player passes over them.  A challenger's lessons are in `agents/mini/walks.py`.

    classroom = Classroom(generate(2, jargon=True), seed=0)
    lessons = classroom.solver_lessons(500)

Only conversations in which every search really finds its page are kept.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agents.base import Message
from agents.mini.hints import SAYS, UNSEEN, draw_hint, draw_irrelevant, fitting_triggers, noted
from sesa_env.corpora.atlas import Atlas
from sesa_env.corpora.atlas.names import Words
from sesa_env.corpora.atlas.relations import RELATIONS, Relation
from sesa_env.corpora.atlas.world import Fact
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.text import render_passages
from sesa_env.types import Passage, Question
from skill_memory.render import render_skills
from skill_memory.skill import Skill

PASSAGE_CHARS = 400
SHOWN = (1, 1, 1, 2, 3)
"""Passages per search, one drawn for each conversation: whatever a run shows, the policy has seen."""

HINTED_SHARE, IRRELEVANT_SHARE = 0.4, 0.25
"""Share of solver lessons with a skill to follow, and with irrelevant skills only; the rest have none."""

INVENTED_TRIGGER_SHARE, SHORT_QUERY_SHARE = 0.4, 0.6
"""Share of hints about a new word in the question, and of those that say the page's word without its kind of page."""

FIRST_SHARES = {1: 0.25, 2: 0.08}
HOP_SHARES = {1: 0.25, 2: 0.32, 3: 0.33, 4: 0.1}
"""Questions drawn by their hops, at the beginning and then; long ones teach more, and cost more."""


class Step(NamedTuple):
    """One hop as a player takes it: the name it starts from, what to add to it, and the page that must be found."""

    name: str
    suffix: str
    page: str
    relation: Relation
    back: bool
    reworded: bool
    hint: str = ""
    """What is planned by a skill about this hop, its trigger and its word; "" where there is none."""

    @property
    def planned(self) -> str:
        """What is planned: a skill's words, so that following it is copying, and the player's own."""
        return f"{self.hint} {SAYS} {self.suffix}" if self.hint else self.suffix

    @property
    def query(self) -> str:
        """The words searched for; own words behind a skill's would count twice, and hide the page that has neither."""
        return f"{self.name} {self.hint or self.suffix}"

    @property
    def told(self) -> str:
        """What stands before the page's value in a note: the hint's word where the page has it, else the page's own."""
        words = self.relation.query_words(back=self.back, reworded=self.reworded)
        said = self.hint.partition(f" {SAYS} ")[2]
        return f"{SAYS} {words}" if said.split()[:1] == words.split()[:1] else words


@dataclass(frozen=True, slots=True)
class Lesson:
    """A conversation; the assistant's turns are what is learned."""

    messages: tuple[Message, ...]
    family: str


class Classroom:
    """One world with its search, and the lessons drawn from it.

    Args:
        atlas: the world; a hint to follow needs one with jargon.
        seed: of all draws.

    Attributes:
        entities: the world's entities by title.
        facts: those of each page, by its title.
        mentions: those that name a thing on the page of another, by its title; not those in the world's own jargon.
    """

    def __init__(self, atlas: Atlas, *, seed: int) -> None:
        self.atlas = atlas
        self.retriever = Bm25Retriever.from_passages(atlas.passages, atlas.fingerprint)
        self._rng = np.random.default_rng([atlas.seed, seed])
        self._words = Words(atlas.seed, rng=self._rng, reserved=_words_of(atlas))
        self.entities = {entity.title: entity for entity in atlas.entities}
        self.facts = defaultdict[str, list[Fact]](list)
        self.mentions = defaultdict[str, list[Fact]](list)
        for fact in atlas.facts:
            self.facts[fact.subject].append(fact)
            known = atlas.relations[fact.relation].gap_cue == RELATIONS[fact.relation].gap_cue
            if known or not self.entities[fact.subject].reworded:
                self.mentions[fact.object].append(fact)

    def steps(self, question: Question) -> tuple[Step, ...]:
        """Return the hops of a question in order, worded as the pages are."""
        facts, queries = self.atlas.chain(question.id), self.atlas.gold_queries(question.id)
        if question.family == "comparison":
            backs = [False] * len(facts)
        else:
            backs = [facts[-1].object not in question.answers]
            for fact in reversed(facts[:-1]):  # what a hop leads to is where the next one starts
                following = facts[len(facts) - len(backs)]
                start = following.object if backs[0] else following.subject
                backs.insert(0, fact.object != start)
        found = []
        for fact, query, back in zip(facts, queries, backs, strict=True):
            relation, reworded = self.atlas.relations[fact.relation], self.entities[fact.subject].reworded
            suffix = relation.query_words(back=back, reworded=reworded)
            found.append(Step(query.removesuffix(suffix).rstrip(), suffix, fact.subject, relation, back, reworded))
        return tuple(found)

    def coined(self, question: Question) -> list[Step]:
        """Return the hops whose page uses a word of the world's own making."""
        return [step for step in self.steps(question) if step.reworded and step.relation.gap_cue]

    def coin(self) -> str:
        """Return a word that occurs nowhere else in this world."""
        return self._words.fresh()

    def draw_questions(self, count: int, *, shares: Mapping[int, float], rng: np.random.Generator) -> list[Question]:
        """Draw questions in random order, so large a part of `count` for each number of hops."""
        drawn: list[Question] = []
        for hops, share in shares.items():
            pool = [question for question in self.atlas.all_questions if question.hops == hops]
            drawn += [pool[i] for i in rng.permutation(len(pool))[: round(share * count)].tolist()]
        return [drawn[i] for i in rng.permutation(len(drawn)).tolist()]

    # A solver.

    def solver_lessons(self, questions: Sequence[Question]) -> list[Lesson]:
        """Return up to one lesson for each question, with skills in front of some."""
        plans = [plan for question in questions if (plan := self.plan(question)) is not None]
        pages = self.search([step.query for plan in plans for step in plan.steps])
        return [lesson for plan in plans if (lesson := self._solve(plan, pages)) is not None]

    def plan(self, question: Question) -> Plan | None:
        """Decide what the player does and which skills are shown; None where a hint would be needed that is kept."""
        steps, text, skills = list(self.steps(question)), question.text, list[Skill]()
        coined = [index for index, step in enumerate(steps) if step.reworded and step.relation.gap_cue]
        hinted = set(coined)
        draw = self._rng.random()
        idle = [index for index, step in enumerate(steps) if step.relation.gap_cue and not step.reworded]
        if idle and not coined and draw < HINTED_SHARE and question.family != "comparison":
            hinted.add(idle[int(self._rng.integers(len(idle)))])
        if any(steps[index].relation.name in UNSEEN for index in hinted) or len(hinted) > 2:
            return None
        for index in sorted(hinted):
            step, trigger = steps[index], ""
            alone = [other.relation.cue for other in steps].count(step.relation.cue) == 1
            if alone and self._rng.random() < INVENTED_TRIGGER_SHARE:
                trigger, text = self._rename(step, text)
            own, *noun = step.relation.query_words(back=step.back, reworded=False).split()
            # Behind a new word is the page's own; else the hint may be true of other pages only.
            said = step.relation.query_words(back=step.back, reworded=index in coined or not trigger)
            if self._rng.random() < SHORT_QUERY_SHARE:
                said = said.split()[0]
            hint = draw_hint(step.relation, back=step.back, suffix=said, rng=self._rng, question=text, trigger=trigger)
            skills.append(hint)
            word = trigger.split()[-1] if trigger else own
            steps[index] = step._replace(suffix=" ".join([word, *noun]), hint=noted(hint))
        if hinted or draw < HINTED_SHARE + IRRELEVANT_SHARE:
            names = [step.relation.name for step in steps]
            extra = int(self._rng.integers(0 if hinted else 1, 3 if hinted else 4))
            skills += [draw_irrelevant(names, question=text, coin=self.coin, rng=self._rng) for _ in range(extra)]
        order = self._rng.permutation(len(skills)).tolist()
        family = f"hint-{question.hops}" if hinted else question.family
        return Plan(question, text, tuple(steps), tuple(skills[i] for i in order), family)

    def _rename(self, step: Step, text: str) -> tuple[str, str]:
        """Put a new word in the place of a relation's own in a question, and return a trigger with it and the question.

        The trigger is empty where the place is not clear-cut.
        """
        cue = step.relation.cue
        places = list(re.finditer(rf"\b{re.escape(cue)}\b", text))
        if len(places) != 1:
            return "", text
        word = self.coin().lower()
        start, end = places[0].span()
        fitting = fitting_triggers(step.relation, back=step.back, question=text)
        triggers = [trigger for trigger in fitting if trigger.split()[-1] == cue] or [cue]
        trigger = triggers[int(self._rng.integers(len(triggers)))]
        return f"{trigger.removesuffix(cue)}{word}", f"{text[:start]}{word}{text[end:]}"

    def _solve(self, plan: Plan, pages: dict[str, list[Passage]]) -> Lesson | None:
        shown = self.draw_shown()
        messages = [plan.opening]
        notes, planned = self._notes(plan), plan.planned
        for index, step in enumerate(plan.steps):
            found = pages[step.query][:shown]
            if step.page not in [passage.title for passage in found]:
                return None
            thought = "; ".join([*notes[:index][-1:], *planned[index:]])
            messages += [
                Message("assistant", f"<think> {thought}</think><search> {step.query}</search>"),
                Message("user", render_passages(found, max_chars=PASSAGE_CHARS)),
            ]
        noted = "; ".join(notes if plan.compares else notes[-1:])
        messages.append(Message("assistant", f"<think> {noted}</think><answer> {plan.question.answers[0]}</answer>"))
        return Lesson(tuple(messages), plan.family)

    def _notes(self, plan: Plan) -> list[str]:
        """Return what each page tells, after the word it tells it by."""
        if plan.compares:
            return note_comparison(self.atlas.chain(plan.question.id))
        values = [*(step.name for step in plan.steps[1:]), plan.question.answers[0]]
        return [f"{step.told} {value}" for step, value in zip(plan.steps, values, strict=True)]

    # Both.

    def draw_shown(self) -> int:
        """Return how many passages a search of one conversation shows."""
        return SHOWN[int(self._rng.integers(len(SHOWN)))]

    def search(self, queries: Sequence[str]) -> dict[str, list[Passage]]:
        """Return the passages found by each query."""
        distinct = list(dict.fromkeys(queries))
        return dict(zip(distinct, self.retriever.search(distinct, max(SHOWN)), strict=True)) if distinct else {}


class Plan(NamedTuple):
    """What the player will do about a question, whose text may have been reworded, and the skills shown before it."""

    question: Question
    text: str
    steps: tuple[Step, ...]
    skills: tuple[Skill, ...]
    family: str

    @property
    def compares(self) -> bool:
        """Whether two pages are compared, and not one reached through the other."""
        return self.question.family == "comparison"

    @property
    def planned(self) -> list[str]:
        """The hops as the player writes them, with the names where they are known from the start."""
        return [f"{step.name} {step.planned}" if self.compares else step.planned for step in self.steps]

    @property
    def opening(self) -> Message:
        """The prompt: the skills, if any, and the question."""
        block, _ = render_skills(self.skills, fits=lambda _: True)
        task = f"Question: {self.text}"
        return Message("user", f"{block}\n{task}" if block else task)

    @property
    def first_turn(self) -> Message:
        """What the player writes first: the hops, and the search for the first of them."""
        thought = "; ".join(self.planned)
        return Message("assistant", f"<think> {thought}</think><search> {self.steps[0].query}</search>")


def note_comparison(pair: Sequence[Fact]) -> list[str]:
    """Return what is noted of two pages with a year each: year and name, and behind the second the earlier year again.

    What then follows is what followed that year before: the name.
    """
    first, second = (f"{RELATIONS[fact.relation].cue} {fact.object} {fact.subject}" for fact in pair)
    return [first, f"{second}; {min((fact.object for fact in pair), key=int)}"]


def draw_lessons(
    classroom: Classroom, count: int, *, rng: np.random.Generator, shares: Mapping[int, float] = HOP_SHARES
) -> list[Lesson]:
    """Draw questions of all lengths and turn them into a solver's lessons, in random order.

    Args:
        classroom: the world.
        count: how many questions are drawn; a few of them yield no lesson.
        rng: decides which questions.
        shares: how large a part of `count` is drawn for each number of hops.
    """
    return classroom.solver_lessons(classroom.draw_questions(count, shares=shares, rng=rng))


def _words_of(atlas: Atlas) -> frozenset[str]:
    """Return every word of a world, in lower case: its pages, its questions, and the jargon that no page may show."""
    texts = [f"{passage.title} {passage.text}" for passage in atlas.passages]
    texts += [question.text for question in atlas.all_questions]
    texts += [relation.gap_cue for relation in atlas.relations.values()]
    return frozenset(re.findall(r"\w+", " ".join(texts).lower()))
