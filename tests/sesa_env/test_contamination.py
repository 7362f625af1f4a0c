import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.contamination import Blocklist, Overlap, overlaps
from sesa_env.errors import InvalidInput

TESTS = ["Who wrote “The Salt Road”?", "Which river floods the fields of Egypt?"]


def test_a_shared_question_is_listed_with_its_pair():
    train = ["Which town lies on the Isk?", "who wrote the salt road", "Which river?"]
    assert overlaps(train, TESTS) == [Overlap(train="who wrote the salt road", test=TESTS[0])]


@pytest.mark.parametrize(
    "text",
    [
        "WHICH RIVER FLOODS THE FIELDS OF EGYPT",
        "  Which river -- floods a fields of\nEgypt?!",
        "Ｗｈｉｃｈ river floods fields of Egypt",
        "When asked: which river floods the fields of Egypt? search for its name.",
    ],
)
def test_neither_case_nor_punctuation_nor_company_hides_a_test_question(text):
    assert Blocklist(TESTS).find(text) == TESTS[1]


@pytest.mark.parametrize(
    "text",
    ["", "Which river floods the fields?", "Which river floods the fields of Upper Egypt?", "river floods Egypt"],
)
def test_a_part_of_a_test_question_is_none(text):
    assert Blocklist(TESTS).find(text) is None


def test_a_short_test_question_is_found_whole_but_not_inside_others():
    blocklist = Blocklist(["Who wrote Dune?"])
    assert blocklist.find("who wrote dune") == "Who wrote Dune?"
    assert blocklist.find("Tell me who wrote Dune and when.") is None


def test_questions_with_one_beginning_are_told_apart():
    tests = ["Who was the king of the North in 1200?", "Who was the king of the North in 1300?"]
    assert Blocklist(tests).find(f"He asked: {tests[1]}") == tests[1]


def test_texts_without_words_match_nothing():
    assert overlaps(["?", ""], ["?", "..."]) == []
    assert len(Blocklist(["...", "Who?", "who"])) == 1


@given(st.lists(st.text(max_size=40), max_size=5), st.lists(st.text(max_size=40), max_size=5))
def test_any_texts_can_be_compared_and_equal_ones_with_words_are_found(train, test):
    found = overlaps(train, test)
    assert {item.train for item in found} <= set(train)
    assert {item.test for item in found} <= set(test)
    own = overlaps(test, test)
    assert {item.train for item in own} == {text for text in test if len(Blocklist([text]))}


@pytest.mark.parametrize(("train", "test"), [("text", ["a"]), (["a"], "text"), ([None], ["a"]), (["a"], [3])])
def test_only_lists_of_strings_are_compared(train, test):
    with pytest.raises(InvalidInput, match="must be a list of strings"):
        overlaps(train, test)
