"""Lessons of the mini policy: each can be played and wins, and hints kept for the exam occur in none."""

from __future__ import annotations

import re

import numpy as np
import pytest

from agents.mini.drills import draw_drills
from agents.mini.hints import UNSEEN, draw_hint, draw_irrelevant, noted, triggers_of
from agents.mini.lessons import Classroom, Lesson, draw_lessons
from agents.mini.walks import SEARCHES, _Walker, draw_chains, draw_walks
from sesa_env.corpora.atlas import generate
from sesa_env.corpora.atlas.grammar import Grammar
from sesa_env.corpora.atlas.relations import RELATIONS
from sesa_env.corpora.atlas.world import Fact
from sesa_env.game import Game, GameSettings, Move, advance
from sesa_env.judge import ExactMatchJudge
from sesa_env.text import read_action
from sesa_env.types import Question


@pytest.fixture(scope="module")
def classroom() -> Classroom:
    return Classroom(generate(200, entities=400, jargon="mixed"), seed=0)


@pytest.fixture(scope="module")
def lessons(classroom: Classroom) -> list[Lesson]:
    return draw_lessons(classroom, 600, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def plain() -> Classroom:
    return Classroom(generate(200, entities=400), seed=0)


@pytest.fixture(scope="module")
def walks(plain: Classroom) -> list[Lesson]:
    return draw_walks(plain, 400, rng=np.random.default_rng(0))


def texts(lesson: Lesson, role: str) -> list[str]:
    return [message.content for message in lesson.messages if message.role == role]


def test_there_are_lessons_of_every_length_with_and_without_skills_and_for_both_roles(
    lessons: list[Lesson], walks: list[Lesson]
) -> None:
    assert {"1-hop", "hint-1", "hint-2", "hint-3"} <= {lesson.family for lesson in lessons}
    assert {"challenger-1", "challenger-2", "challenger-3"} <= {lesson.family for lesson in walks}
    with_skills = [lesson for lesson in lessons if lesson.messages[0].content.startswith("<skills>")]
    assert 0.4 < len(with_skills) / len(lessons) < 0.85


def test_what_a_solver_says_in_a_lesson_wins_when_it_is_played(classroom: Classroom, lessons: list[Lesson]) -> None:
    by_text = {question.text: question for question in classroom.atlas.all_questions}
    played = 0
    for lesson in lessons:
        asked = lesson.messages[0].content.rpartition("Question: ")[2]
        question = by_text.get(asked)
        if question is None:  # a challenger's, or one with a coined word in the question
            continue
        game = Game(GameSettings(), judge=ExactMatchJudge())
        game.ask(Question("q", asked, question.answers), attempts=1)
        for text in texts(lesson, "assistant"):
            advance([Move(game, game.active[0], text)], classroom.retriever)
        assert game.result.solvers[0].reward == 1.0, lesson
        played += 1
    assert played > 100


TURN = re.compile(r"<think> (.*)</think><(search|answer)> (.*)</\w+>")


def hints_in(text: str) -> list[tuple[str, str]]:
    return re.findall(r"When: ([^;.]*).*Query: \{\w+\} ([^|\n]*)\n", text)


def test_each_turn_plans_what_is_left_and_searches_for_the_first_of_it(lessons: list[Lesson]) -> None:
    followed = 0
    for lesson in lessons:
        *searches, answer = texts(lesson, "assistant")
        assert read_action(answer, role="solver").kind == "answer"
        for index, text in enumerate(searches):
            turn = TURN.fullmatch(text)
            assert turn
            plan = turn[1].split("; ")[index > 0 :]
            assert len(plan) == len(searches) - index
            sought = " = ".join(plan[0].split(" = ")[:2])  # what the player adds of its own is not searched for
            assert turn[3].endswith(sought)
            assert (turn[3] == sought) == (lesson.family == "comparison")
            hinted = [hop for hop in plan if "=" in hop]
            assert all(tuple(hop.split(" = ")[:2]) in hints_in(lesson.messages[0].content) for hop in hinted)
            assert all(hop.count(" = ") == 2 for hop in hinted)  # the last part is the player's own
            followed += bool(hinted)
    assert followed > 50


def test_each_turn_first_notes_what_the_page_before_says(lessons: list[Lesson]) -> None:
    noted = 0
    for lesson in lessons:
        pages = [message.content for message in lesson.messages if message.role == "user"][1:]
        turns = [TURN.fullmatch(text) for text in texts(lesson, "assistant")]
        for page, turn in zip(pages, turns[1:], strict=True):
            if lesson.family == "comparison":
                continue
            assert turn
            note = turn[1].split("; ")[0]
            words = note.removeprefix("= ").split()
            assert words[0] in page.lower()
            assert any(name in page for name in words[1:3])  # a hint's word, of one word or two, is before the name
            assert turn[3].split()[0] in words
            noted += 1
    assert noted > 500


def test_a_hint_before_a_plain_page_is_searched_for_and_the_pages_own_word_is_noted(lessons: list[Lesson]) -> None:
    kinds: dict[bool, int] = {True: 0, False: 0}
    for lesson in lessons:
        turns = [TURN.fullmatch(text) for text in texts(lesson, "assistant")]
        pages = [message.content for message in lesson.messages if message.role == "user"][1:]
        for search, page, note in zip(turns, pages, turns[1:], strict=False):
            assert search
            assert note
            if "=" in search[3]:
                word = search[3].partition("= ")[2].split()[0]
                assert note[1].startswith(f"= {word} ") or word not in note[1]
                kinds[note[1].startswith("=")] += word in page or not note[1].startswith("=")
    assert min(kinds.values()) > 25


def test_a_comparison_names_both_from_the_start_and_ends_with_the_earlier_year(
    classroom: Classroom, lessons: list[Lesson]
) -> None:
    compared = [lesson for lesson in lessons if lesson.family == "comparison"]
    assert len(compared) > 20
    for lesson in compared:
        (plan, search), (_, then), (note, answer) = (
            re.findall(r">([^<]+)</", text) for text in texts(lesson, "assistant")
        )
        assert plan == f"{search};{then}"
        one, other, year = note.split(";")
        years = [int(re.findall(r" (\d+) ", part)[0]) for part in (one, other)]
        assert int(year) == min(years)
        assert (one, other)[years.index(min(years))].endswith(f"{year}{answer}")
    for drill in draw_drills(classroom, comparing=10, rng=np.random.default_rng(0)):
        for asked, said in zip(drill.messages[::2], drill.messages[1::2], strict=True):
            pairs = re.findall(r" (\d+) ([^;]+)", asked.content)
            first = min(pairs, key=lambda pair: int(pair[0]))
            assert said.content.endswith(f"; {first[0]}</think><answer> {first[1]}</answer>")


def test_a_challengers_lesson_ends_with_a_question_that_does_not_give_its_answer_away(walks: list[Lesson]) -> None:
    assert len(walks) > 150
    for lesson in walks:
        target = lesson.messages[0].content.split("\n")[0].removeprefix("Answer: ")
        *searches, question = texts(lesson, "assistant")
        action = read_action(question, role="challenger")
        assert action.kind == "question"
        assert target not in action.text
        assert len(searches) <= SEARCHES < GameSettings().challenger_turns
        assert len({text.partition("<search>")[2] for text in searches}) == len(searches)


def test_a_challengers_question_has_its_target_as_its_answer(plain: Classroom, walks: list[Lesson]) -> None:
    """Every chain, followed from its first name over the facts of the world, leads to the target alone."""
    by_name = {name: e for e in plain.atlas.entities for name in (e.full_name, *e.aliases)}
    names = {e.title: e.name for e in plain.atlas.entities}
    for lesson in walks:
        target = lesson.messages[0].content.split("\n")[0].removeprefix("Answer: ")
        written = texts(lesson, "assistant")[-1].removeprefix("<think> ").partition("</think>")[0]
        name, *hops = written.split("; ")
        reached = {by_name[name].title}
        for words in hops:
            reached = {other for title in reached for other in _follow(plain, title, words)}
        assert [names[title] for title in reached] == [target], written


def _follow(classroom: Classroom, title: str, words: str) -> set[str]:
    """Return where a hop leads that is worded as its page has it."""

    def worded(fact: Fact, *, back: bool) -> bool:
        relation, reworded = classroom.atlas.relations[fact.relation], classroom.entities[fact.subject].reworded
        noun = " person" if back and relation.subject == "person" else ""
        return relation.query_words(back=back, reworded=reworded) + noun == words

    on = {fact.object for fact in classroom.facts[title] if worded(fact, back=False)}
    return on or {fact.subject for fact in classroom.mentions[title] if worded(fact, back=True)}


def test_the_question_of_a_walk_or_a_chain_asks_what_the_chain_says(plain: Classroom, walks: list[Lesson]) -> None:
    grammar = Grammar(plain.atlas.entities, plain.atlas.facts)
    posed = [texts(lesson, "assistant")[-1] for lesson in walks]
    posed += [
        f"<think> {c}</think><question> {q}</question>"
        for c, q in draw_chains(plain, 200, rng=np.random.default_rng(1))
    ]
    for text in posed:
        turn = re.fullmatch(r"<think> (.*)</think><question> (.*)</question>", text)
        assert turn
        reading = grammar.read(turn[2])
        assert len(reading.answers) == 1, text
        assert reading.hops == turn[1].count("; "), text


def test_a_walk_names_a_mention_that_a_page_it_has_read_makes(walks: list[Lesson]) -> None:
    """Each name but the answer's stands in the pages before it."""
    for lesson in walks:
        read = ""
        for message in lesson.messages[1:]:
            if message.role == "user":
                read += message.content
                continue
            name = message.content.removeprefix("<think> ").partition("</think>")[0].split("; ")[0]
            assert not read or all(word in read for word in name.split()[:1])


def test_hints_about_unseen_relations_are_kept_for_the_exam() -> None:
    assert len(UNSEEN) >= 5
    classroom = Classroom(generate(200, entities=400, jargon=True), seed=0)  # no two of its words are alike
    lessons = draw_lessons(classroom, 600, rng=np.random.default_rng(0))
    kept = {classroom.atlas.relations[name].gap_cue for name in UNSEEN} - {""}
    for lesson in lessons:
        block = lesson.messages[0].content.rpartition("</skills>")[0]
        assert not kept & set(re.findall(r"\w+", block.lower()))


def test_a_hint_names_its_trigger_and_gives_the_query() -> None:
    rng = np.random.default_rng(0)
    for relation in RELATIONS.values():
        for back in {False, bool(relation.ask_back)}:
            assert triggers_of(relation, back=back)
            suffix = relation.query_words(back=back, reworded=False)
            hint = draw_hint(relation, back=back, suffix=suffix, rng=rng, question="", trigger="glarpid")
            assert hint.triggers == ("glarpid",)
            assert "glarpid" in hint.description.lower()
            assert hint.queries[0].endswith(suffix)


def test_a_hints_trigger_is_in_the_questions_words_where_those_name_the_relation() -> None:
    rng = np.random.default_rng(0)
    asked = "Which film did Jon Falk direct?"
    hints = [draw_hint(RELATIONS["director"], back=True, suffix="helmed", rng=rng, question=asked) for _ in range(50)]
    assert all(set(hint.triggers[0].casefold().split()) <= set(asked.strip("?").casefold().split()) for hint in hints)
    assert all(noted(hint) == f"{hint.triggers[0]} = helmed" for hint in hints)


def test_an_irrelevant_skill_does_not_translate_what_the_question_asks() -> None:
    rng = np.random.default_rng(1)
    names = ("director", "capital")
    words = {RELATIONS[name].cue for name in names}
    for _ in range(300):
        skill = draw_irrelevant(names, question="Who directed?", coin=lambda: "Zorpal", rng=rng)
        if "zorpal" in skill.text:
            assert not words & set(skill.triggers)


def test_a_skill_that_nearly_fits_shares_a_word_with_the_question() -> None:
    rng = np.random.default_rng(2)
    names, question = ("birth year",), "In what year was Jon Falk born?"
    skills = [draw_irrelevant(names, question=question, coin=lambda: "Zorpal", rng=rng) for _ in range(300)]
    near = [skill for skill in skills if skill.category == "" and skill.triggers[0] in ("where born", "city born")]
    assert len(near) > 5
    assert not any(skill.triggers[0] == "year born" for skill in skills)


def test_the_steps_of_a_question_join_end_to_end(classroom: Classroom) -> None:
    for question in classroom.atlas.all_questions:
        steps = classroom.steps(question)
        assert tuple(step.query for step in steps) == classroom.atlas.gold_queries(question.id)
        assert all(step.name and step.suffix for step in steps)


def test_a_reading_drill_notes_every_fact_of_its_pages_in_their_words(classroom: Classroom) -> None:
    rng = np.random.default_rng(0)
    for drill in draw_drills(classroom, reading=20, planning=0, rng=rng):
        for page, note in zip(drill.messages[::2], drill.messages[1::2], strict=True):
            assert (page.role, note.role) == ("user", "assistant")
            title = re.search(r"\(Title: (.*?)\) \w", page.content)
            assert title
            facts = [fact for fact in classroom.atlas.facts if fact.subject == title[1]]
            noted = note.content.removeprefix("<think> ").removesuffix("</think>").split("; ")
            assert len(noted) == len(facts)
            assert all(word.lower() in page.content.lower() for one in noted for word in one.split())


def test_a_planning_drill_plans_as_a_conversation_does(classroom: Classroom) -> None:
    (drill,) = draw_drills(classroom, reading=0, planning=1, rng=np.random.default_rng(0))
    by_text = {f"Question: {question.text}": question for question in classroom.atlas.all_questions}
    assert len(drill.messages) == 20
    for asked, planned in zip(drill.messages[::2], drill.messages[1::2], strict=True):
        question = by_text[asked.content]
        steps = classroom.steps(question)
        hops = [step.query if question.family == "comparison" else step.suffix for step in steps]
        assert planned.content == f"<think> {'; '.join(hops)}</think><search> {steps[0].query}</search>"


def test_a_drill_with_skills_shows_some_before_each_question_and_follows_hints(classroom: Classroom) -> None:
    drills = draw_drills(classroom, reading=0, planning=0, skilled=30, rng=np.random.default_rng(0))
    followed = 0
    for drill in drills:
        assert len(drill.messages) == 6
        for asked, planned in zip(drill.messages[::2], drill.messages[1::2], strict=True):
            assert asked.content.startswith("<skills>")
            assert planned.content.startswith("<think> ")
            followed += any(f"{trigger} = {word}" in planned.content for trigger, word in hints_in(asked.content))
    assert followed > 45  # of 90; the others have irrelevant skills only


def test_a_following_drill_goes_from_the_hint_to_what_the_page_says(classroom: Classroom) -> None:
    kept = {classroom.atlas.relations[name].gap_cue for name in UNSEEN}
    back = idle = 0
    for drill in draw_drills(classroom, following=20, rng=np.random.default_rng(0)):
        for asked, search, page, answer in zip(*(drill.messages[i::4] for i in range(4)), strict=True):
            known, _, hint = asked.content.removeprefix("Follow: ").partition("; ")
            trigger, words, _ = hint.split(" = ")
            assert search.content == f"<think> {hint}</think><search> {known} {trigger} = {words}</search>"
            value = answer.content.partition("<answer> ")[2].removesuffix("</answer>")
            said = words.split()[0] in page.content
            told = answer.content.removeprefix("<think> ").partition(f" {value}<")[0]
            assert (told == "= " + words or told.startswith(f"= {words} ")) == said
            assert value in page.content
            assert words.split()[0] not in kept
            back += f"Title: {value}" in page.content
            idle += not said
    assert 20 < back < 60
    assert 15 < idle < 45


def test_what_no_page_can_mention_is_asked_about_from_its_own_page_at_once(plain: Classroom) -> None:
    walker = _Walker(plain, np.random.default_rng(0))
    ships = [entity for entity in plain.atlas.entities if entity.kind == "ship" and not entity.qualifier]
    askable = [ship for ship in ships if walker._hops(ship, [])]
    assert len(askable) > 5
    for ship in askable:
        lesson = walker.walk(ship)
        assert lesson
        assert texts(lesson, "assistant")[1].split("; ")[1].split("<")[0].endswith((" ship", " vessel"))
