import json
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import sesa_env  # noqa: F401  (registers the environments)
from sesa_env.corpora.atlas import generate
from sesa_env.envs.solve import SolveEnv
from sesa_env.envs.world import load_questions, load_targets
from sesa_env.errors import CorpusError, InvalidInput, OutOfTurn, SearchUnavailable
from sesa_env.registry import RETRIEVERS

ID = "SESA-Solve-v0"
Q1 = {"question_id": "q1"}
SEARCH = "<search>river floods Egypt</search>"
RIGHT = "<answer>Nile.</answer>"


class Down:
    """A search tool that is never there."""

    fingerprint = "down"

    def search(self, queries, k):
        raise SearchUnavailable("the service does not answer")

    def close(self):
        pass


RETRIEVERS.register("down in the solve tests", lambda corpus, index: Down())


@pytest.fixture
def make(world):
    """Make the bare environment over the small world."""
    return lambda **arguments: gym.make(ID, **world, **arguments).unwrapped


def play(env, texts, *, options=None, seed=0):
    returned = [env.reset(seed=seed, options=options)]
    return returned + [env.step(text) for text in texts]


def test_the_official_checker_is_content_and_silent(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make())


def test_a_search_and_a_right_answer(make):
    reset, searched, answered = play(make(), [SEARCH, RIGHT], options=Q1)
    assert reset[0] == {
        "turns_left": 5,
        "question": "Which river floods the fields of Egypt?",
        "observation": "",
        "transcript": "",
    }
    assert searched[1:4] == (0.0, False, False)
    assert searched[0]["observation"].startswith("\n<information>Doc 1(Title: Nile) The Nile is the river")
    assert searched[0]["transcript"] == SEARCH + searched[0]["observation"]
    assert searched[0]["turns_left"] == 4
    assert answered[1:4] == (1.0, True, False)
    assert answered[4]["end_reason"] == "answered"
    assert answered[4]["rewards"] == {"solver_0": 1.0}


def test_any_accepted_answer_is_right_and_another_is_wrong(make):
    env = make()
    assert play(env, ["<answer>the Rhein</answer>"], options={"question_id": "q2"})[-1][1] == 1.0
    assert play(env, ["<answer>Elbe</answer>"], options={"question_id": "q2"})[-1][1:4] == (0.0, True, False)


def test_running_out_of_turns_truncates(make):
    env = make(settings={"solver_turns": 2})
    last = play(env, [SEARCH, SEARCH], options=Q1)[-1]
    assert last[1:4] == (0.0, False, True)
    assert last[4]["end_reason"] == "turn_limit"
    with pytest.raises(OutOfTurn, match="the round is over"):
        env.step(RIGHT)


def test_an_answer_at_the_last_turn_terminates(make):
    assert play(make(settings={"solver_turns": 2}), [SEARCH, RIGHT], options=Q1)[-1][1:4] == (1.0, True, False)


def test_invalid_turns_are_corrected_and_too_many_terminate(make):
    env = make(settings={"solver_turns": 9, "max_invalid": 2})
    returned = play(env, ["hello"] * 3, options=Q1)
    assert "No action was found" in returned[1][0]["observation"]
    assert [step[4]["reason"] for step in returned[1:]] == ["no_action"] * 3
    assert returned[-1][1:4] == (0.0, True, False)
    assert returned[-1][4]["end_reason"] == "invalid_actions"


def test_a_failing_search_tool_truncates_an_attempt_that_does_not_count(make):
    last = play(make(retriever="down in the solve tests"), [SEARCH], options=Q1)[-1]
    assert last[1:4] == (0.0, False, True)
    assert (last[4]["usable"], last[4]["rewards"], last[4]["solve_rate"]) == (False, {}, None)
    assert last[0]["observation"] == ""


def test_the_accepted_answers_stand_in_no_observation_and_no_info(make, world, tmp_path):
    path = tmp_path / "marked.jsonl"
    path.write_text(json.dumps({"id": "m", "question": "Which marker?", "answers": ["ZX81-ANSWER", "ZX81-ALIAS"]}))
    env = gym.make(ID, corpus=world["corpus"], questions=str(path)).unwrapped
    returned = play(env, [SEARCH, "hello", "<answer>no</answer>"])
    assert "ZX81" not in repr(returned)
    assert env.game.result.question.answers == ("ZX81-ANSWER", "ZX81-ALIAS")


def test_a_seed_fixes_this_and_all_later_questions(make):
    def questions(seed):
        env = make()
        return [env.reset(seed=seed)[0]["question"]] + [env.reset()[0]["question"] for _ in range(6)]

    assert questions(5) == questions(5)
    assert len(set(questions(5))) > 1


def test_a_question_that_is_not_there_is_refused(make):
    with pytest.raises(InvalidInput, match=r"the option 'question_id' must be an id in .*, got 'q9'"):
        make().reset(options={"question_id": "q9"})
    with pytest.raises(InvalidInput, match=r"options must be among \['question_id'\], got \['target'\]"):
        make().reset(options={"target": {}})


def test_a_missing_question_file_is_named(world):
    with pytest.raises(CorpusError, match="nowhere"):
        SolveEnv(corpus=world["corpus"], questions="nowhere.jsonl").reset()


def test_the_spec_is_json_and_the_environment_can_be_pickled(make):
    env = make(settings={"top_k": 1})
    for copy in (gym.make(EnvSpec.from_json(env.spec.to_json())).unwrapped, pickle.loads(pickle.dumps(env))):
        assert play(copy, [SEARCH, RIGHT], seed=4) == play(env, [SEARCH, RIGHT], seed=4)


def test_a_restored_environment_goes_on_with_the_question(make):
    env, copy = make(), make()
    play(env, [SEARCH], seed=3)
    copy.set_state(json.loads(json.dumps(env.get_state())))
    for text in (SEARCH, RIGHT):
        assert copy.step(text) == env.step(text)
    assert [copy.reset() for _ in range(3)] == [env.reset() for _ in range(3)]


def test_the_transcript_ends_with_the_answer(make):
    env = make(render_mode="ansi")
    play(env, [SEARCH, "<answer>Elbe</answer>"], options=Q1)
    assert env.render() == (
        "the question: Which river floods the fields of Egypt?\n"
        "solver_0\n"
        "  searches  river floods Egypt\n"
        "  finds     Nile | Aswan | Rhine\n"
        "  answers   Elbe\n"
        "  verdict   wrong\n"
        "the answer: Nile\n"
        "solve rate 0.00: 0 of 1 scored attempts\n"
        "rewards: solver_0 0\n"
    )


@pytest.mark.parametrize(
    ("mode", "begun"),
    [
        # The reward of each of four vector steps in which everyone answers at once; a step that only resets pays 0.
        (AutoresetMode.NEXT_STEP, [1.0, 0.0, 1.0, 0.0]),
        (AutoresetMode.SAME_STEP, [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_autoreset_begins_new_questions(make, mode, begun):
    envs = SyncVectorEnv([make, make], autoreset_mode=mode)
    observation, _ = envs.reset(seed=[1, 2])
    answers = {"Which river floods the fields of Egypt?": "Nile", "Which river runs past Basel?": "Rhine"}
    rewards = []
    for _ in range(4):
        texts = [f"<answer>{answers.get(question, 'Aswan')}</answer>" for question in observation["question"]]
        observation, reward, *_ = envs.step(texts)
        rewards.append(reward.tolist())
    assert rewards == [[reward] * 2 for reward in begun]


def test_without_autoreset_finished_environments_are_reset_by_mask(make):
    envs = SyncVectorEnv([make, make], autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=[1, 2], options=Q1)
    _, rewards, terminated, _, _ = envs.step([RIGHT, SEARCH])
    assert rewards.tolist() == [1.0, 0.0]
    observation, _ = envs.reset(options={"reset_mask": np.array(terminated)})
    assert observation["turns_left"].tolist() == [5, 4]


# The embedded encyclopedia


def test_an_oracle_that_searches_with_the_gold_queries_is_always_right():
    atlas = generate(seed=0)
    env = SolveEnv(settings={"solver_turns": 5})
    supported = []
    for question in load_questions("atlas")[:100]:
        observation, _ = env.reset(options={"question_id": question.id})
        assert observation["question"] == question.text
        for query in atlas.gold_queries(question.id):
            observation, *_ = env.step(f"<search>{query}</search>")
        supported += [f"(Title: {title})" in observation["transcript"] for title in question.supporting_titles]
        _, reward, terminated, _, _ = env.step(f"<answer>{question.answers[0]}</answer>")
        assert (reward, terminated) == (1.0, True)
    assert np.mean(supported) > 0.97  # it did not only know the answer: the evidence was found (measured: 0.998)


def test_another_seed_is_another_world():
    atlas = {question.text for question in load_questions("atlas")}
    assert atlas == {question.text for question in load_questions("atlas:0")}
    assert atlas.isdisjoint(question.text for question in load_questions("atlas:2"))
    assert load_targets("atlas:2") != load_targets("atlas")
    with pytest.raises(InvalidInput, match="a whole number from 0 up, got 'atlas:x'"):
        load_questions("atlas:x")
