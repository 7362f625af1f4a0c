"""Reading what went wrong, and writing a card about it that names nothing of the episode."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.types import Action, Passage, Turn
from skill_memory.abstraction import RUN, is_generic, leak
from skill_memory.diagnose import FAULTS, Diagnosis, diagnose, searches_needed
from skill_memory.distill import DISTILLERS, Distiller
from skill_memory.encode import HashingEncoder
from skill_memory.gates import Candidate, Surroundings, refuse
from skill_memory.relations import RELATIONS, read_kind, read_relations
from skill_memory.rules import LESSONS, RuleDistiller, write_card
from skill_memory.shelf import Shelf
from skill_memory.skill import Skill

BERG = Passage("p2", "Anna Berg", "Anna Berg is the mother of Jon Falk.")
HARBOR = (Passage("p3", "Harbor (film)", "A film."), Passage("p4", "Harbor (novel)", "A novel by Ida Moe."))
BAY = Passage("p5", "The Bay", "The Bay, also known as Harbor, is a novel.")
WHOLE = "Who is the mother of the director of Polar Sky"


@pytest.mark.parametrize(
    ("fault", "attempt"),
    [
        ("format", {"output": None, "queries": (), "end_reason": "policy_stopped"}),
        ("format", {"output": None, "end_reason": "invalid_actions"}),
        ("no_search", {"queries": ()}),
        ("evidence_ignored", {"passages": (BERG,)}),
        ("no_hit", {"passages": ()}),
        ("repeated_query", {"queries": ("Polar Sky", "polar  sky!")}),
        ("query_too_long", {"queries": (WHOLE, "Jon Falk")}),
        ("ambiguous_name", {"question": "Who wrote Harbor?", "passages": HARBOR, "output": "Bo"}),
        ("alias", {"question": "Who wrote Harbor?", "passages": (BAY,), "queries": ("Harbor author",), "output": "Bo"}),
        ("turn_limit", {"output": None, "queries": ("a", "b"), "end_reason": "turn_limit"}),
        ("stopped_early", {}),
        ("wrong_page", {"queries": ("Polar Sky director", "Jon Falk mother")}),
        ("unsupported", {"queries": ("Polar Sky director", "Jon Falk mother"), "output": "Bo Lind"}),
    ],
)
def test_each_fault_is_recognised(make_failure, fault, attempt):
    assert diagnose(make_failure(**attempt)).fault == fault


def test_a_name_is_an_alias_only_while_its_page_was_not_searched(make_failure):
    fields = {"question": "Who wrote Harbor?", "passages": (BAY,), "output": "Bo"}
    assert diagnose(make_failure(queries=("Harbor author", "The Bay author"), **fields)).fault != "alias"
    other = Passage("p6", "The Bay", "The Bay, also known as Haven, is a novel.")
    assert diagnose(make_failure(queries=("Harbor author",), **fields | {"passages": (other,)})).fault != "alias"


def test_a_yes_in_a_passage_is_no_evidence(make_failure):
    failure = make_failure(
        question="Are both films by the same director?",
        answers=("yes",),
        output="no",
        queries=("a", "b", "c"),
        passages=(Passage("p", "Polar Sky", "Yes, it is a film; no more is known."),),
    )
    assert diagnose(failure).fault == "unsupported"


def test_every_fault_has_a_lesson_and_the_last_one_always_fits():
    assert list(FAULTS) == list(LESSONS)
    assert list(FAULTS)[-1] == "unsupported"


@pytest.mark.parametrize(
    ("question", "kind", "nouns"),
    [
        ("Who is the mother of the director of Polar Sky?", "who", ["director", "mother"]),
        ("When was the author of Harbor born?", "when", ["author", "birth date"]),
        ("Where was the composer of Red Sun born?", "where", ["composer", "birthplace"]),
        ("Who was taught by the founder of Kessel?", "who", ["founder", "teacher"]),
        ("Which river is longer, the Orl or the Venna?", "comparison", ["size"]),
        ("Are Orl and Venna in the same country?", "yes_no", ["country"]),
        ("How many people live in the capital of Ostria?", "how_many", ["capital", "population"]),
        ("In what year was the company that owns Kessel founded?", "when", ["owner", "founding year"]),
        ("Which country has Ostra as its capital?", "where", ["capital", "country"]),
        ("who wrote the music of Red Sun", "who", ["composer"]),
        ("What is it?", "what", []),
        ("谁写了这本书？", "what", []),
    ],
)
def test_questions_are_read(question, kind, nouns):
    assert read_kind(question) == kind
    assert [relation.noun for relation in read_relations(question)] == nouns


def test_searches_needed_counts_steps_and_sides():
    assert searches_needed("Who is the mother of the director of Polar Sky?") == 2
    assert searches_needed("Which is longer, the Orl or the Venna?") == 2
    assert searches_needed("What is it?") == 1


def test_a_card_says_what_to_do_about_the_relations_of_the_question(make_failure):
    (card,) = RuleDistiller().distill([make_failure()])[0]
    assert card == Skill(
        id="",
        description="Find the director, then the mother, one search each, using the name just found in the next one.",
        triggers=("who", "director", "mother"),
        avoid="answering with the director",
        queries=("{film} director", "{person} mother"),
        category="stopped_early",
    )


relation_lists = st.lists(st.sampled_from(RELATIONS), max_size=6).map(tuple)
kinds = st.sampled_from(["comparison", "yes_no", "how_many", "when", "where", "who", "which", "what"])


@given(fault=st.sampled_from(list(LESSONS)), kind=kinds, relations=relation_lists)
def test_every_card_passes_the_gates_of_an_empty_bank(fault, kind, relations):
    encoder = HashingEncoder()
    card = write_card(Diagnosis(fault, kind, relations))
    empty = Surroundings(shelf=Shelf((), encoder.encode_passages([])), tombstones={}, max_similarity=0.75)
    assert refuse(Candidate(card, encoder), empty) is None
    assert "{asked}" not in card.description
    assert "{steps}" not in card.description


def test_cards_of_different_faults_or_relations_are_different_skills(make_failure):
    encoder = HashingEncoder()
    questions = [
        "Who is the mother of the director of Polar Sky?",
        "When was the founder of Kessel born?",
        "Which country is the source of the Orl in?",
    ]
    texts = [write_card(Diagnosis(fault, read_kind(q), read_relations(q))).text for q in questions for fault in LESSONS]
    vector_ND = encoder.encode_passages(texts)
    cosine_NN = vector_ND @ vector_ND.T
    pairs = [cosine_NN[i, j] for i in range(len(texts)) for j in range(i)]
    assert max(pairs) <= encoder.max_similarity


def test_the_card_of_a_failure_holds_nothing_of_its_episode(make_failure):
    for fields in ({}, {"passages": (BERG,)}, {"queries": ()}, {"output": None, "end_reason": "turn_limit"}):
        failure = make_failure(**fields)
        (card,) = RuleDistiller().distill([failure])[0]
        assert leak(card, failure) == ""


def test_the_distiller_sees_the_whole_attempt(make_failure, recorded, open_bank):
    distiller = recorded(lambda failure: [])
    bank = open_bank(distiller=distiller)
    queries = ("Polar Sky", "Polar Sky film", "Jon Falk", "Jon Falk mother")
    assert bank.offer(make_failure(queries=queries))
    bank.consolidate(step=1)
    ((seen,),) = distiller.asked
    assert seen.trajectory.queries == queries
    assert seen.trajectory.output == "Jon Falk"
    assert seen.answers == ("Anna Berg",)
    assert seen == make_failure(queries=queries)


def test_distillers_are_found_by_name():
    assert all(isinstance(DISTILLERS.make(name), Distiller) for name in ("none", "rules"))
    assert DISTILLERS.make("none").distill([object(), object()]) == [[], []]


def card_with(**fields):
    card = Skill("", "Find the director first.", ("who", "director"), "the role", ("{film} director",))
    return dataclasses.replace(card, **fields)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, ""),
        ({"description": "Anna Berg is always right."}, "the answer"),
        ({"queries": ("{film} anna berg",)}, "the answer"),
        ({"avoid": "answering Jon Falk"}, "the given answer"),
        ({"triggers": ("polar sky",)}, "a title"),
        ({"description": "Look at Ostria first."}, "a name"),
        ({"description": "Ostria is a country, so look it up."}, "a name"),
        ({"avoid": "a Berg or a Falk"}, "a name"),
        ({"queries": ("republic of ostria president",)}, "a name"),
        ({"description": "Check what happened in 1987 first."}, "a number"),
        ({"description": "A film that was shot on the coast of the far north is old."}, "a verbatim run"),
        ({"description": "Look for a film shot on the coast of the north."}, ""),
    ],
)
def test_leaks_are_found(make_failure, fields, found):
    failure = make_failure(
        question="Who led the Republic of Ostria when the director of Polar Sky was born in 1987?",
        passages=(Passage("p", "Polar Sky", "Polar Sky, a film that was shot on the coast of the far north."),),
    )
    assert leak(card_with(**fields), failure) == found


def test_a_plain_word_is_no_name_because_a_title_has_it(make_failure):
    failure = make_failure(passages=(Passage("p", "Director", "A director directs."), Passage("p2", "The Role", "x")))
    assert leak(card_with(), failure) == "a title"  # "the role" is a title of two words: better refused than leaked
    assert leak(card_with(avoid="the cast"), failure) == ""


def test_a_run_shorter_than_the_limit_is_no_copy(make_failure):
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    failure = make_failure(queries=(" ".join(words),))
    assert leak(card_with(description=" ".join(words[: RUN - 1])), failure) == ""
    assert leak(card_with(description=" ".join(words[:RUN])), failure) == "a verbatim run"


def test_generic_answers():
    assert is_generic("Yes.")
    assert not is_generic("Anna Berg")


def test_only_valid_turns_make_a_format_fault(make_failure):
    failure = make_failure(output=None, queries=(), end_reason="turn_limit")
    turns = (Turn("hm", Action("invalid", reason="no_action")),)
    failure = dataclasses.replace(failure, trajectory=dataclasses.replace(failure.trajectory, turns=turns))
    assert diagnose(failure).fault == "format"
