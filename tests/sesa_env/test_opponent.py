import json
import pickle
import warnings

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import sesa_env  # noqa: F401  (registers the environments)
from sesa_env.envs.opponents import FirstPassageSolver, ScriptedOpponent, TemplateChallenger, open_opponent
from sesa_env.errors import CheckUnavailable, InvalidInput, OutOfTurn, SearchUnavailable, UnknownName
from sesa_env.registry import OPPONENTS, RETRIEVERS, VALIDATORS
from sesa_env.types import View

ID = "SESA-Search-v0"
NILE = {"target": {"answer": "Nile", "hops": 1}}
SEARCH = "<search>river floods Egypt</search>"
POSED = "<question>Which river floods the fields of all Egypt?</question>"
RIGHT = "<answer>the Nile</answer>"


class Down:
    """A search tool that is never there."""

    fingerprint = "down"

    def search(self, queries, k):
        raise SearchUnavailable("the service does not answer")

    def close(self):
        pass


class Says:
    """Writes one text for every seat, and remembers what it was shown."""

    def __init__(self, text="<answer>Nile</answer>"):
        self.text, self.views = text, []

    def act(self, views):
        self.views += views
        return [self.text for _ in views]


def out_of_order(proposal, settings):
    raise CheckUnavailable("nobody can check now")


RETRIEVERS.register("down in the opponent tests", lambda corpus, index: Down())
VALIDATORS.register("out of order in the opponent tests", out_of_order)
OPPONENTS.register("says in the opponent tests", Says)


@pytest.fixture
def make(world):
    """Make the bare environment over the small world, for a role."""

    def make(role, **arguments):
        arguments = {"corpus": world["corpus"], "settings": {"attempts": 2}, **arguments}
        return gym.make(ID, role=role, **arguments).unwrapped

    return make


@pytest.mark.parametrize("role", ["solver", "challenger"])
def test_the_official_checker_is_content_and_silent(make, role):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(role))


def test_a_solver_is_asked_by_the_opponent_and_plays_every_attempt(make):
    env = make("solver")
    observation, info = env.reset(seed=0, options=NILE)
    assert observation["question"].startswith("Which name completes this: The ___ is the river that floods")
    assert (observation["role"], observation["seat"], observation["target"], observation["hops"]) == (1, 1, "", 0)
    assert (info["seat"], info["phase"], info["action"]) == ("solver_0", "solve", "")
    stepped = [env.step(text) for text in (SEARCH, RIGHT, "<answer>Rhine</answer>")]
    assert [step[0]["seat"] for step in stepped] == [1, 2, 2]
    assert [step[1] for step in stepped] == [0.0, 1.0, 0.0]
    assert [step[2] for step in stepped] == [False, False, True]
    assert stepped[-1][4]["rewards"] == {"challenger_0": 1.0, "solver_0": 1.0, "solver_1": 0.0}


def test_a_challenger_is_paid_in_the_step_in_which_it_poses(make):
    env = make("challenger", opponent=Says())
    observation, info = env.reset(seed=0, options=NILE)
    assert (observation["role"], observation["target"], info["seat"]) == (0, "Nile", "challenger_0")
    env.step(SEARCH)
    observation, reward, terminated, truncated, info = env.step(POSED)
    assert (reward, terminated, truncated) == (-0.5, True, False)  # both solvers were right
    assert (info["seat"], info["action"], info["solve_rate"]) == ("challenger_0", "question", 1.0)
    assert (observation["role"], observation["question"]) == (0, "")
    with pytest.raises(OutOfTurn, match="the round is over"):
        env.step(SEARCH)


def test_a_refused_question_costs_the_challenger_and_no_solver_plays(make):
    opponent = Says()
    env = make("challenger", opponent=opponent)
    env.reset(seed=0, options=NILE)
    _, reward, terminated, _, info = env.step(POSED)
    assert (reward, terminated, info["rejection"], opponent.views) == (-0.5, True, "information", [])


def test_all_solvers_of_the_opponent_are_asked_in_one_call(make):
    sizes = []

    class Counting(Says):
        def act(self, views):
            sizes.append([view.seat for view in views])
            return super().act(views)

    env = make("challenger", opponent=Counting(), settings={"attempts": 4})
    env.reset(seed=0, options=NILE)
    env.step(SEARCH)
    env.step(POSED)
    assert sizes == [[f"solver_{number}" for number in range(4)]]


def test_the_opponent_sees_only_what_its_seat_may_see(make):
    opponent = Says("<answer>Rhine</answer>")
    env = make("challenger", opponent=opponent, settings={"attempts": 2, "validators": ["format"]})
    env.reset(options={"target": {"answer": "ZX81-ANSWER", "hops": 1, "aliases": ["ZX81-ALIAS"]}})
    env.step("<think>ZX81-THOUGHT</think><search>ZX81-QUERY</search>")
    env.step(POSED)
    assert len(opponent.views) == 2
    assert "ZX81" not in repr(opponent.views)


@pytest.mark.parametrize("role", ["solver", "challenger"])
def test_the_learner_never_sees_what_the_opponent_did(make, role):
    env = make(role, opponent=ScriptedOpponent())
    returned = [env.reset(seed=2)]
    for text in (SEARCH, "hello", "hello", "hello", "hello", "hello"):
        if env.game.phase != "settled":
            returned.append(env.step(text))
    other = "challenger_0" if role == "solver" else "solver_0"
    if other in env.game.seats:
        for turn in env.game.trajectory(other).turns:
            assert turn.text not in repr(returned)


def test_seeds_fix_rounds_against_an_opponent(make):
    def questions(seed):
        env = make("solver")
        return [env.reset(seed=seed)[0]["question"]] + [env.reset()[0]["question"] for _ in range(5)]

    assert questions(3) == questions(3)
    assert len(set(questions(3))) > 1


def test_an_opponent_that_never_poses_well_is_reported(make):
    env = make("solver", opponent=Says("<question>Why?</question>"))
    with pytest.raises(InvalidInput, match="50 refused in a row, the last by"):
        env.reset(seed=0)
    with pytest.raises(InvalidInput, match="a valid question about the target"):
        env.reset(options=NILE)


def test_a_failing_search_tool_is_no_question(make):
    with pytest.raises(SearchUnavailable, match="the rounds were void: search_unavailable"):
        make("solver", retriever="down in the opponent tests").reset(seed=0)


def test_a_check_that_cannot_be_made_is_no_question(make):
    with pytest.raises(CheckUnavailable, match="the rounds were void: out of order in the opponent tests_unavailable"):
        make("solver", settings={"attempts": 2, "validators": ["out of order in the opponent tests"]}).reset(seed=0)


def test_a_failed_reset_leaves_the_round_before_it(make):
    env = make("solver")
    env.reset(seed=0, options=NILE)
    with pytest.raises(InvalidInput, match="a valid question about the target"):
        env.reset(options={"target": {"answer": "of", "hops": 1}})
    assert env.step(RIGHT)[1] == 1.0


@pytest.mark.parametrize("texts", [[], ["a", "b", "c"], [None, None], ["x" * 70_000] * 2])
def test_an_opponent_that_breaks_its_promise_is_named(make, texts):
    class Broken:
        def act(self, views):
            return texts

    env = make("challenger", opponent=Broken())
    env.reset(seed=0, options=NILE)
    env.step(SEARCH)
    with pytest.raises(InvalidInput, match="the opponent"):
        env.step(POSED)


# Names, paths and objects


def test_an_opponent_is_named_or_found_at_a_path_or_given():
    assert isinstance(open_opponent("scripted"), ScriptedOpponent)
    assert isinstance(open_opponent("sesa_env.envs.opponents:FirstPassageSolver"), FirstPassageSolver)
    assert open_opponent("says in the opponent tests", {"text": "hello"}).text == "hello"
    says = Says()
    assert open_opponent(says) is says


@pytest.mark.parametrize(
    ("opponent", "options", "error", "message"),
    [
        ("grandmaster", None, UnknownName, r"no opponent named 'grandmaster'; known: .*scripted"),
        ("no_such_module:make", None, UnknownName, "no opponent at 'no_such_module:make'"),
        ("sesa_env.envs.opponents:make", None, UnknownName, "has no attribute 'make'"),
        ("sesa_env.types:Target", {"answer": "a", "hops": 1}, InvalidInput, r"a method act\(views\), got Target"),
        (3, None, InvalidInput, "got 3"),
        (Says(), {"text": "x"}, InvalidInput, "opponent_options must be empty"),
    ],
)
def test_what_is_no_opponent_is_refused(opponent, options, error, message):
    with pytest.raises(error, match=message):
        open_opponent(opponent, options)


def test_bad_arguments_are_refused(make):
    with pytest.raises(InvalidInput, match="role must be 'challenger', 'solver' or None, got 'judge'"):
        make("judge")
    for arguments in ({"opponent": "scripted"}, {"opponent_options": {}}):
        with pytest.raises(InvalidInput, match="opponent must be None unless a role is given"):
            make(None, **arguments)


def test_the_spec_with_an_opponent_is_json_and_makes_an_equal_environment(make):
    env = make("solver", opponent="says in the opponent tests", opponent_options={"text": POSED})
    kwargs = json.loads(env.spec.to_json())["kwargs"]
    assert (kwargs["role"], kwargs["opponent_options"]) == ("solver", {"text": POSED})
    env = make("solver", opponent="sesa_env.envs.opponents:TemplateChallenger")
    copy = gym.make(EnvSpec.from_json(env.spec.to_json())).unwrapped
    assert copy.reset(seed=1) == env.reset(seed=1)


@pytest.mark.parametrize("role", ["solver", "challenger"])
def test_it_can_be_pickled_and_restored_amid_a_round(make, role):
    env, restored = make(role), make(role)
    env.reset(seed=1)
    env.step(SEARCH)
    copy = pickle.loads(pickle.dumps(env))
    restored.set_state(json.loads(json.dumps(env.get_state())))
    for text in (POSED if role == "challenger" else RIGHT, "hello"):
        if env.game.phase != "settled":
            stepped = env.step(text)
            assert copy.step(text) == stepped
            assert restored.step(text) == stepped
    began = env.reset()
    assert copy.reset() == began
    assert restored.reset() == began


def test_a_state_of_another_role_is_refused(make):
    env = make("solver")
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="with role 'challenger', got 'solver'"):
        make("challenger").set_state(env.get_state())


# The scripted ones


def view(role, **parts):
    return View(episode="e", role=role, seat=f"{role}_0", **{"turn": 0, "turns_left": 5, **parts})


def test_the_first_passage_names_the_answer():
    solver = FirstPassageSolver()
    found = "\n<information>Doc 1(Title: Kestrel (film)) A film.\nDoc 2(Title: Isk) A river.</information>\n\n"
    views = [
        view("solver", question="Which film?"),
        view("solver", question="Which film?", turn=1, observation=found),
        view("solver", question="Which film?", turn=1, observation="\n<information>No results.</information>\n\n"),
        view("solver", question="Which film?", turns_left=1),
    ]
    assert solver.act(views) == [
        "<search>Which film?</search>",
        "<answer>Kestrel</answer>",
        "<answer>unknown</answer>",
        "<answer>unknown</answer>",
    ]


def test_the_template_blanks_the_target_out():
    found = (
        "\n<information>Doc 1(Title: Isk) The Isk is long. The Isk flows through Tarrow and Obern.</information>\n\n"
    )
    views = [view("challenger", target="Isk"), view("challenger", target="Isk", turn=1, observation=found)]
    assert TemplateChallenger().act(views) == [
        "<search>Isk</search>",
        "<question>Which name completes this: The ___ is long. The ___ flows through Tarrow and Obern.</question>",
    ]


def test_the_scripted_opponent_plays_both_roles():
    views = [view("solver", question="Which?"), view("challenger", target="Isk")]
    assert ScriptedOpponent().act(views) == ["<search>Which?</search>", "<search>Isk</search>"]


def test_on_the_embedded_encyclopedia_the_scripted_opponent_poses_and_solves():
    env = gym.make(ID, role="solver").unwrapped
    solver, rewards = FirstPassageSolver(), []
    for seed in range(10):
        env.reset(seed=seed)
        done = False
        while not done:
            _, reward, done, _, _ = env.step(*solver.act([env.game.view(env.game.active[0])]))
        rewards.append(reward)
    assert 0.0 < sum(rewards) / len(rewards) < 1.0  # neither trivial nor hopeless
