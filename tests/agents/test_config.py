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
        ("solver.lr=.inf", "lr must be positive and finite"),
        ("challenger.baseline=group", "challenger.baseline must be"),
        ("solver.lr=0", "lr must be positive"),
        ("model.dtype=int8", "dtype must be"),
        ("model.solver_temperature=0.7", "solver.temperature must equal"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(override, says):
    with pytest.raises(SettingsError, match=says):
        resolve({}, [override])


def test_a_group_of_one_is_refused():
    with pytest.raises(InvalidInput, match="at least 2"):
        resolve({}, ["game.attempts=1"])


def test_an_unregistered_name_is_refused():
    with pytest.raises(UnknownName, match="frontier"):
        resolve({}, ["game.challenger_reward=fame"])


def test_settings_come_back_from_their_file(tmp_path):
    settings = resolve({"memory": {"kind": "none"}}, ["game.invalid_reward=0.0", "seed=7"])
    save_settings(settings, tmp_path / "settings.yaml")
    assert load_settings(tmp_path / "settings.yaml") == settings


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match=r"settings\.yaml"):
        load_settings(tmp_path / "settings.yaml")
