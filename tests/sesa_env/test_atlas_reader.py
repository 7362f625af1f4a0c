"""An ideal reader answers questions of an Atlas from their pages, and from nothing else."""

import numpy as np
import pytest

from sesa_env.answerers import Reading
from sesa_env.checks import CheckSettings
from sesa_env.corpora.atlas import generate
from sesa_env.corpora.atlas.reader import AtlasReader
from sesa_env.registry import ANSWERERS
from sesa_env.text import render_passages


@pytest.fixture(scope="module")
def atlas():
    return generate(1, entities=400)


def reading(atlas, question, titles, *, noise=(), rng=None):
    passages = [atlas.page(title) for title in dict.fromkeys((*titles, *noise))]
    order = rng.permutation(len(passages)).tolist() if rng else range(len(passages))
    return Reading(question.text, render_passages([passages[i] for i in order], max_chars=800))


def test_questions_are_answered_from_their_pages_among_others(atlas):
    rng = np.random.default_rng(0)
    asked = [question for question in atlas.all_questions if question.family != "comparison"]
    titles = [passage.title for passage in atlas.passages]
    readings = [
        reading(
            atlas, one, one.supporting_titles, noise=[titles[i] for i in rng.integers(len(titles), size=8)], rng=rng
        )
        for one in asked
    ]
    answers = AtlasReader().answer(readings)
    wrong = [(one.text, answer) for one, answer in zip(asked, answers, strict=True) if answer not in one.answers]
    assert len(asked) > 500
    assert not [pair for pair in wrong if pair[1]], wrong[:3]
    assert len(wrong) <= 0.01 * len(asked), wrong[:3]


def test_without_one_of_its_pages_a_question_has_no_answer(atlas):
    for one in atlas.all_questions:
        if one.hops == 2 and one.family != "comparison":
            assert AtlasReader().answer([reading(atlas, one, one.supporting_titles[1:])]) == [""]


def test_what_is_no_page_of_an_atlas_is_passed_over():
    materials = "Doc 1(Title: Nile) The Nile floods Egypt.\nDoc 2(Title: )("
    assert AtlasReader().answer([Reading("Who directed Nile?", materials), Reading("", "")]) == ["", ""]


def test_it_is_an_answerer_of_the_check_by_name():
    assert isinstance(ANSWERERS.make("atlas", CheckSettings(answerer="atlas")), AtlasReader)
