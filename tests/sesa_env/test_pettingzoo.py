import warnings

import numpy as np
import pettingzoo as library
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from sesa_env.adapters import pettingzoo
from sesa_env.errors import InvalidInput, OutOfTurn
from sesa_env.registry import RETRIEVERS

NILE = {"target": {"answer": "Nile", "hops": 2, "aliases": ["Iteru"]}}
SEARCH = "<search>river floods Egypt</search>"
POSED = "<question>Which river floods the fields of all Egypt?</question>"
RIGHT = "<answer>the Nile</answer>"
WRONG = "<answer>Rhine</answer>"


@pytest.fixture
def arguments(world):
    return {"corpus": world["corpus"], "settings": {"attempts": 2}}


@pytest.fixture
def aec(arguments):
    return pettingzoo.env(**arguments)


@pytest.fixture
def parallel(arguments):
    return pettingzoo.parallel_env(**arguments)


# PettingZoo's own tests


def test_the_official_aec_test_finds_nothing_but_texts_to_warn_of(aec):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in (
            "Observation is not a NumPy array",
            "Observation space for each agent probably should be",
            "Action space for each agent probably should be",
            "Agents have different observation space sizes",
        ):
            warnings.filterwarnings("ignore", message=message)
        api_test(aec, num_cycles=50)


@pytest.mark.filterwarnings("error")
def test_the_official_parallel_test_passes_without_a_warning(parallel):
    parallel_api_test(parallel, num_cycles=50)
    assert parallel.agents == []


def test_the_official_seed_tests_pass(arguments):
    seed_test(lambda: pettingzoo.env(**arguments), num_cycles=20)
    parallel_seed_test(lambda: pettingzoo.parallel_env(**arguments), num_cycles=20)


def test_both_are_registered_by_name(arguments):
    assert isinstance(library.make("aec", "sesa/search-v0", **arguments).unwrapped, pettingzoo.SearchAEC)
    assert isinstance(library.make("parallel", "sesa/search-v0", **arguments).unwrapped, pettingzoo.SearchParallel)


# One agent at a time


def play(aec, texts):
    """Step through the texts, agents that are over leaving by themselves; return agent, reward and end of each."""
    told = []
    texts = iter(texts)
    for agent in aec.agent_iter():
        _, reward, terminated, truncated, _ = aec.last()
        told.append((agent, reward, terminated))
        assert truncated is False
        if terminated:
            aec.step(None)
        elif (text := next(texts, None)) is None:
            return told
        else:
            aec.step(text)
    return told


def test_agents_act_in_order_and_leave_when_they_are_done(aec):
    aec.reset(seed=0, options=NILE)
    assert play(aec, [SEARCH, POSED, SEARCH, RIGHT, WRONG]) == [
        ("challenger_0", 0.0, False),
        ("challenger_0", 0.0, False),
        ("solver_0", 0.0, False),
        ("solver_0", 0.0, False),
        ("solver_0", 1.0, True),
        ("solver_1", 0.0, False),
        ("challenger_0", 1.0, True),
        ("solver_1", 0.0, True),
    ]
    assert aec.agents == []


def test_a_refused_question_ends_the_round_for_all(aec):
    aec.reset(seed=0, options=NILE)
    told = play(aec, [POSED])
    assert told[1:] == [("challenger_0", -0.5, True), ("solver_0", 0.0, True), ("solver_1", 0.0, True)]


def test_each_role_observes_its_own_part(aec):
    aec.reset(seed=0, options=NILE)
    assert aec.observe("solver_1") == {"question": "", "turns_left": 5, "reply": "", "transcript": ""}
    shown = {"target": "Nile", "hops": 2, "examples": "", "turns_left": 5, "reply": "", "transcript": ""}
    assert aec.observe("challenger_0") == shown
    aec.step(SEARCH)
    assert aec.observe("challenger_0")["reply"].startswith("\n<information>Doc 1(Title: Nile)")
    aec.step(POSED)
    assert aec.observe("solver_1")["question"] == "Which river floods the fields of all Egypt?"
    assert aec.observe("challenger_0")["transcript"].endswith(POSED)


def test_no_solver_observes_or_is_told_the_target_or_what_the_challenger_did(arguments):
    arguments["settings"] = {"attempts": 2, "validators": ["format"]}
    aec = pettingzoo.env(**arguments)
    aec.reset(options={"target": {"answer": "ZX81-ANSWER", "hops": 1, "aliases": ["ZX81-ALIAS"]}})
    aec.step("<think>ZX81-THOUGHT</think><search>ZX81-QUERY</search>")
    assert "ZX81" in repr(aec.observe("challenger_0"))
    aec.step(POSED)
    for text in (SEARCH, WRONG):
        assert "ZX81" not in repr([aec.observe("solver_0"), aec.observe("solver_1"), aec.infos["solver_0"]])
        aec.step(text)


def test_infos_tell_who_acts_and_how_it_ended(aec):
    aec.reset(seed=0, options=NILE)
    assert [aec.infos[agent]["acts"] for agent in aec.agents] == [True, False, False]
    aec.step("hello")
    assert (aec.infos["challenger_0"]["action"], aec.infos["challenger_0"]["reason"]) == ("invalid", "no_action")
    aec.step(SEARCH)
    aec.step(POSED)
    assert [aec.infos[agent]["acts"] for agent in aec.agents] == [False, True, True]
    aec.step(WRONG)
    aec.step(None)
    aec.step(RIGHT)
    assert aec.infos["challenger_0"]["solve_rate"] == 0.5
    assert aec.infos["solver_1"]["end_reason"] == "answered"


def test_a_bad_action_is_refused_and_no_turn_is_taken(aec):
    aec.reset(seed=0)
    for action in (None, 3, "x" * 70_000):
        with pytest.raises(InvalidInput, match="the action of challenger_0 must be in UnicodeText"):
            aec.step(action)
    aec.step("hello")
    with pytest.raises(InvalidInput, match="role must not be given"):
        pettingzoo.env(role="solver")


def test_seeds_fix_this_and_all_later_rounds(arguments):
    def targets(seed):
        aec = pettingzoo.env(**arguments)
        aec.reset(seed=seed)
        first = aec.observe("challenger_0")["target"]
        for _ in range(5):
            aec.reset()
            first += aec.observe("challenger_0")["target"]
        return first

    assert targets(1) == targets(1)
    assert len({targets(seed) for seed in range(5)}) > 1


def test_it_prints_and_renders_like_the_single_agent_environment(arguments, capsys):
    shown = pettingzoo.env(**arguments, render_mode="human")
    shown.reset(seed=0, options=NILE)
    play(shown, [SEARCH, POSED, RIGHT, WRONG])
    shown.close()
    rendered = pettingzoo.env(**arguments, render_mode="ansi")
    rendered.reset(seed=0, options=NILE)
    play(rendered, [SEARCH, POSED, RIGHT, WRONG])
    assert capsys.readouterr().out == rendered.render()
    assert rendered.render().startswith("challenger_0 is to ask for 'Nile' in 2 hops\n")


# Side by side


def test_solvers_play_side_by_side_and_actions_of_others_do_not_count(parallel):
    observations, infos = parallel.reset(seed=0, options=NILE)
    assert list(observations) == list(infos) == ["challenger_0", "solver_0", "solver_1"]
    parallel.step({"challenger_0": SEARCH, "solver_0": WRONG, "solver_1": "hello"})
    observations, *_ = parallel.step({"challenger_0": POSED})
    assert observations["solver_0"]["turns_left"] == 5
    _, rewards, over, truncated, _ = parallel.step({"solver_0": RIGHT, "solver_1": SEARCH, "challenger_0": "hello"})
    assert rewards == {"challenger_0": 0.0, "solver_0": 1.0, "solver_1": 0.0}
    assert over == {"challenger_0": False, "solver_0": True, "solver_1": False}
    assert not any(truncated.values())
    assert parallel.agents == ["challenger_0", "solver_1"]
    observations, rewards, over, _, infos = parallel.step({"solver_1": WRONG})
    assert (rewards, parallel.agents) == ({"challenger_0": 1.0, "solver_1": 0.0}, [])
    assert (over, infos["challenger_0"]["solve_rate"]) == ({"challenger_0": True, "solver_1": True}, 0.5)
    with pytest.raises(OutOfTurn, match="the round is over"):
        parallel.step({})


@pytest.mark.parametrize("actions", [{}, {"solver_0": SEARCH}, {"challenger_0": SEARCH, "judge_0": SEARCH}])
def test_actions_that_are_missing_or_nobodys_are_refused(parallel, actions):
    with pytest.raises(OutOfTurn, match="call reset first"):
        parallel.step(actions)
    parallel.reset(seed=0)
    with pytest.raises(InvalidInput, match=r"actions must be for \['challenger_0'\]"):
        parallel.step(actions)


def test_no_turn_is_taken_when_one_action_is_bad(parallel):
    parallel.reset(seed=0, options=NILE)
    parallel.step({"challenger_0": SEARCH})
    parallel.step({"challenger_0": POSED})
    with pytest.raises(InvalidInput, match="the action of solver_1"):
        parallel.step({"solver_0": RIGHT, "solver_1": None})
    assert len(parallel.step({"solver_0": RIGHT, "solver_1": WRONG})[1]) == 3


def test_searches_of_all_solvers_go_out_in_one_call(arguments):
    calls = []

    class Counting:
        fingerprint = "counting"

        def search(self, queries, k):
            calls.append(len(queries))
            return [[] for _ in queries]

        def close(self):
            pass

    RETRIEVERS.register("counting in the pettingzoo tests", lambda corpus, index: Counting())
    arguments["settings"] = {"attempts": 4, "validators": ["format"]}
    parallel = pettingzoo.parallel_env(**arguments, retriever="counting in the pettingzoo tests")
    parallel.reset(seed=0)
    parallel.step({"challenger_0": POSED})
    parallel.step(dict.fromkeys(parallel.agents, SEARCH))
    assert calls == [4]


def test_random_play_stays_in_the_spaces_and_pays_what_the_round_says(parallel):
    rng = np.random.default_rng(0)
    texts = [SEARCH, POSED, RIGHT, WRONG, "hello"]
    for seed in range(20):
        observations, _ = parallel.reset(seed=seed)
        paid = dict.fromkeys(parallel.agents, 0.0)
        while parallel.agents:
            observations, rewards, *_ = parallel.step({a: str(rng.choice(texts)) for a in parallel.agents})
            for agent, observation in observations.items():
                assert observation in parallel.observation_space(agent)
                paid[agent] += rewards[agent]
        earned = parallel._table.game.result.rewards
        assert paid == {**dict.fromkeys(paid, 0.0), **earned}


def test_what_is_played_side_by_side_cannot_be_printed(arguments):
    with pytest.raises(InvalidInput, match="render_mode must be 'ansi' or None, got 'human'"):
        pettingzoo.parallel_env(**arguments, render_mode="human")
    shown = pettingzoo.parallel_env(**arguments, render_mode="ansi")
    shown.reset(seed=0, options=NILE)
    assert shown.render() == "challenger_0 is to ask for 'Nile' in 2 hops\n"
    shown.close()
