"""Settings: presets under overrides, unknown keys refused with the known ones, a file that gives back what went in."""

import pytest

from agents.config import Settings, load_settings, resolve, save_settings
from sesa_env.errors import InvalidInput, SettingsError, UnknownName


def test_overrides_win_over_the_preset_and_the_preset_over_the_defaults():
    settings = resolve({"steps": 3, "game": {"attempts": 4}}, ["game.attempts=6", "memory.k=1"])
    assert (settings.steps, settings.game.attempts, settings.memory.k) == (3, 6, 1)
    assert settings.rounds == Settings().rounds


def test_lists_become_tuples():
    assert resolve({}, ["game.validators=[format,leak]"]).game.validators == ("format", "leak")


def test_nothing_given_is_the_defaults():
    assert resolve({}) == Settings()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("stepz=3", "unknown setting 'stepz'; known: method, seed, steps"),
        ("game.attempt=3", "unknown setting 'game.attempt'; known: attempts"),
        ("steps=many", "setting 'steps'"),
        ("steps", "key=value"),
        ("steps=-1", "steps must be at least 0, got -1"),
        ("seed=-1", "seed must be at least 0, got -1"),
        ("rounds=1", "rounds must be at least 2"),
        ("steps=[1", "must be YAML"),
        ("solver.lr=.inf", "lr must be finite and not negative"),
        ("challenger.baseline=group", "challenger.baseline must be"),
        ("solver.lr=-1", "lr must be finite and not negative"),
        ("solver.baseline=none", "scale must be 'none' with baseline 'none'"),
        ("model.train=half", "train must be one of"),
        ("model.attention=flash", "attention must be one of"),
        ("guard.max_fall=2", "guard.max_fall must lie in"),
        ("guard.patience=-1", "guard.patience must be finite and not negative"),
        ("resample=-1", "resample must be at least 0"),
        ("proposals=0", "proposals must be a divisor of rounds, 8, got 0"),
        ("proposals=3", "proposals must be a divisor of rounds, 8, got 3"),
        ("model.dtype=int8", "dtype must be"),
        ("game.checks.noisy=1", "unknown setting 'game.checks.noisy'; known: similarity"),
        ("game.checks.noise=-1", "checks.noise must be at least 0"),
        ("replay.capacity=-1", "replay.capacity must be a whole number"),
        ("game.challenger_turns=1", "challenger_turns must be at least 2"),
        ("model.solver_temperature=0.7", "solver.temperature must equal"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(override, says):
    with pytest.raises(SettingsError, match=says):
        resolve({}, [override])


def test_a_challenger_is_compared_with_itself_where_a_target_is_posed_more_than_once():
    assert resolve({}, ["proposals=4", "challenger.baseline=group"]).challenger.baseline == "group"
    with pytest.raises(SettingsError, match="proposals must be 1 with questions"):
        resolve({}, ["proposals=4", "questions=[atlas:2]", "challenger.lr=0"])


def test_a_group_of_one_is_refused():
    with pytest.raises(InvalidInput, match="at least 2"):
        resolve({}, ["game.attempts=1"])


def test_an_unregistered_name_is_refused():
    with pytest.raises(UnknownName, match="frontier"):
        resolve({}, ["game.challenger_reward=fame"])


def test_settings_come_back_from_their_file(tmp_path):
    changes = ["game.invalid_reward=0.0", "seed=7", "game.checks.test_questions=[a.jsonl]", "replay.capacity=0"]
    settings = resolve({"memory": {"kind": "none"}}, changes)
    save_settings(settings, tmp_path / "settings.yaml")
    assert load_settings(tmp_path / "settings.yaml") == settings


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match=r"settings\.yaml"):
        load_settings(tmp_path / "settings.yaml")
