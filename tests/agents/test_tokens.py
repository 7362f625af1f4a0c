import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.tokens import TokenSequence, TokenTrajectory, repetition
from sesa_env.errors import InvalidInput

ids = st.lists(st.integers(0, 99), max_size=6)


def attempt(*parts, **labels):
    """Build a trajectory from ("P" | "A", ids) parts; written tokens get log-probability -1."""
    sequence = TokenSequence()
    for producer, tokens in parts:
        if producer == "A":
            sequence.append_written(tokens, [-1.0] * len(tokens))
        else:
            sequence.append_context(tokens)
    return sequence.freeze(episode="e", **labels)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("context"), ids),
            st.tuples(st.just("written"), ids),
            st.tuples(st.just("cut"), st.floats(0, 1)),
        ),
        max_size=12,
    )
)
def test_ids_mask_and_logps_stay_together_through_any_history(operations):  # trap C4
    sequence, expected = TokenSequence(), []
    for kind, value in operations:
        if kind == "cut":
            length = int(value * len(sequence))
            sequence.truncate(length)
            del expected[length:]
        elif kind == "context":
            sequence.append_context(value)
            expected += [(token, False, 0.0) for token in value]
        else:
            sequence.append_written(value, [-token / 10 for token in value])
            expected += [(token, True, -token / 10) for token in value]
        assert len(sequence) == len(sequence.token_T) == len(sequence.written_T) == len(sequence.logp_T)
    trajectory = sequence.freeze(episode="e")
    assert list(zip(trajectory.token_T, trajectory.written_T, trajectory.logp_T, strict=True)) == expected
    assert not any(trajectory.written_T[: trajectory.prompt_length])
    assert trajectory.prompt_length == len(trajectory) or trajectory.written_T[trajectory.prompt_length]


def test_the_mask_says_who_wrote_a_token_whatever_the_token_is():  # traps C5, C12
    assistant_marker = [7, 8]
    trajectory = attempt(
        ("P", [7, 8, 1]), ("A", [2, 3, 4, 5]), ("P", [*assistant_marker, 6, *assistant_marker]), ("A", [7, 8])
    )
    assert trajectory.written_T == (False,) * 3 + (True,) * 4 + (False,) * 5 + (True,) * 2
    assert trajectory.prompt_length == 3
    assert trajectory.written_count == 6


def test_sampled_ids_are_kept_even_where_their_text_has_a_shorter_spelling():  # trap C1
    pieces = {11: "sea", 12: "rch", 13: "search"}
    trajectory = attempt(("P", [1]), ("A", [11, 12]))
    assert "".join(pieces[token] for token in trajectory.token_T[1:]) == pieces[13]
    assert trajectory.token_T == (1, 11, 12)


def test_a_record_does_not_change_with_what_it_was_made_from():  # trap C6
    prompt, written, logps = [1, 2], [3], [-0.5]
    sequence = TokenSequence()
    sequence.append_context(prompt)
    sequence.append_written(written, logps)
    trajectory = sequence.freeze(episode="e", skill_ids=["s1"], snapshot_id="b7", truncated=True)
    prompt.clear()
    written[0] = logps[0] = 9
    sequence.append_context([5])
    sequence.truncate(1)
    assert trajectory == TokenTrajectory("e", (1, 2, 3), (False, False, True), (0.0, 0.0, -0.5), 2, ("s1",), "b7", True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trajectory.token_T = ()


@pytest.mark.parametrize(
    ("tokens", "logps", "message"),
    [
        ([1, 2], [-0.1], "one entry for each of the 2 tokens, got 1"),
        ([1], [float("nan")], "finite and at most 0, got nan"),
        ([1], [float("-inf")], "got -inf"),
        ([1, 2], [-0.1, 0.5], "got 0.5"),
        ([-100], [-0.1], "must not be negative, got -100"),
    ],
)
def test_refused_tokens_leave_the_sequence_as_it_was(tokens, logps, message):
    sequence = TokenSequence()
    sequence.append_context([4])
    with pytest.raises(InvalidInput, match=message):
        sequence.append_written(tokens, logps)
    assert (sequence.token_T, sequence.written_T, sequence.logp_T) == ((4,), (False,), (0.0,))


@pytest.mark.parametrize("length", [-1, 3])
def test_truncating_outside_the_sequence_is_refused(length):
    sequence = TokenSequence()
    sequence.append_context([1, 2])
    with pytest.raises(InvalidInput, match=r"\[0, 2\]"):
        sequence.truncate(length)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logp_T": (0.0,)}, "equally long"),
        ({"prompt_length": 2}, "must be 1"),
        ({"logp_T": (-1.0, -1.0)}, "0.0 where nothing was written"),
        ({"logp_T": (0.0, float("nan"))}, "finite"),
    ],
)
def test_a_trajectory_that_contradicts_itself_is_refused(change, message):
    good = attempt(("P", [1]), ("A", [2]))
    with pytest.raises(InvalidInput, match=message):
        dataclasses.replace(good, **change)


def test_repetition_counts_what_the_policy_wrote_and_nothing_else():  # trap D17
    assert repetition(attempt(("P", [0]), ("A", [1, 2, 3, 4] * 50))) > 0.9
    passage = ("P", [50, 51, 52, 53, 54, 55])
    unique = attempt(("P", [0]), ("A", range(10)), passage, ("A", range(10, 20)), passage, ("A", range(20, 30)))
    assert repetition(unique) == 0.0
    same_query_twice = attempt(("P", [0]), ("A", range(8)), passage, ("A", range(8)))
    assert repetition(same_query_twice) == 0.5


def test_no_ngram_straddles_an_observation():
    assert repetition(attempt(("P", [0]), ("A", [1, 1]), ("P", [9]), ("A", [1, 1])), size=3) == 0.0
    assert repetition(attempt(("P", [0]), ("A", [1, 1, 1, 1])), size=3) == 0.5
    assert repetition(attempt(("P", [1, 1, 1, 1]))) == 0.0
    with pytest.raises(InvalidInput, match="at least 1, got 0"):
        repetition(attempt(("P", [0])), size=0)
