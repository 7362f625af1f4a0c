"""Pages: opened by title, searched for a text, and never taken for another page."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.errors import InvalidInput, UnknownName
from sesa_env.retrieval.pages import PageStore
from sesa_env.types import Passage

PASSAGES = [
    Passage("1", "Nile", "The Nile is a river."),
    Passage("2", "Rhine", "The Rhine is a river."),
    Passage("3", "Nile", "It floods the fields\nof Egypt."),
    Passage("4", "", "A passage of no page about the Nile."),
    Passage("5", "Ångström", "A physicist."),
    Passage("6", "Us", "A pronoun."),
    Passage("7", "US", "A country."),
]
PAGES = PageStore(PASSAGES)


def ids(passages):
    return [passage.id for passage in passages]


def test_a_page_is_its_passages_in_order():
    assert PAGES.open("Nile") == [PASSAGES[0], PASSAGES[2]]
    assert len(PAGES) == 5


def test_changing_a_page_changes_no_other():
    PAGES.open("Nile").clear()
    assert ids(PAGES.open("Nile")) == ["1", "3"]


@pytest.mark.parametrize("title", ["nile", " NILE ", "\tNile\n"])
def test_case_and_spacing_of_a_title_do_not_matter(title):
    assert ids(PAGES.open(title)) == ["1", "3"]


@pytest.mark.parametrize("title", ["A\u030angstro\u0308m", "ÅNGSTRÖM", "\u212bngström"])
def test_accents_in_any_encoding_do(title):
    assert ids(PAGES.open(title)) == ["5"]


def test_titles_that_differ_in_case_only_are_different_pages():
    assert ids(PAGES.open("Us")) == ["6"]
    assert ids(PAGES.open("US")) == ["7"]
    with pytest.raises(UnknownName, match="several pages are called 'us': 'Us', 'US'"):
        PAGES.open("us")


def test_an_unknown_title_names_near_ones():
    with pytest.raises(UnknownName, match="no page titled 'Nil'; near: 'Nile'"):
        PAGES.open("Nil")
    with pytest.raises(UnknownName, match=r"no page titled 'Zambezi'$"):
        PAGES.open("Zambezi")
    with pytest.raises(UnknownName):
        PAGES.open("")


def test_a_text_is_found_across_lines_and_in_any_case():
    assert ids(PAGES.find("the FIELDS  of egypt", page="nile")) == ["3"]
    assert ids(PAGES.find("i", page="Nile")) == ["1", "3"]
    assert PAGES.find("Rhine", page="Nile") == []


def test_what_cannot_be_found_is_refused():
    with pytest.raises(InvalidInput, match="blank"):
        PAGES.find(" \x00", page="Nile")
    with pytest.raises(UnknownName):
        PAGES.find("river", page="Zambezi")


@given(title=st.text(st.characters()), text=st.text(st.characters()))
def test_any_text_is_safe(title, text):
    for call in (lambda: PAGES.open(title), lambda: PAGES.find(text, page="Nile")):
        with contextlib.suppress(UnknownName, InvalidInput):
            assert isinstance(call(), list)


def test_a_corpus_has_pages_by_its_name(corpus_file):
    pages = PageStore(str(corpus_file))
    assert pages.open("Tarrow")[0].text.startswith("Tarrow is a town")
    assert len(PageStore("atlas")) == 3000
