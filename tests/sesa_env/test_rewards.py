import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.errors import InvalidInput
from sesa_env.game import GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.registry import CHALLENGER_REWARDS
from sesa_env.rewards import containment, exact_match, f1, frontier_reward, one_minus_p
from sesa_env.types import Question

words = st.lists(st.sampled_from(["Nile", "the", "a", "U.S.", "1,5", "東京", "-", "Marie", "marie!", " "]), max_size=5)
texts = words.map(" ".join) | st.text(max_size=12)


@pytest.mark.parametrize("prediction", ["", "  ", "...", None])
def test_an_empty_prediction_earns_nothing(prediction):
    assert exact_match(prediction, ["Lake Constance"]) is False
    assert f1(prediction, ["Lake Constance"]) == 0.0
    assert containment(prediction, ["Lake Constance"]) is False


@pytest.mark.parametrize("prediction", ["", None, "..."])
def test_nothing_predicted_does_not_equal_an_answer_without_words(prediction):
    assert exact_match(prediction, ["..."]) is False
    assert f1(prediction, ["..."]) == 0.0
    assert containment(prediction, ["..."]) is False


def test_the_three_measures_differ_on_a_sentence_around_the_answer():
    prediction, answers = "It was Marie Curie in 1903", ["Marie Curie"]
    assert exact_match(prediction, answers) is False
    assert containment(prediction, answers) is True
    assert f1(prediction, answers) == pytest.approx(0.5)  # precision 2/6, recall 2/2


@given(prediction=texts, answers=st.lists(texts, min_size=1, max_size=3))
def test_exact_match_is_never_above_the_other_two(prediction, answers):
    assert exact_match(prediction, answers) <= f1(prediction, answers) <= 1.0
    assert exact_match(prediction, answers) <= containment(prediction, answers)


@given(answer=texts)
def test_an_answer_with_words_matches_itself(answer):
    assert exact_match(answer, [answer]) is (f1(answer, [answer]) == 1.0)


def test_the_best_of_all_answers_counts():
    answers = ["JFK", "John F. Kennedy"]
    assert exact_match("John F Kennedy", answers) is True
    assert f1("Kennedy", answers) == f1("Kennedy", answers[::-1]) == pytest.approx(0.5)


def test_a_bare_string_is_one_answer_and_an_array_is_many():
    assert exact_match("P", "Paris") is False
    assert exact_match("paris", "Paris") is True
    assert exact_match("Paris", np.array(["Oslo", "Paris"])) is True


def test_f1_of_a_script_without_spaces_counts_characters():
    assert f1("東京都", ["東京"]) == pytest.approx(0.8)


def test_repeated_words_are_matched_once():
    assert f1("Rome Rome Rome", ["Rome"]) == pytest.approx(0.5)


@pytest.mark.parametrize("answers", [[], [None], [3]])
def test_answers_must_be_strings(answers):
    with pytest.raises(InvalidInput, match="answers must be a non-empty sequence of strings"):
        exact_match("x", answers)


def test_the_exact_judge_pays_one_or_zero():
    question = Question("q", "Which river?", ("Nile", "the White Nile"))
    assert ExactMatchJudge().judge(question, "The Nile.") == 1.0
    assert ExactMatchJudge().judge(question, "Rhine") == 0.0
    assert ExactMatchJudge().judge(question, None) == 0.0


@pytest.mark.parametrize(("solved", "reward"), [(0, -0.3), (1, 0.64), (2, 0.96), (3, 0.96), (4, 0.64), (5, -0.3)])
def test_the_frontier_reward_for_five_attempts(solved, reward):
    assert frontier_reward(solved / 5, penalty=0.3) == pytest.approx(reward)


def test_the_frontier_reward_for_three_of_eight():
    assert frontier_reward(3 / 8, penalty=0.5) == pytest.approx(0.9375)


def test_the_frontier_bounds_shift_the_parabola():
    assert frontier_reward(0.5, penalty=0.0, low=0.1, high=0.9) == pytest.approx(4 * 0.6 * 0.4)


def test_a_penalty_of_zero_is_plain_zero():
    assert math.copysign(1, frontier_reward(1.0, penalty=0.0)) == 1


@given(st.floats(0, 1))
def test_the_frontier_reward_is_symmetric_and_bounded(rate):
    reward = frontier_reward(rate, penalty=1.0)
    assert -1.0 <= reward <= 1.0
    assert reward == pytest.approx(frontier_reward(1 - rate, penalty=1.0)) or min(rate, 1 - rate) < 1e-12


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_solve_rate_out_of_range_is_refused(rate):
    with pytest.raises(InvalidInput, match=r"solve_rate must lie in \[0, 1\]"):
        frontier_reward(rate, penalty=0.5)
    with pytest.raises(InvalidInput, match=r"solve_rate must lie in \[0, 1\]"):
        one_minus_p(rate)


@pytest.mark.parametrize("penalty", [-0.1, math.nan, math.inf])
def test_a_penalty_out_of_range_is_refused(penalty):
    with pytest.raises(InvalidInput, match="penalty must be finite and at least 0"):
        frontier_reward(0.0, penalty=penalty)


@pytest.mark.parametrize(("name", "reward"), [("frontier", 0.75), ("one_minus_solve_rate", 0.75), ("format_only", 1.0)])
def test_challenger_rewards_are_found_by_name(name, reward):
    assert CHALLENGER_REWARDS.get(name)(0.25, GameSettings()) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("name", "rewards"), [("uncertainty", [0.0, 0.5, 1.0, 0.5, 0.0]), ("learnability", [0.0, 0.75, 0.5, 0.25, 0.0])]
)
def test_shaped_rewards_pay_nothing_at_the_ends(name, rewards):
    reward = CHALLENGER_REWARDS.get(name)
    assert [reward(rate, GameSettings()) for rate in (0.0, 0.25, 0.5, 0.75, 1.0)] == rewards
    with pytest.raises(InvalidInput, match=r"solve_rate must lie in \[0, 1\], got nan"):
        reward(math.nan, GameSettings())


def test_the_frontier_reward_by_name_uses_the_settings():
    settings = GameSettings(penalty=0.2, low=0.1, high=0.9)
    assert CHALLENGER_REWARDS.get("frontier")(1.0, settings) == -0.2
    assert CHALLENGER_REWARDS.get("frontier")(0.5, settings) == pytest.approx(0.96)
