import json
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

import sesa_env  # noqa: F401  (registers the environments)
from sesa_env.envs.vector import SearchVectorEnv, SolveVectorEnv, _batched
from sesa_env.errors import InvalidInput, OutOfTurn, SettingsError
from sesa_env.registry import RETRIEVERS

SLOTS = 4
SEARCH = "<search>river floods Egypt</search>"
POSED = "<question>Which river floods the fields of all Egypt?</question>"
TEXTS = [SEARCH, POSED, "<answer>the Nile</answer>", "<answer>Rhine</answer>", "hello", "<search>Basel</search>"]
VARIANTS = [
    ("SESA-Search-v0", {}),
    ("SESA-Search-v0", {"role": "solver"}),
    ("SESA-Search-v0", {"role": "challenger"}),
    ("SESA-Solve-v0", {"settings": {"solver_turns": 2}}),
]


@pytest.fixture
def make(world):
    """Make a vector environment over the small world: ours, or Gymnasium's over the same arguments."""

    def make(id, *, reference=False, mode=None, slots=SLOTS, **arguments):
        arguments = {"corpus": world["corpus"], "settings": {"attempts": 2, "max_invalid": 1}, **arguments}
        if id == "SESA-Solve-v0":
            arguments["questions"] = world["questions"]
        autoreset = {"autoreset_mode": mode} if mode else {}
        if reference:
            return gym.make_vec(id, slots, vectorization_mode="sync", vector_kwargs=autoreset, **arguments)
        return gym.make_vec(id, slots, **autoreset, **arguments)

    return make


def assert_equal(one, other):
    """Equal in every key, type and value."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, tuple | list):
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert_equal(one.tolist(), other.tolist())
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


def episodes(envs, *, steps, seed=7):
    """Everything that random texts bring, finished slots reset by mask where autoreset is disabled."""
    rng = np.random.default_rng(seed)
    returned = [envs.reset(seed=seed)]
    for _ in range(steps):
        returned.append(envs.step(tuple(rng.choice(TEXTS, size=envs.num_envs).tolist())))
        over = returned[-1][2] | returned[-1][3]
        if envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED and over.any():
            returned.append(envs.reset(options={"reset_mask": over}))
    returned.append(envs.reset())
    return returned


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("id", "arguments"), VARIANTS)
def test_it_returns_what_the_reference_returns(make, id, arguments, mode):
    ours, reference = make(id, mode=mode, **arguments), make(id, mode=mode, reference=True, **arguments)
    assert ours.metadata == reference.metadata
    assert ours.observation_space == reference.observation_space
    assert ours.action_space == reference.action_space
    assert ours.single_observation_space == reference.single_observation_space
    returned = episodes(ours, steps=40)
    for mine, theirs in zip(returned, episodes(reference, steps=40), strict=True):
        assert_equal(mine, theirs)
    assert sum((step[2] | step[3]).sum() for step in returned if len(step) == 5) > 2 * SLOTS  # several episodes ended
    assert all(step[0] in ours.observation_space for step in returned)
    assert ours.np_random_seed == reference.np_random_seed
    assert_equal(ours.render(), reference.render())


def test_infos_are_batched_as_gymnasium_batches_them(make):
    infos = {
        3: {"text": "x", "number": 3, "share": 0.5, "flag": True, "final_obs": {"a": 1}, "list": [1, 2]},
        1: {"array": np.arange(2), "scalar": np.float32(2), "rewards": {"solver_0": 1.0}, "none": None, "share": 0.25},
        2: {"rewards": {"solver_1": 0.0, "deep": {"x": 1}}, "none": "not", "number": 4, "array": np.ones(2, dtype=int)},
    }
    envs, expected = make("SESA-Solve-v0", reference=True), {}
    for slot, info in infos.items():
        expected = envs._add_info(expected, info, slot)
    assert_equal(_batched(infos, slots=SLOTS), expected)


def test_next_step_mode_ignores_the_action_after_the_end(make):
    envs = make("SESA-Solve-v0")
    envs.reset(seed=[1, 2, 3, 4])
    texts = ["<answer>Elbe</answer>"] * SLOTS
    assert envs.step(texts)[2].all()
    _, rewards, terminated, truncated, infos = envs.step([None] * SLOTS)
    assert (rewards.tolist(), terminated.any(), truncated.any()) == ([0.0] * SLOTS, False, False)
    assert infos["action"].tolist() == [""] * SLOTS
    assert envs.step(texts)[2].all()


def test_disabled_mode_refuses_to_step_what_is_over_and_steps_nothing(make):
    envs = make("SESA-Solve-v0", mode="Disabled")
    envs.reset(seed=0)
    envs.step(["<answer>Elbe</answer>", *[SEARCH] * 3])
    before = envs.call("get_state")
    with pytest.raises(OutOfTurn, match="the round is over"):
        envs.step([SEARCH] * SLOTS)
    assert envs.call("get_state") == before


def test_one_search_serves_all_slots_and_one_call_asks_all_opponents(world):
    calls, views = [], []

    class Counting:
        fingerprint = "counting"

        def __init__(self, corpus, index):
            self.inner = RETRIEVERS.make("bm25", corpus=corpus)

        def search(self, queries, k):
            calls.append(len(queries))
            return self.inner.search(queries, k)

        def close(self):
            pass

    class Opponent:
        def act(self, asked):
            views.append([view.episode for view in asked])
            return ["<answer>Nile</answer>" for _ in asked]

    RETRIEVERS.register("counting in the vector tests", Counting)
    envs = SearchVectorEnv(
        64,
        corpus=world["corpus"],
        retriever="counting in the vector tests",
        role="challenger",
        opponent=Opponent(),
        settings={"attempts": 2, "validators": ["format"]},
    )
    envs.reset(seed=0)
    envs.step([SEARCH] * 64)
    assert (calls, views) == ([64], [])
    envs.step([POSED] * 64)
    assert calls == [64]
    assert [len(asked) for asked in views] == [128]
    assert len(set(views[0])) == 128  # no two attempts that are played side by side have one name


def test_seeds_belong_to_slots(make):
    one, listed = make("SESA-Search-v0"), make("SESA-Search-v0")
    assert_equal(one.reset(seed=5), listed.reset(seed=[5, 6, 7, 8]))
    alone = gym.make("SESA-Search-v0", corpus=one.envs[0]._corpus).unwrapped
    for slot in range(SLOTS):
        assert one.reset(seed=5)[0]["target"][slot] == alone.reset(seed=5 + slot)[0]["target"]
    assert_equal(one.reset(), one.__class__.reset(listed))  # unseeded, both go on
    assert one.reset(seed=np.int64(5))[0]["target"] == listed.reset(seed=5)[0]["target"]


@pytest.mark.parametrize("seed", [[1], [1, 2, 3, 4, 5]])
def test_seeds_that_do_not_fit_are_refused(make, seed):
    with pytest.raises(InvalidInput, match="one for each of 4 slots"):
        make("SESA-Search-v0").reset(seed=seed)


@pytest.mark.parametrize(
    "mask", [[True] * SLOTS, np.ones(SLOTS), np.ones(SLOTS + 1, dtype=bool), np.zeros(SLOTS, dtype=bool)]
)
def test_masks_that_do_not_fit_are_refused(make, mask):
    envs = make("SESA-Search-v0")
    envs.reset(seed=0)
    with pytest.raises(InvalidInput, match="reset_mask must be a boolean array of 4, not all False"):
        envs.reset(options={"reset_mask": mask})


def test_a_mask_leaves_the_other_slots_alone_and_the_options_unchanged(make):
    envs = make("SESA-Search-v0", mode="Disabled")
    mask = np.array([True, False, False, True])
    with pytest.raises(InvalidInput, match=r"the slots that were never reset, \[1, 2\]"):
        envs.reset(options={"reset_mask": mask})
    envs.reset(seed=0)
    envs.step([SEARCH] * SLOTS)
    options = {"reset_mask": mask, "target": {"answer": "Nile", "hops": 2}}
    observations, infos = envs.reset(options=options)
    assert observations["turns_left"].tolist() == [5, 4, 4, 5]
    assert (observations["target"][0], observations["hops"].tolist()[::3]) == ("Nile", [2, 2])
    assert infos["_seat"].tolist() == [True, False, False, True]
    assert options["reset_mask"] is mask


@pytest.mark.parametrize("actions", [[SEARCH], [SEARCH] * 5, SEARCH * SLOTS, [SEARCH, SEARCH, SEARCH, None]])
def test_actions_that_do_not_fit_are_refused_and_no_turn_is_taken(make, actions):
    envs = make("SESA-Search-v0")
    envs.reset(seed=0)
    with pytest.raises(InvalidInput, match="action"):
        envs.step(actions)
    assert envs.step(["hello"] * SLOTS)[0]["turns_left"].tolist() == [4] * SLOTS


def test_a_vector_that_was_never_reset_cannot_step(make):
    with pytest.raises(OutOfTurn, match="call reset first"):
        make("SESA-Search-v0").step([SEARCH] * SLOTS)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_envs": 0}, InvalidInput, "num_envs must be a whole number from 1 up, got 0"),
        ({"num_envs": True}, InvalidInput, "num_envs"),
        ({"autoreset_mode": "Never"}, InvalidInput, r"autoreset_mode must be one of \['NextStep', .*'Never'"),
        ({"render_mode": "human"}, InvalidInput, "render_mode must be 'ansi' or None"),
        ({"settings": {"group": 1}}, SettingsError, "unknown game settings"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        SearchVectorEnv(**{"num_envs": 2, **arguments})
    with pytest.raises(error, match=message):
        SolveVectorEnv(**{"num_envs": 2, **arguments})


def test_what_was_returned_is_never_changed_later(make):
    envs = make("SESA-Solve-v0")
    first = envs.reset(seed=0)
    kept = pickle.dumps(first)
    stepped = envs.step([SEARCH] * SLOTS)
    kept_step = pickle.dumps(stepped)
    envs.step(["<answer>Elbe</answer>"] * SLOTS)
    envs.step([SEARCH] * SLOTS)
    assert_equal(pickle.loads(kept), first)
    assert_equal(pickle.loads(kept_step), stepped)


def test_the_wrappers_of_gymnasium_fit(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = DictInfoToList(RecordEpisodeStatistics(make("SESA-Solve-v0", mode="SameStep")))
    envs.reset(seed=0)
    infos = envs.step(["<answer>Elbe</answer>", SEARCH, SEARCH, SEARCH])[4]
    assert infos[0]["final_info"]["end_reason"] == "answered"
    assert infos[0]["episode"]["l"] == 1
    assert "final_info" not in infos[1]


def test_the_spec_is_json_and_makes_an_equal_vector(make):
    envs = make("SESA-Search-v0", mode="SameStep", role="solver")
    copy = gym.make_vec(EnvSpec.from_json(envs.spec.to_json()))
    assert json.loads(envs.spec.to_json())["kwargs"]["num_envs"] == SLOTS
    assert copy.metadata == envs.metadata
    assert_equal(copy.reset(seed=3), envs.reset(seed=3))


def test_attributes_and_methods_of_the_slots_are_at_hand(make):
    envs = make("SESA-Search-v0", render_mode="ansi")
    envs.reset(seed=0)
    assert envs.get_attr("role") == (None,) * SLOTS
    assert len({repr(generator) for generator in envs.np_random}) == SLOTS
    assert all(text.startswith("challenger_0 is to ask for") for text in envs.render())
    assert [state["seat"] for state in envs.call("get_state")] == ["challenger_0"] * SLOTS
    envs.close()
    envs.close()
