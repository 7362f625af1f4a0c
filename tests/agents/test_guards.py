"""Guards: what warns, what stops, and which step was still good.  TRAPS D11, D14, D16, D17."""

import pytest

from agents.guards import Guard, GuardSettings
from sesa_env.errors import SettingsError, TrainingStopped

FINE = {
    "solver/kl": 0.01,
    "solver/entropy": 0.5,
    "solver/repetition": 0.1,
    "solver/logp_gap_mean": 1e-3,
    "challenger/repetition": 0.1,
    "challenger/logp_gap_mean": 1e-3,
    "solver/action/search": 0.6,
    "solver/action/answer": 0.4,
    "solve_rate/mean": 0.4,
    "valid_share": 0.7,
}


def watch(figures, settings=None, start=1):
    """Show a guard one step after the other and return the warnings by step."""
    guard = Guard(settings or GuardSettings())
    warnings = {}
    for step, changed in enumerate(figures, start=start):
        found = guard.watch(step, {**FINE, **changed})
        if found:
            warnings[step] = found
    return warnings


def test_a_good_run_hears_nothing():
    assert watch([{}] * 50) == {}


def test_a_solve_rate_that_falls_to_nothing_stops_the_run_and_names_the_last_good_step():  # trap D16
    fall = [{"solve_rate/mean": rate} for rate in (0.4, 0.42, 0.4, 0.41, 0.4, 0.4, 0.3, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0)]
    with pytest.raises(
        TrainingStopped, match=r"solve_rate/mean is 0 at step 12, .* limit 0.0406 .* last good step is 7"
    ):
        watch(fall)


def test_a_run_that_never_solved_anything_has_nothing_to_fall_from():
    assert watch([{"solve_rate/mean": rate} for rate in (0.03, 0.0, 0.05, 0.02, 0.0) + (0.0,) * 20]) == {}


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("solver/kl", 2.5),
        ("solver/entropy", 0.001),
        ("solver/entropy", 6.5),
        ("challenger/repetition", 0.9),
        ("challenger/logp_gap_mean", 0.2),
        ("solver/action/invalid", 0.99),
    ],
)
def test_each_limit_warns_once_and_stops_when_its_patience_is_over(figure, value):
    bad = {figure: value}
    warnings = watch([{}, bad, bad, bad, {}, bad, {}])
    assert list(warnings) == [2, 6]
    assert figure.replace("invalid", "valid") in warnings[2][0]
    with pytest.raises(TrainingStopped, match="for 5 steps; the last good step is 2"):
        watch([{}, {}] + [bad] * 5)
    assert list(watch([{}] + [bad] * 20, GuardSettings(patience=0))) == [2]


def test_a_figure_that_was_not_measured_neither_helps_nor_harms():
    guard = Guard(GuardSettings(patience=2))
    assert len(guard.watch(1, {"solver/kl": 9.0})) == 1
    assert guard.watch(2, {}) == []
    with pytest.raises(TrainingStopped, match="last good step is 0"):
        guard.watch(3, {"solver/kl": 9.0})


def test_a_limit_of_none_is_no_limit():
    off = GuardSettings(max_kl=None, max_fall=None)
    assert watch([{"solver/kl": 1e9, "solve_rate/mean": rate} for rate in (0.9,) * 5 + (0.0,) * 9], off) == {}


def test_a_guard_that_is_shown_the_past_is_where_the_other_one_was():
    steps = [{"solver/kl": 9.0}] * 4
    first, second = Guard(GuardSettings()), Guard(GuardSettings())
    for step, changed in enumerate(steps, start=1):
        first.watch(step, {**FINE, **changed})
        second.watch(step, {**FINE, **changed})
    for guard in (first, second):
        with pytest.raises(TrainingStopped, match="last good step is 0"):
            guard.watch(5, {**FINE, "solver/kl": 9.0})


@pytest.mark.parametrize(
    ("change", "says"), [({"patience": -1}, "patience"), ({"max_fall": 1.0}, "max_fall"), ({"max_kl": -2.0}, "max_kl")]
)
def test_limits_out_of_range_are_refused(change, says):
    with pytest.raises(SettingsError, match=f"guard.{says} must"):
        GuardSettings(**change)
