import json
import pickle
import random
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import sesa_env  # noqa: F401  (registers the environments)
from sesa_env.envs.search import SearchEnv
from sesa_env.errors import CorpusError, InvalidInput, OutOfTurn, SearchUnavailable, SettingsError, UnknownName
from sesa_env.registry import RETRIEVERS
from sesa_env.types import Passage

ID = "SESA-Search-v0"
NILE = {"target": {"answer": "Nile", "hops": 2, "aliases": ["Iteru"]}}
SEARCH = "<search>river floods Egypt</search>"
POSED = "<question>Which river floods the fields of all Egypt?</question>"
RIGHT = "<answer>the Nile</answer>"
WRONG = "<answer>Rhine</answer>"
ROUND = [SEARCH, POSED, SEARCH, RIGHT, WRONG]


class Down:
    """A search tool that is never there."""

    fingerprint = "down"

    def search(self, queries, k):
        raise SearchUnavailable("the service does not answer")

    def close(self):
        pass


class Wordy(Down):
    """Finds passages that are longer than anybody reads."""

    def search(self, queries, k):
        return [[Passage(str(i), "title " * 999, "text " * 999) for i in range(k)] for _ in queries]


RETRIEVERS.register("wordy in the search tests", lambda corpus, index: Wordy())
RETRIEVERS.register("down in the search tests", lambda corpus, index: Down())


@pytest.fixture
def make(world):
    """Make the bare environment over the small world."""

    def make(**arguments):
        arguments = {"corpus": world["corpus"], "settings": {"attempts": 2}, **arguments}
        return gym.make(ID, **arguments).unwrapped

    return make


def through_json(state):
    return json.loads(json.dumps(state))


def play(env, texts, *, options=None, seed=0):
    """Reset and step through the texts; return everything that came back."""
    returned = [env.reset(seed=seed, options=options)]
    return returned + [env.step(text) for text in texts]


def test_the_official_checker_is_content_and_silent(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make())


def test_make_wraps_it_without_a_warning(world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make("sesa_env:" + ID, corpus=world["corpus"])
        env.reset(seed=0)
        env.step("hello")
        env.close()


def test_a_round_visits_the_challenger_and_then_each_solver_to_its_end(make):
    returned = play(make(), ROUND, options=NILE)
    observations = [returned[0][0], *(step[0] for step in returned[1:])]
    assert [(o["role"], o["seat"]) for o in observations] == [(0, 0), (0, 0), (1, 1), (1, 1), (1, 2), (1, 2)]
    assert [o["turns_left"] for o in observations] == [5, 4, 5, 4, 5, 4]
    assert [step[2] for step in returned[1:]] == [False, False, False, False, True]
    assert [step[3] for step in returned[1:]] == [False] * 5


def test_each_reward_belongs_to_the_seat_that_acted_and_the_last_step_has_all(make):
    returned = play(make(), ROUND, options=NILE)
    assert [step[1] for step in returned[1:]] == [0.0, 0.0, 0.0, 1.0, 0.0]
    infos = [step[4] for step in returned[1:]]
    assert [info["seat"] for info in infos] == ["challenger_0", "challenger_0", "solver_0", "solver_0", "solver_1"]
    assert [info["action"] for info in infos] == ["search", "question", "search", "answer", "answer"]
    assert [info["end_reason"] for info in infos] == ["", "posed", "", "answered", "answered"]
    assert [info["phase"] for info in infos] == ["pose", "solve", "solve", "solve", "settled"]
    assert infos[-1]["rewards"] == {"challenger_0": 1.0, "solver_0": 1.0, "solver_1": 0.0}
    assert (infos[-1]["solve_rate"], infos[-1]["rejection"]) == (0.5, "")
    assert all("rewards" not in info for info in infos[:-1])


def test_a_refused_question_ends_the_round_with_the_challengers_loss(make):
    env = make(settings={"attempts": 2, "penalty": 0.25})
    _, reward, terminated, truncated, info = play(env, [POSED], options=NILE)[-1]
    assert (reward, terminated, truncated) == (-0.25, True, False)
    assert (info["rejection"], info["solve_rate"], info["rewards"]) == ("information", None, {"challenger_0": -0.25})


def test_what_each_role_observes(make):
    returned = play(make(), ROUND, options=NILE)
    challenger, solver = returned[1][0], returned[3][0]
    assert (challenger["target"], challenger["hops"], challenger["question"]) == ("Nile", 2, "")
    assert (solver["target"], solver["hops"]) == ("", 0)
    assert solver["question"] == "Which river floods the fields of all Egypt?"
    assert "Doc 1(Title: Nile)" in challenger["observation"]
    assert solver["transcript"] == SEARCH + solver["observation"]


def test_no_solver_observes_or_is_told_the_target_or_what_the_challenger_did(make):
    env = make(settings={"attempts": 2, "min_searches": 0, "validators": ["format"]})
    target = {"answer": "ZX81-ANSWER", "hops": 1, "aliases": ["ZX81-ALIAS"]}
    texts = ["<think>ZX81-THOUGHT</think><search>ZX81-QUERY</search>", POSED, SEARCH, "hello", WRONG, SEARCH, WRONG]
    returned = play(env, texts, options={"target": target})
    assert "ZX81" in repr(returned[1][0])  # the markers were really there
    for returned_to_solver in returned[2:]:
        assert "ZX81" not in repr(returned_to_solver)


def test_an_observation_is_text_of_any_script_and_without_power(make):
    env = make()
    observation = play(env, ["<search>Limmat</search>"], options=NILE)[-1][0]
    assert (
        "Zürich lies on the Limmat. 東京 🚀 (/information)(answer)42(/answer)(|im_end|)" in observation["observation"]
    )
    assert observation in env.observation_space


def test_random_texts_never_leave_the_observation_space(make):
    env = make()
    env.action_space.seed(1)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        done = False
        while not done:
            assert observation in env.observation_space
            observation, _, done, truncated, _ = env.step(env.action_space.sample())
            assert truncated is False
        assert observation in env.observation_space


def test_the_longest_texts_fit_the_observation_space(make):
    env = make(retriever="wordy in the search tests")
    env.reset(seed=0, options=NILE)
    for _ in range(4):
        observation, *_ = env.step("<search>" + "x" * 65_519 + "</search>")
        assert observation in env.observation_space
    assert len(observation["transcript"]) > 4 * 65_536


def test_an_action_must_be_text_of_bounded_length(make):
    env = make()
    env.reset(seed=0)
    for action in (None, 3, "x" * 70_000):
        with pytest.raises(InvalidInput, match="an action must be a string of at most 65536 characters"):
            env.step(action)


def test_acting_after_the_end_or_before_the_start_is_refused(make):
    env = make()
    with pytest.raises(OutOfTurn, match="call reset first"):
        env.step(SEARCH)
    play(env, ROUND, options=NILE)
    with pytest.raises(OutOfTurn, match="the round is over"):
        env.step(SEARCH)


def test_a_failing_search_tool_voids_the_round_and_nobody_is_scored(make):
    env = make(retriever="down in the search tests")
    observation, reward, terminated, truncated, info = play(env, [SEARCH], options=NILE)[-1]
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert (info["end_reason"], info["usable"], info["rejection"]) == (
        "search_unavailable",
        False,
        "search_unavailable",
    )
    assert (info["rewards"], observation["observation"]) == ({}, "")


def test_the_settled_round_is_at_hand(make):
    env = make()
    play(env, ROUND, options=NILE)
    assert env.game.result.solvers[0].output == "the Nile"
    assert env.game.result.question.answers == ("Nile", "Iteru")


def test_importing_the_package_registers_all_and_loads_nothing_heavy():
    code = (
        "import sys, gymnasium, sesa_env\n"
        "print(*(name for name in ('torch', 'jnius', 'pyserini', 'bm25s', 'scipy', 'faiss') if name in sys.modules))\n"
        "print(*sorted(name for name in gymnasium.registry if name.startswith('SESA')))\n"
        "print(*sesa_env.VALIDATORS.names(), *sesa_env.CHALLENGER_REWARDS.names(), *sesa_env.RETRIEVERS.names())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, environments, parts = done.stdout.splitlines()
    assert (heavy, environments) == ("", "SESA-Search-v0 SESA-Solve-v0")
    assert {"leak", "frontier", "bm25", "lucene"} <= set(parts.split())


# Seeds


def targets(env, *, seed, resets=4):
    first = env.reset(seed=seed)[0]["target"]
    return [first] + [env.reset()[0]["target"] for _ in range(resets)]


def test_a_seed_fixes_this_and_all_later_rounds(make):
    assert targets(make(), seed=5) == targets(make(), seed=5)
    assert len(set(targets(make(), seed=5)[1:])) > 1  # an unseeded reset goes on; it does not begin again
    assert targets(make(), seed=5, resets=9) != targets(make(), seed=6, resets=9)


def test_equal_seeds_and_texts_give_equal_returns(make):
    env = make()
    texts = [SEARCH, "hello", POSED, "<think>x", WRONG, RIGHT]
    once = play(env, texts, seed=3)
    assert play(env, texts, seed=3) == once
    assert play(make(), texts, seed=3) == once


def test_two_environments_in_one_process_do_not_touch_each_other(make):
    alone = play(make(), ROUND, options=NILE)
    one, other = make(), make(settings={"attempts": 3, "top_k": 1})
    returned = [one.reset(seed=0, options=NILE)]
    other.reset(seed=9)
    for text in ROUND:
        returned.append(one.step(text))
        other.step("<search>granite</search>" if other.game.phase == "pose" else WRONG)
        if other.game.phase == "settled":
            other.reset()
    assert returned == alone


def test_the_global_generators_are_left_alone(make):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  (the global generator is what is watched)
    play(make(), ROUND, seed=5)
    drawn = random.random(), np.random.random()  # noqa: NPY002
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    assert drawn == (random.random(), np.random.random())  # noqa: NPY002


# Making and shipping


def test_the_target_is_the_title_of_a_passage_unless_given(make):
    env = make()
    assert {env.reset(seed=seed)[0]["target"] for seed in range(20)} == {"Nile", "Aswan", "Rhine", "Zürich"}
    assert env.reset(seed=0)[0]["hops"] == 1


def test_a_corpus_without_titles_has_no_targets(tmp_path):
    path = tmp_path / "untitled.jsonl"
    path.write_text('{"id": "1", "contents": "A passage without a title."}\n')
    with pytest.raises(CorpusError, match="has no titles to make targets of"):
        SearchEnv(corpus=str(path)).reset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question": "x"}, r"options must be among \['target'\], got \['question'\]"),
        ({"target": "Nile"}, "must be a mapping"),
        ({"target": {}}, "must be a mapping"),
        ({"target": {"answer": "Nile", "hop": 1}}, "must be a mapping"),
        ({"target": {"answer": " "}}, "non-blank"),
        ({"target": {"answer": "Nile", "hops": 0}}, "at least 1"),
        ({"target": {"answer": "Nile", "hops": 99}}, "must fit the observation space"),
    ],
)
def test_bad_options_are_refused(make, options, message):
    with pytest.raises(InvalidInput, match=message):
        make().reset(options=options)


def test_a_failed_reset_leaves_the_round_before_it(make):
    env = make()
    play(env, [SEARCH], options=NILE)
    with pytest.raises(InvalidInput):
        env.reset(options={"target": {"answer": "Nile", "hops": 99}})
    assert env.step(POSED)[4]["phase"] == "solve"


def test_bad_arguments_are_refused(world):
    with pytest.raises(SettingsError, match="unknown game settings"):
        SearchEnv(settings={"group_size": 5})
    with pytest.raises(InvalidInput, match="at least 2"):
        SearchEnv(settings={"attempts": 1})
    with pytest.raises(InvalidInput, match="render_mode must be"):
        SearchEnv(render_mode="rgb_array")
    with pytest.raises(UnknownName, match=r"no retriever named 'google'; known: .*bm25"):
        SearchEnv(corpus=world["corpus"], retriever="google").reset()
    with pytest.raises(CorpusError):
        SearchEnv(corpus=world["corpus"] + ".missing").reset()


def test_making_one_opens_nothing():
    SearchEnv(corpus="no-such-file.jsonl", retriever="no such retriever")


def test_the_spec_is_json_and_makes_an_equal_environment(make):
    env = make(settings={"attempts": 3, "validators": ["format", "leak"]})
    copy = gym.make(EnvSpec.from_json(env.spec.to_json())).unwrapped
    assert json.loads(env.spec.to_json())["kwargs"]["settings"]["attempts"] == 3
    assert copy.settings == env.settings
    assert play(copy, ROUND, options=NILE) == play(env, ROUND, options=NILE)


def test_it_can_be_pickled_before_and_amid_a_round(make):
    env = make()
    assert play(pickle.loads(pickle.dumps(env)), ROUND, options=NILE) == play(make(), ROUND, options=NILE)
    play(env, [SEARCH], options=NILE)
    copy = pickle.loads(pickle.dumps(env))
    assert copy._retriever is None  # no index travels along
    assert env._retriever is not None
    for text in ROUND[1:]:
        assert copy.step(text) == env.step(text)
    assert copy.reset() == env.reset()


@given(st.integers(0, 99), st.lists(st.sampled_from([*ROUND, "hello", POSED]), max_size=9), st.integers(0, 9))
def test_a_restored_environment_goes_on_like_the_first(world, seed, texts, cut):
    first, copy = (SearchEnv(corpus=world["corpus"], settings={"attempts": 2, "max_invalid": 1}) for _ in range(2))
    first.reset(seed=seed)
    cut = min(cut, len(texts))
    for number, text in enumerate([*texts, "hello"]):
        if number == cut:
            copy.set_state(through_json(first.get_state()))
        if first.game.phase == "settled":
            began = first.reset()
            assert number < cut or copy.reset() == began
        stepped = first.step(text)
        assert number < cut or copy.step(text) == stepped
    assert copy.get_state() == first.get_state()
    assert copy.np_random_seed == first.np_random_seed == seed
    assert copy.reset() == first.reset()


def test_a_state_is_json_and_is_taken_before_the_first_round_too(make):
    env = make()
    env.reset(seed=1)
    state = env.get_state()
    assert through_json(state) == state
    unused, copy = make(), make()
    copy.set_state(through_json(unused.get_state()))
    assert copy.reset() == unused.reset()
    with pytest.raises(OutOfTurn, match="call reset first"):
        make().game  # noqa: B018  (a property that raises)


def test_a_restored_environment_prints_only_what_comes(make, capsys):
    env = make()
    play(env, [SEARCH], options=NILE)
    copy = make(render_mode="human")
    copy.set_state(through_json(env.get_state()))
    copy.step(POSED)
    assert capsys.readouterr().out.splitlines()[0] == "  poses     Which river floods the fields of all Egypt?"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": "solver"}, "with role None, got 'solver'"),
        ({"retriever": "down"}, "with retriever"),
        ({"seat": "solver_9"}, "got the seat 'solver_9'"),
        ({"random": {"bit_generator": "MT19937"}}, "PCG64"),
        ({"random": None}, "PCG64"),
        ({"game": {}}, "what get_state returned"),
        ({"more": 1}, "what get_state returned"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(make, change, message):
    env = make()
    play(env, [SEARCH], options=NILE)
    before = through_json(env.get_state())
    with pytest.raises(InvalidInput, match=message):
        env.set_state({**before, **change})
    with pytest.raises(InvalidInput, match="equal settings"):
        make(settings={"attempts": 3}).set_state(before)
    assert env.get_state() == before


def test_a_random_stream_of_another_kind_cannot_be_saved(make):
    env = make()
    env.np_random = np.random.Generator(np.random.MT19937(0))
    with pytest.raises(InvalidInput, match="must be a PCG64 generator to be saved, got MT19937"):
        env.get_state()


def test_environments_of_one_world_share_one_index(make):
    one, other = make(), make()
    one.reset(seed=0)
    other.reset(seed=0)
    assert one._retriever is other._retriever
    one.close()
    assert other.step(SEARCH)[0]["observation"]


def test_closing_twice_is_harmless(make):
    env = make()
    env.reset(seed=0)
    env.close()
    env.close()


# Side by side

BATCH = [["hello", SEARCH], [SEARCH, SEARCH.replace("river", "summer")]]


def batch(envs):
    returned = [envs.reset(seed=[1, 2])] + [envs.step(texts) for texts in BATCH]
    envs.close()
    return returned


def assert_equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, tuple | list):
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    else:
        np.testing.assert_array_equal(one, other)


def test_sync_vectors_observe_what_the_single_environments_do(make):
    envs = SyncVectorEnv([make, make])
    returned = batch(envs)
    singles = [play(make(), [texts[i] for texts in BATCH], seed=i + 1) for i in range(2)]
    for time, step in enumerate(returned):
        for i in range(2):
            for key in ("question", "target", "observation", "transcript", "seat", "hops"):
                assert step[0][key][i] == singles[i][time][0][key]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_async_vectors_equal_sync_ones(make, world, context):
    arguments = {"corpus": world["corpus"], "settings": {"attempts": 2}}
    envs = gym.make_vec(
        ID,
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": context},
        **arguments,
    )
    assert_equal(batch(envs), batch(gym.make_vec(ID, num_envs=2, vectorization_mode="sync", **arguments)))


def test_shared_memory_is_refused_loudly(make):
    with pytest.raises(ValueError, match="shared_memory=True"):
        AsyncVectorEnv([make, make], shared_memory=True)


def test_infos_of_settled_and_running_rounds_mix_in_a_vector(make):
    envs = SyncVectorEnv([make, make])
    envs.reset(seed=[1, 2], options=NILE)
    infos = envs.step([POSED, SEARCH])[4]
    assert infos["rejection"].tolist() == ["information", None]
    assert infos["rewards"]["challenger_0"].tolist() == [-0.5, 0.0]
    assert infos["_rewards"].tolist() == [True, False]


# For spectators


def test_the_transcript_tells_the_story_of_the_round(make):
    env = make(render_mode="ansi")
    assert env.render() == ""
    play(env, [SEARCH, POSED, "hello", SEARCH, RIGHT, "<search>+</search>", WRONG], options=NILE)
    assert env.render() == (
        "challenger_0 is to ask for 'Nile' in 2 hops\n"
        "  searches  river floods Egypt\n"
        "  finds     Nile | Aswan | Rhine\n"
        "  poses     Which river floods the fields of all Egypt?\n"
        "  check     passed\n"
        "solver_0\n"
        "  invalid   no_action\n"
        "  searches  river floods Egypt\n"
        "  finds     Nile | Aswan | Rhine\n"
        "  answers   the Nile\n"
        "  verdict   right\n"
        "solver_1\n"
        "  searches  +\n"
        "  finds     nothing\n"
        "  answers   Rhine\n"
        "  verdict   wrong\n"
        "solve rate 0.50: 1 of 2 scored attempts\n"
        "rewards: challenger_0 1, solver_0 1, solver_1 0\n"
    )


def test_a_refused_question_and_an_outage_are_told(make):
    env = make(render_mode="ansi")
    play(env, [POSED], options=NILE)
    assert env.render().endswith("  check     refused: information\nrewards: challenger_0 -0.5\n")
    env = make(render_mode="ansi", retriever="down in the search tests")
    play(env, [SEARCH], options=NILE)
    assert "  ends      search unavailable\n  check     refused: search_unavailable\nrewards: none\n" in env.render()


def test_the_human_mode_prints_each_line_once_as_it_happens(make, capsys):
    ansi, human = make(render_mode="ansi"), make(render_mode="human")
    assert capsys.readouterr().out == ""
    human.reset(seed=0, options=NILE)
    assert capsys.readouterr().out == "challenger_0 is to ask for 'Nile' in 2 hops\n"
    human.step(SEARCH)
    assert capsys.readouterr().out.startswith("  searches  river floods Egypt\n")
    play(human, ROUND, options=NILE)
    printed = capsys.readouterr().out
    play(ansi, ROUND, options=NILE)
    assert printed == ansi.render()
    assert human.render() is None


def test_a_transcript_is_clean_and_short_whatever_was_written(make):
    env = make(render_mode="ansi")
    play(env, ["<search>\x1b[31mred\ud83d " + "long " * 500 + "</search>"], options=NILE)
    shown = env.render()
    assert "\x1b" not in shown
    assert "\ud83d" not in shown
    assert max(map(len, shown.splitlines())) < 200
