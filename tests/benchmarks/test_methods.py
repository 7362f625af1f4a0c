"""Methods are settings: each resolves, and they differ in nothing but values."""

from dataclasses import asdict

import pytest

from agents.config import resolve
from benchmarks.methods import METHODS, method
from sesa_env.errors import UnknownName


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_resolves_and_keeps_its_name(name):
    assert resolve(method(name)).method == name


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="base, search_r1, sesa, sesa_v, skillrl, ssp"):
        method("sasa")


def test_ssp_and_sesa_differ_in_what_the_articles_say_and_in_no_size():
    ssp, sesa = (asdict(resolve(method(name))) for name in ("ssp", "sesa"))
    assert (ssp["shared_weights"], sesa["shared_weights"]) == (True, False)
    assert (ssp["memory"]["kind"], sesa["memory"]["kind"]) == ("none", "bank")
    assert (ssp["game"]["challenger_reward"], sesa["game"]["challenger_reward"]) == ("one_minus_solve_rate", "frontier")
    for size in ("steps", "rounds", "policy", "model", "corpus", "retriever", "targets"):
        assert ssp[size] == sesa[size]
    assert ssp["replay"] == sesa["replay"]
    differing = {name for name in ssp["game"] if ssp["game"][name] != sesa["game"][name]}
    assert differing == {"challenger_reward", "invalid_reward"}


def test_both_check_a_question_as_ssp_does():
    game = resolve(method("ssp")).game
    assert game.validators == ("format", "length", "leak", "information", "searches", "repeated_query", "rag")
    assert (game.min_searches, game.min_question_words, game.max_question_chars) == (2, 10, 1000)
    assert (game.checks.answerer, game.checks.noise) == ("solver", 4)


def test_overrides_reach_a_method():
    assert resolve(method("sesa"), ["steps=4"]).steps == 4
