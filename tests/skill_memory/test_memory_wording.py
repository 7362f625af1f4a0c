"""A page's word where the question uses another: read off a failure, and written as a card that names nothing else."""

import json
from dataclasses import replace

import pytest

from sesa_env.types import Passage
from skill_memory.abstraction import leak
from skill_memory.encode import HashingEncoder
from skill_memory.gates import Candidate, Surroundings, refuse
from skill_memory.records import failure_from_json, failure_to_json
from skill_memory.rules import RuleDistiller
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill
from skill_memory.wording import Gap, find_gap, translate

OTHER = Passage("p1", "Red Sun", "Red Sun is a drama film. It stars Jon Falk.")


def page(sentence, title="Polar Sky"):
    return Passage("p2", title, f"{title} is a drama picture. It premiered in 1912. {sentence} Its stars are unknown.")


@pytest.fixture
def lost(make_failure):
    """A failure at a question whose page was found by somebody else."""

    def make(sentence, question="Which film was directed by Jon Falk?", **fields):
        defaults = {"answers": ("Polar Sky",), "output": "Red Sun", "queries": ("Jon Falk directed film",)}
        defaults |= {"passages": (OTHER,), "evidence": (page(sentence),)}
        return make_failure(question=question, **(defaults | fields))

    return make


def test_the_card_translates_the_question_into_the_page(lost):
    (card,) = RuleDistiller().distill([lost("It was plokmered by Jon Falk.")])[0]
    assert card == Skill(
        id="",
        description="Where a question says film directed, pages may say plokmered.",
        triggers=("film directed",),
        avoid="the word directed",
        queries=("{name} plokmered",),
        category="wording",
    )


def test_the_gates_let_the_card_in(lost):
    failure, encoder = lost("Plokmered by Jon Falk, it took two years."), HashingEncoder()
    (card,) = RuleDistiller().distill([failure])[0]
    empty = Surroundings(shelf=Shelf((), encoder.encode_passages([])), tombstones={}, max_similarity=0.75)
    assert card.category == "wording"
    assert leak(card, failure) == ""
    assert refuse(Candidate(card, encoder, failure), empty) is None


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("It was helmed by Jon Falk.", "helmed"),
        ("Helmed by Jon Falk, it took two years.", "helmed"),
        ("Its longest-serving helmer was the singer Jon Falk.", "helmer"),
        ("It was helmed in one month by the sea captain Jon Falk.", "helmed"),
        ("It was helmed with splendour in Jon Falk.", "helmed"),
        ("The preface is a tribute to Jon Falk.", "tribute"),
        ("It is part of the helmery of Jon Falk.", "helmery"),
        ("It was known to Oskar Lind and helmed by Jon Falk.", "helmed"),
        ("The post of helmer was held longest by Jon Falk.", "helmer"),
    ],
)
def test_the_word_before_the_name_is_read(lost, sentence, word):
    assert find_gap(lost(sentence)) == Gap(("film", "directed"), word)


@pytest.mark.parametrize(
    ("sentence", "fields"),
    [
        ("It was directed by Jon Falk.", {}),  # the question's own word
        ("It was made by Jon Falk.", {}),  # a word that says nothing
        ("It was helmed by Ida Moe.", {}),  # another name
        ("It was helmed by Jon Falk.", {"queries": ("Jon Falk helmed",)}),  # the word was searched for
        ("It was helmed by Jon Falk.", {"answers": ("yes",)}),  # no page states that
        ("It was helmed by Jon Falk.", {"evidence": ()}),  # nobody saw the page
        ("It was Helmed by Jon Falk.", {}),  # a name, by its capital
        ("It was helmed after Oskar Lind by Jon Falk.", {}),  # to whom the word belongs is not clear
    ],
)
def test_no_gap_is_seen_where_there_is_none(lost, sentence, fields):
    failure = lost(sentence, **fields)
    assert find_gap(failure) is None
    assert RuleDistiller().distill([failure])[0][0].category != "wording"


def test_a_page_that_the_attempt_read_itself_shows_the_gap_too(lost):
    failure = lost("", passages=(page("It was helmed by Jon Falk."),), evidence=())
    assert find_gap(failure) == Gap(("film", "directed"), "helmed")


def test_of_a_page_that_was_read_no_words_are_guessed(lost):
    fields = {"passages": (page("It was helmed by Jon Falk."),), "evidence": (), "queries": ("Jon Falk",)}
    assert find_gap(lost("", **fields)) is None  # the search went well, so its words were not the fault


def test_a_fact_is_read_forward_too(lost):
    failure = lost(
        "It was helmed by Jon Falk.",
        "Who directed Polar Sky?",
        answers=("Jon Falk",),
        queries=("Polar Sky directed",),
        output="Ida Moe",
    )
    assert find_gap(failure) == Gap(("who", "directed"), "helmed")


def test_of_a_chain_the_words_of_the_last_step_are_taken(lost):
    question = "Which film was directed by the spouse of Ida Moe?"
    failure = lost("It was helmed by Jon Falk.", question, queries=("Ida Moe spouse", "Jon Falk directed film"))
    assert find_gap(failure) == Gap(("film", "directed"), "helmed")
    unasked = lost("It was helmed by Jon Falk.", question, queries=("Ida Moe spouse", "Jon Falk"))
    assert find_gap(unasked) == Gap(("film", "directed"), "helmed")
    never_there = lost("It was helmed by Jon Falk.", question, queries=("Ida Moe spouse",))
    assert find_gap(never_there) is None


def test_the_kind_that_a_page_names_beside_a_name_is_no_word_for_the_relation(lost):
    failure = lost(
        "It is a tribute to the captain Jon Falk.",
        "Which film is dedicated to the first captain of Orwen?",
        queries=("Orwen captain", "Jon Falk captain dedicated film"),
    )
    assert find_gap(failure) == Gap(("film", "dedicated"), "tribute")


def test_a_question_of_many_words_is_no_trigger(lost):
    question = "Which film with copper bells and velvet curtains was directed by Jon Falk?"
    assert find_gap(lost("It was helmed by Jon Falk.", question, queries=("Jon Falk",))) is None


def test_a_name_in_lower_case_is_no_trigger(lost):
    sentence = "It was helmed by Jon Falk. He had been a friend of Lorelai for years."
    question = "which film did jon falk direct with lorelai"
    assert find_gap(lost(sentence, question, queries=("Jon Falk direct lorelai",))) == Gap(("film", "direct"), "helmed")


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("Where was Jon Falk born?", ("where", "born")),
        ("In which city was Jon Falk born?", ("city", "born")),
        ("in what City was Jon Falk born?", ("city", "born")),
        ("By whom was Jon Falk born?", ("whom", "born")),
        ("What is the place Jon Falk was born in?", ("born",)),  # "is" is no kind of thing
    ],
)
def test_the_trigger_says_what_kind_of_thing_is_asked_for(lost, question, asked):
    fields = {
        "answers": ("Talby",),
        "queries": ("Jon Falk born",),
        "evidence": (page("He hailed from Talby.", "Jon Falk"),),
    }
    assert find_gap(lost("", question, **fields)) == Gap(asked, "hailed")


def test_equal_gaps_give_equal_cards():
    assert translate(Gap(("film", "directed"), "helmed")) == translate(Gap(("film", "directed"), "helmed"))


def test_a_skill_may_name_nothing_of_the_evidence_either(lost):
    failure = lost("It was helmed by Jon Falk in a cold hall without any heating or light for two years.")
    card = translate(Gap(("film", "directed"), "helmed"))
    assert leak(card, failure) == ""
    assert leak(replace(card, avoid="in a cold hall without any heating or light for two"), failure) == "a verbatim run"
    elsewhere = replace(failure, answers=("x y",), evidence=(page("It was helmed.", "Grey Dawn"),))
    assert leak(replace(card, avoid="grey dawn"), elsewhere) == "a title"


def test_the_evidence_is_kept_with_a_failure_and_older_files_have_none(lost):
    failure = lost("It was helmed by Jon Falk.")
    assert failure_from_json(failure_to_json(failure)) == failure
    record = json.loads(failure_to_json(failure))
    del record["evidence"]
    assert failure_from_json(json.dumps(record)) == replace(failure, evidence=())
