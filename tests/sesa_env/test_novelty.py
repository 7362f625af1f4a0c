import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.errors import InvalidInput
from sesa_env.game import GameSettings
from sesa_env.novelty import EvalOverlap, NearDuplicate, TargetShare, hashed_words
from sesa_env.rewards import frontier_reward
from sesa_env.types import Question, Target, Trajectory
from sesa_env.validators import Proposal, ValidatorChain

SETTINGS = GameSettings()
PARAPHRASES = [
    "Which river floods the fields of Upper Egypt?",
    "What is the river that floods Upper Egypt's fields?",
    "The fields of Upper Egypt are flooded by which river?",
    "Upper Egypt has fields flooded by what river?",
    "Name the river flooding the fields in Upper Egypt.",
    "Which river is it that floods the fields in Upper Egypt?",
    "By which river do the fields of Upper Egypt get flooded?",
    "What river's floods cover the fields of Upper Egypt?",
]
DISTINCT = [
    "Which river flows through Basel?",
    "Which river flows through Cologne?",
    "Which city of Egypt has a dam of granite?",
    "Who wrote The Salt Road?",
    "Who founded the company that built the bridge at Obern?",
    "In which year was the author of The Salt Road born?",
    "Which town lies on the river Isk?",
    "Which river floods the plains of Lower Mesopotamia?",
]


def proposal(text="Which river?", target="Nile"):
    return Proposal(
        Target(target, hops=1), Trajectory("r/challenger_0", "challenger_0", (), "posed", output=text), text
    )


def passed(check, proposals):
    """The verdicts of a chain of this one check on proposals that come one after the other."""
    chain = ValidatorChain([check])
    return [chain.check(item, SETTINGS) == "" for item in proposals]


# Near duplicates


def test_eight_paraphrases_earn_less_than_eight_distinct_questions():
    share = TargetShare()
    repeated = passed(NearDuplicate(), [proposal(text) for text in PARAPHRASES])
    distinct = passed(NearDuplicate(), [proposal(text) for text in DISTINCT])
    assert repeated == [True] + [False] * 7
    assert distinct == [True] * 8
    reward = frontier_reward(0.5, penalty=0.5)
    assert sum(reward if good else SETTINGS.rejection_reward for good in repeated) < 0 < reward * sum(distinct)
    assert passed(share, [proposal(text) for text in PARAPHRASES]) == [True] * 8
    assert len(share.counts) == 1  # coverage: one entity


def test_a_repetition_is_found_in_any_script():
    assert passed(NearDuplicate(), [proposal("日本でいちばん高い山の名前は？")] * 2) == [True, False]
    assert passed(NearDuplicate(), [proposal("What is it?"), proposal("Who are they?")]) == [True, True]  # no words


def test_what_was_refused_is_not_remembered_and_old_questions_are_forgotten():
    check = NearDuplicate(recent=1)
    chain = ValidatorChain([check, "leak"])
    leaking = proposal("Which river, the Nile, floods Egypt?")
    assert [chain.check(leaking, SETTINGS) for _ in range(2)] == ["leak", "leak"]
    texts = [PARAPHRASES[0], DISTINCT[3], PARAPHRASES[0]]
    assert [chain.check(proposal(text), SETTINGS) for text in texts] == ["", "", ""]


def test_the_threshold_includes_itself_and_says_what_it_found():
    check = NearDuplicate(threshold=1.0)
    check.accept(proposal(PARAPHRASES[0]))
    assert check(proposal(PARAPHRASES[1]), SETTINGS) == f"similarity 1.00 to {PARAPHRASES[0]!r}"
    assert check(proposal(PARAPHRASES[7]), SETTINGS) == ""  # one word more


def test_an_encoder_of_ones_own_decides():
    check = NearDuplicate(encode=lambda text: np.array([3.0, 0.0]) if "river" in text else np.array([0.0, 2.0]))
    assert passed(check, [proposal(text) for text in DISTINCT[:4]]) == [True, False, True, False]


@given(st.text())
def test_vectors_have_length_one_or_none(text):
    vector_D = hashed_words(text)
    assert np.linalg.norm(vector_D) == pytest.approx(1.0) or not vector_D.any()


@pytest.mark.parametrize("options", [{"threshold": 0.0}, {"threshold": 1.1}, {"threshold": np.nan}, {"recent": 0}])
def test_limits_of_similarity_are_checked(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        NearDuplicate(**options)


# Share of a target


def test_sixty_of_a_hundred_on_one_target_lose_forty():
    rng = np.random.default_rng(0)
    targets = rng.permutation(["Nile"] * 60 + [f"Target {number}" for number in range(40)])
    check = TargetShare(share=0.2, window=100)
    verdicts = passed(check, [proposal(target=str(target)) for target in targets])
    assert verdicts.count(False) == 40
    assert {str(target) for target, good in zip(targets, verdicts, strict=True) if not good} == {"Nile"}
    assert (check.counts["nile"], len(check.counts)) == (20, 41)


def test_a_blocked_target_is_free_again_when_the_window_has_moved_on():
    verdicts = passed(TargetShare(share=0.2, window=10), [proposal()] * 24)
    assert [at for at, good in enumerate(verdicts) if good] == [0, 1, 10, 11, 20, 21]


def test_a_target_is_known_by_its_normalised_name():
    names = ["Nile", "the Nile", "NILE."]
    assert passed(TargetShare(share=0.2, window=10), [proposal(target=name) for name in names]) == [True, True, False]


def test_an_alarm_is_raised(caplog):
    passed(TargetShare(share=0.5, window=2), [proposal()] * 2)
    assert "target 'Nile' has 1 of the last 2 questions" in caplog.text


@pytest.mark.parametrize(
    "options", [{"share": 0.0}, {"share": 1.5}, {"share": 0.05, "window": 10}, {"window": 0}, {"window": True}]
)
def test_limits_of_share_are_checked(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        TargetShare(**options)


# Test questions


@pytest.mark.parametrize("text", [PARAPHRASES[0].upper(), "which river floods fields of upper egypt"])
def test_a_test_question_is_refused_up_to_case_and_punctuation(text):
    check = EvalOverlap([Question("q", PARAPHRASES[0], ("Nile",)), DISTINCT[0]])
    assert ValidatorChain([check]).check(proposal(text), SETTINGS) == "eval_overlap"
    assert PARAPHRASES[0] in check(proposal(text), SETTINGS)
    assert check(proposal(DISTINCT[1]), SETTINGS) == ""


@pytest.mark.parametrize("questions", [[], ["..."]])
def test_a_blocklist_that_blocks_nothing_is_refused(questions):
    with pytest.raises(InvalidInput, match="at least one question"):
        EvalOverlap(questions)
