import json

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium_env

import sesa_env  # noqa: F401  (registers the environments)
from sesa_env.adapters.candidates import content_words, find_candidates, read_results
from sesa_env.adapters.sb3 import SLOTS, UNKNOWN, TemplateActions
from sesa_env.adapters.sb3_challenger import MAX_HOPS, WAYS, ChoiceActions, Composer
from sesa_env.corpora import load_atlas
from sesa_env.errors import InvalidInput, OutOfTurn, SearchUnavailable
from sesa_env.game import GameSettings
from sesa_env.text import render_passages
from sesa_env.types import Passage

MARKER = "Zzyxmarker"


def seat(world, **settings):
    return TemplateActions(gymnasium.make("SESA-Solve-v0", settings=settings, disable_env_checker=True, **world))


@pytest.fixture
def env(world):
    return seat(world)


def with_answers(world, tmp_path, answer):
    """The same questions, all of them answered by another word."""
    path = tmp_path / f"{answer}.jsonl"
    with open(world["questions"], encoding="utf-8") as file:
        rows = [{**json.loads(line), "answers": [answer]} for line in file]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {**world, "questions": str(path)}


# Reading


def test_names_and_numbers_are_read_with_where_they_stood():
    results = [
        ("Orla Press (firm)", "Orla Press is a firm. It was founded by Tam Venn in 1931. It has 1,204 books."),
        ("Obern", "Obern is a town."),
    ]
    text = render_passages([Passage(id=t, title=t, text=p) for t, p in results], max_chars=400)
    found = find_candidates("Who founded Orla Press?", read_results(f"\n<information>{text}</information>"), limit=9)
    assert [c.name for c in found] == ["Orla Press", "Tam Venn", "1931", "1,204", "Obern"]
    press, founder, year, number, town = found
    assert press.in_question
    assert press.is_title
    assert not founder.in_question
    assert (founder.overlap, founder.nearness) == (1.0, 0.5)
    assert year.is_year
    assert number.is_number
    assert not number.is_year
    assert (number.overlap, town.rank, town.is_title) == (0.0, 1, True)


def test_a_name_may_have_small_words_within_and_a_sentence_may_begin_with_any_word():
    found = find_candidates("Of The House of Tarrow and Winter in Obern, which came out first?", [], limit=9)
    assert [c.name for c in found] == ["The House of Tarrow", "Winter in Obern"]


def test_content_words_are_neither_names_nor_grammar():
    assert content_words("Which river runs past the city of Tarrow?") == ["river", "runs", "past", "city"]


@pytest.mark.parametrize("observation", ["", "\n<information>No results.</information>\n", "Doc 1(Title: no end", "?!"])
def test_odd_observations_are_read_without_a_failure(observation):
    find_candidates(observation, read_results(observation), limit=5)


def test_the_focus_marks_what_stands_beside_it():
    results = read_results("Doc 1(Title: Isk) The Isk runs past Obern.\nDoc 2(Title: Neland) Neland has Tarrow.")
    found = {c.name: c for c in find_candidates("Where is Obern?", results, limit=9, focus="Obern")}
    assert found["Isk"].beside_focus
    assert not found["Tarrow"].beside_focus


# The solver's seat


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_checkers_of_both_libraries_accept_the_solvers_seat(env):
    sb3_check = pytest.importorskip("stable_baselines3.common.env_checker").check_env
    sb3_check(env)
    check_gymnasium_env(env, skip_render_check=True)


def test_actions_write_searches_and_answers(env):
    env.reset(seed=0, options={"question_id": "q2"})  # Which river runs past Basel?
    assert env.text(0) == "<search>Basel</search>"
    assert env.text(SLOTS) == "<search>Basel river runs past</search>"
    assert env.text(2 * SLOTS) == "<answer>Basel</answer>"
    assert env.text(1) == ""
    assert env.text(3 * SLOTS) == "<search>Which river runs past Basel?</search>"
    assert env.text(3 * SLOTS + 1) == f"<answer>{UNKNOWN}</answer>"


def test_masks_name_exactly_the_actions_that_write_something(env):
    env.reset(seed=0)
    for action, allowed in enumerate(env.action_masks()):
        assert bool(env.text(action)) == allowed


def test_a_search_and_the_right_name_earn_the_reward(env):
    env.reset(seed=0, options={"question_id": "q2"})
    _, reward, terminated, _, _ = env.step(np.int64(SLOTS))
    assert (reward, terminated) == (0.0, False)
    place = [candidate.name for candidate in env.candidates].index("Rhine")
    _, reward, terminated, truncated, _ = env.step(np.int64(2 * SLOTS + place))
    assert (reward, terminated, truncated) == (1.0, True, False)


def test_an_observation_says_what_was_searched(env):
    first, _ = env.reset(seed=0, options={"question_id": "q2"})
    second, *_ = env.step(np.int64(0))
    assert first.dtype == np.float32
    assert first.shape == env.observation_space.shape == second.shape
    assert not np.array_equal(first, second)
    assert second in env.observation_space


def play(env, seed):
    """Everything a learner is given in five rounds of random actions, without the outcome."""
    rng = np.random.default_rng(seed)
    given = []
    seen, info = env.reset(seed=seed)
    for _ in range(5):
        done = False
        while not done:
            given.append((seen.tolist(), dict(info)))
            seen, _, terminated, truncated, info = env.step(rng.integers(env.action_space.n))
            done = terminated or truncated
        given.append((seen.tolist(), {k: v for k, v in info.items() if k not in ("rewards", "solve_rate")}))
        seen, info = env.reset()
    return given


def test_equal_seeds_give_equal_rounds_and_others_do_not(world):
    assert play(seat(world), 3) == play(seat(world), 3)
    assert play(seat(world), 3) != play(seat(world), 4)


def test_the_gold_answer_reaches_neither_observation_nor_info(world, tmp_path):
    marked = play(seat(with_answers(world, tmp_path, MARKER)), 5)
    assert marked == play(seat(with_answers(world, tmp_path, "Another")), 5)
    assert MARKER not in repr(marked)


def test_an_outage_is_an_error_and_no_lost_reward(world, monkeypatch):
    env = seat(world)
    env.reset(seed=0, options={"question_id": "q2"})

    class Broken:
        def search(self, queries, k):
            raise SearchUnavailable("down")

    monkeypatch.setattr(env.unwrapped, "_retriever", Broken())
    with pytest.raises(SearchUnavailable, match="nothing to learn"):
        env.step(np.int64(0))


def test_wrong_arguments_are_refused(env, world):
    env.reset(seed=0)
    for action in (-1, 3 * SLOTS + 2):
        with pytest.raises(InvalidInput, match="action"):
            env.step(np.int64(action))
    with pytest.raises(InvalidInput, match="slots"):
        TemplateActions(env.unwrapped, slots=0)
    with pytest.raises(InvalidInput, match="question"):
        TemplateActions(env)


# The challenger's seat


def knows(view, posed, rng):
    """Answer at once."""
    return f"<answer>{posed.stops[-1]}</answer>"


def test_checkers_of_both_libraries_accept_the_challengers_seat():
    env = ChoiceActions(knows, settings={"attempts": 2})
    pytest.importorskip("stable_baselines3.common.env_checker").check_env(env)
    check_gymnasium_env(env, skip_render_check=True)


def test_composed_questions_are_those_of_the_encyclopedia():
    atlas = load_atlas("atlas:1")
    composer = Composer(atlas)
    asked = {question.text: question for question in atlas.all_questions}
    shared = 0
    for entity in atlas.entities:
        for hops in (1, 2):
            for way in range(WAYS):
                posed = composer.compose(entity, hops=hops, way=way)
                if posed and posed.text in asked:
                    shared += 1
                    assert posed.target.answer in asked[posed.text].answers
                    assert asked[posed.text].hops == hops
                    assert (len(posed.queries), len(posed.stops)) == (hops, hops)
    assert shared > 100


def rounds(env, n):
    rng = np.random.default_rng(0)
    env.reset(seed=1)
    outcomes = []
    for _ in range(n):
        seen, reward, terminated, truncated, info = env.step(rng.integers(env.choices))
        outcomes.append((seen.tolist(), reward, info))
        assert terminated
        assert not truncated
        env.reset()
    return outcomes


def test_a_challenger_is_paid_by_the_solve_rate():
    penalty = GameSettings().penalty
    for _, reward, info in rounds(ChoiceActions(knows, settings={"attempts": 2}), 20):
        assert info["solve_rate"] in (None, 1.0)
        assert reward == -penalty  # solved always, or refused

    def sometimes(view, posed, rng):
        return knows(view, posed, rng) if view.seat == "solver_0" else "<answer>nobody</answer>"

    paid = [reward for _, reward, info in rounds(ChoiceActions(sometimes, settings={"attempts": 2}), 20)]
    assert paid.count(1.0) > 10


def test_equal_seeds_give_equal_rounds_of_a_challenger():
    def lucky(view, posed, rng):
        return knows(view, posed, rng) if rng.random() < 0.5 else "<answer>nobody</answer>"

    def play(seed):
        env = ChoiceActions(lucky, settings={"attempts": 3})
        env.reset(seed=seed)
        return [env.step(np.int64(7))[1:], env.reset()[0].tolist(), env.step(np.int64(8))[1:]]

    assert play(0) == play(0)
    assert play(0) != play(1)


def test_the_seat_of_a_challenger_refuses_what_it_cannot_play(world):
    with pytest.raises(InvalidInput, match="Atlas"):
        ChoiceActions(knows, corpus=world["corpus"])
    with pytest.raises(InvalidInput, match="challenger_turns"):
        ChoiceActions(knows, settings={"challenger_turns": 1, "validators": ["format"]})
    env = ChoiceActions(knows, settings={"attempts": 2})
    with pytest.raises(OutOfTurn):
        env.step(np.int64(0))
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="action"):
        env.step(np.int64(4 * MAX_HOPS * WAYS))
    env.step(np.int64(0))
    with pytest.raises(OutOfTurn):
        env.step(np.int64(0))
