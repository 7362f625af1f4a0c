"""Questions about an Atlas are read back: each has the answers and the hops it was made with."""

import pytest

from sesa_env.corpora.atlas import generate
from sesa_env.corpora.atlas.grammar import Grammar


@pytest.fixture(scope="module")
def atlas():
    return generate(1, entities=400)


@pytest.fixture(scope="module")
def grammar(atlas):
    return Grammar(atlas.entities, atlas.facts)


def test_every_question_of_the_world_is_read_as_it_was_meant(atlas, grammar):
    asked = [question for question in atlas.all_questions if question.family != "comparison"]
    assert len(asked) > 500
    for question in asked:
        reading = grammar.read(question.text)
        assert reading.hops == question.hops, question
        assert len(reading.answers) == 1, question
        title = next(iter(reading.answers))
        assert title in question.answers, question


@pytest.mark.parametrize(
    "text",
    ["", "Who?", "Who wrote?", "Who wrote Nobody At All?", "Which of the two was founded earlier?", "Who wrote {}?"],
)
def test_what_is_no_question_about_the_world_has_no_answer(grammar, text):
    assert grammar.read(text) == (frozenset(), 0)


def test_a_question_that_fits_two_has_both(atlas, grammar):
    """A step back leads to all its subjects: such a question is not right for one of them."""
    places = [fact.object for fact in atlas.facts if fact.relation == "birthplace"]
    crowded = max(set(places), key=places.count)
    reading = grammar.read(f"Who was born in {crowded}?")
    assert len(reading.answers) == places.count(crowded) > 1
