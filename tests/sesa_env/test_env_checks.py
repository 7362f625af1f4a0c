"""Checks that remember, in every face of the environment: each environment has a chain of its own."""

import json
import pickle

import gymnasium
import pytest

from sesa_env.adapters import pettingzoo
from sesa_env.errors import SettingsError

QUESTION = "<question>Which river floods the fields of Upper Egypt?</question>"
OTHER = "<question>Which lake is drained by a stream without a name?</question>"
RULES = {"attempts": 2, "validators": ["format", "near_duplicate"]}
NILE = {"target": {"answer": "Nile", "hops": 1}}


def make(**arguments):
    return gymnasium.make("SESA-Search-v0", **{"settings": RULES, **arguments}).unwrapped


def posed(env, text=QUESTION, **reset):
    """Begin a round, pose, and return the rejection; "" when the solvers may try."""
    env.reset(options=NILE, **reset)
    *_, info = env.step(text)
    return info.get("rejection", "")


def test_an_environment_remembers_its_own_questions():
    env, other = make(), make()
    assert [posed(env), posed(env), posed(env, OTHER), posed(other)] == ["", "near_duplicate", "", ""]


def test_a_seed_makes_it_forget_so_that_equal_seeds_give_equal_rounds():
    env = make()
    assert [posed(env, seed=3), posed(env), posed(env, seed=3), posed(env)] == ["", "near_duplicate"] * 2


def test_what_is_remembered_is_part_of_the_state():
    env, later = make(), make()
    posed(env)
    later.set_state(json.loads(json.dumps(env.get_state())))
    assert posed(later) == "near_duplicate"
    assert later.get_state()["validators"]["counts"]["near_duplicate"] == [2, 1]
    copy = pickle.loads(pickle.dumps(env))
    assert posed(copy) == "near_duplicate"


def test_a_state_in_the_middle_of_a_round_is_checked_with_what_was_remembered():
    env, later = make(), make()
    posed(env)
    env.reset(options=NILE)
    later.set_state(json.loads(json.dumps(env.get_state())))
    *_, info = later.step(QUESTION)
    assert info["rejection"] == "near_duplicate"


def test_slots_of_a_vector_environment_do_not_share_their_memory():
    envs = gymnasium.make_vec("SESA-Search-v0", num_envs=2, settings=RULES)
    envs.reset(options=NILE)
    *_, infos = envs.step([QUESTION, QUESTION])
    assert "rejection" not in infos
    envs.step(["<answer>x</answer>"] * 2)
    envs.step(["<answer>x</answer>"] * 2)
    envs.reset(options=NILE)
    *_, infos = envs.step([QUESTION, OTHER])
    assert infos["rejection"].tolist() == ["near_duplicate", None]
    assert infos["_rejection"].tolist() == [True, False]


@pytest.mark.parametrize("make_env", [pettingzoo.raw_env, pettingzoo.parallel_env])
def test_the_faces_for_several_agents_remember_too(make_env):
    env = make_env(settings=RULES)
    rejections = []
    for _ in range(2):
        env.reset(options=NILE)
        env.step(QUESTION if make_env is pettingzoo.raw_env else {"challenger_0": QUESTION})
        game = env._table.game
        rejections.append(game.result.rejection if game.phase == "settled" else "")
    assert rejections == ["", "near_duplicate"]


def test_a_question_is_verified_by_an_answerer_that_the_settings_name():
    env = make(settings={"attempts": 2, "validators": ["rag"], "checks": {"answerer": "title"}}, corpus="atlas")
    env.reset(seed=0)
    env.step("<search>river</search>")
    *_, info = env.step("<question>xyzzy</question>")
    assert (info["rejection"], info["rewards"]) == ("rag", {"challenger_0": -0.5})


def test_the_solver_of_a_training_run_is_not_to_be_had_in_an_environment():
    env = make(settings={"validators": ["rag"]})
    with pytest.raises(SettingsError, match="others: atlas, chat, title"):
        env.reset(seed=0)


def test_an_opponent_that_repeats_itself_is_given_another_target():
    arguments = {"role": "solver", "opponent": "scripted"}
    shares = {"attempts": 2, "validators": ["format", "target_share"], "checks": {"target_share": 0.01}}
    env = gymnasium.make("SESA-Search-v0", settings=shares, **arguments).unwrapped
    asked = set()
    env.reset(seed=0)
    for _ in range(8):
        asked.add(env.game._target.answer)
        env.reset()
    assert len(asked) == 8


def test_targets_come_from_a_file_with_examples_and_without_the_answers_of_tests(tmp_path):
    answers, tests = tmp_path / "answers.jsonl", tmp_path / "tests.jsonl"
    rows = [{"answer": "Nile", "hops": 2, "examples": ["Who dug <search>it</search>?", "Which?"]}, {"answer": "Rhine"}]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tests.write_text(json.dumps({"id": "t", "question": "Which river?", "answers": ["the Rhine"]}) + "\n")
    rules = {**RULES, "checks": {"test_questions": [str(tests)]}}
    env = make(targets=f"answers:{answers}", settings=rules)
    for seed in range(6):
        observation, _ = env.reset(seed=seed)
        assert (observation["target"], observation["hops"]) == ("Nile", 2)
        assert observation["examples"] == "Who dug (search)it(/search)?\nWhich?"
        assert observation in env.observation_space


def test_the_option_target_takes_examples():
    env = make()
    observation, _ = env.reset(options={"target": {"answer": "Nile", "examples": ["Which river?"]}})
    assert observation["examples"] == "Which river?"
    (*_,) = env.step(QUESTION)
    assert env.game.view("solver_0").examples == ()
