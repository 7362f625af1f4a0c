import os
import pickle
import subprocess
import sys

import gymnasium as gym
import pytest
from gymnasium.spaces import Dict, Discrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from sesa_env.errors import InvalidInput
from sesa_env.spaces import UnicodeText

TEXT = "Zürich 東京 🚀 \ud83d"


class Echo(gym.Env):
    """Gives back what it was told; observations hold text and a number."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self):
        self.observation_space = Dict({"text": UnicodeText(1000), "turn": Discrete(100)})
        self.action_space = UnicodeText(1000)
        self.turn = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return {"text": f"Zürich 東京 🚀 {self.np_random.integers(100)}", "turn": 0}, {}

    def step(self, action):
        self.turn += 1
        return {"text": action, "turn": self.turn}, 0.0, False, False, {}


def test_it_contains_any_text_up_to_its_length():
    space = UnicodeText(13)
    assert TEXT in space
    assert "" in space
    assert "x" * 14 not in space
    assert 3 not in space
    assert None not in space
    assert b"x" not in space


def test_samples_are_inside_and_follow_the_seed():
    space, twin = UnicodeText(20, seed=7), UnicodeText(20, seed=7)
    samples = [space.sample() for _ in range(200)]
    assert samples == [twin.sample() for _ in range(200)]
    assert all(sample in space for sample in samples)
    assert len(set(samples)) > 100
    assert {len(sample) for sample in samples} >= {0, 20}
    space.seed(7)
    assert space.sample() == samples[0]


def test_samples_do_not_depend_on_the_hash_seed():
    code = "from sesa_env.spaces import UnicodeText; print(ascii(UnicodeText(60, seed=7).sample()))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {ascii(UnicodeText(60, seed=7).sample()) + "\n"}


def test_equality_hash_and_repr_are_by_length():
    assert UnicodeText(5) == UnicodeText(5, seed=3)
    assert UnicodeText(5) != UnicodeText(6)
    assert UnicodeText(5) != Discrete(5)
    assert len({UnicodeText(5), UnicodeText(5)}) == 1
    assert repr(UnicodeText(5)) == "UnicodeText(max_length=5)"


def test_it_survives_pickling_and_json():
    space = UnicodeText(50, seed=1)
    space.sample()
    copy = pickle.loads(pickle.dumps(space))
    assert copy == space
    assert copy.sample() == space.sample()
    assert space.from_jsonable(space.to_jsonable([TEXT, ""])) == [TEXT, ""]


@pytest.mark.parametrize("max_length", [0, -1, 1.5, True, "9"])
def test_a_length_below_one_is_refused(max_length):
    with pytest.raises(InvalidInput, match="max_length must be a whole number of at least 1"):
        UnicodeText(max_length)


def test_masks_are_refused():
    with pytest.raises(InvalidInput, match="no mask"):
        UnicodeText(5).sample(mask=[1])


@pytest.mark.filterwarnings("error")
def test_gymnasium_accepts_an_environment_of_texts():
    env = Echo()
    env.metadata = {"render_modes": [], "render_fps": 1}
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize("make", [SyncVectorEnv, lambda envs: AsyncVectorEnv(envs, shared_memory=False)])
def test_texts_come_through_vector_environments_unharmed(make):
    envs = make([Echo, Echo])
    first, _ = envs.reset(seed=3)
    second, *_ = envs.step([TEXT, ""])
    envs.close()
    assert [text[:12] for text in first["text"]] == ["Zürich 東京 🚀 "] * 2
    assert second["text"] == (TEXT, "")
    assert second["turn"].tolist() == [1, 1]


def test_shared_memory_fails_with_an_error_instead_of_garbage():
    with pytest.raises(ValueError, match="shared_memory=True"):
        AsyncVectorEnv([Echo, Echo], shared_memory=True)
