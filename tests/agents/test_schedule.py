"""Step sizes of a run, by hand."""

import math

import pytest

from agents.schedule import lr_factor
from sesa_env.errors import InvalidInput


def factors(schedule, *, warmup, total, until):
    return [lr_factor(schedule, number=number, warmup=warmup, total=total) for number in range(1, until + 1)]


def test_a_constant_schedule_only_warms_up():
    assert factors("constant", warmup=4, total=None, until=6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert factors("constant", warmup=0, total=None, until=2) == [1.0, 1.0]


def test_a_linear_schedule_falls_to_its_last_share_and_stays_there():
    assert factors("linear", warmup=1, total=5, until=6) == [1.0, 1.0, 0.75, 0.5, 0.25, 0.25]


def test_a_cosine_schedule_is_slow_at_both_ends():
    expected = [(1 - math.cos(math.pi * left)) / 2 for left in (1.0, 0.75, 0.5, 0.25)]
    assert factors("cosine", warmup=0, total=4, until=4) == pytest.approx(expected)
    assert expected[0] == 1.0
    assert expected[2] == pytest.approx(0.5)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 3, 50])
def test_every_update_moves_and_none_more_than_the_full_step(schedule, warmup):
    assert all(0 < factor <= 1 for factor in factors(schedule, warmup=warmup, total=10, until=60))


def test_a_decay_needs_an_end_and_a_schedule_a_name():
    with pytest.raises(InvalidInput, match="total must be given with schedule 'linear'"):
        lr_factor("linear", number=1, warmup=0, total=None)
    with pytest.raises(InvalidInput, match="schedule must be one of"):
        lr_factor("steps", number=1, warmup=0, total=None)
