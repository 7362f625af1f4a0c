"""Scripted agents prove the plumbing: the oracle is always right, the template poses valid questions."""

import pytest

from agents.rollout import play
from agents.scripted import Oracle, RandomAgent, TemplateChallenger
from sesa_env.corpora import load_passages
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.types import Question, Target

QUESTIONS = [
    Question("q1", "Who wrote The Salt Road?", ("Orla Venn",), supporting_titles=("The Salt Road",)),
    Question("q2", "In which country was its author born?", ("Neland",), supporting_titles=("Orla Venn", "Tarrow")),
]


@pytest.fixture(scope="module")
def library(corpus_file):
    return open_retriever(str(corpus_file), retriever="bm25", index=None)


def oracle():
    return Oracle({q.text: q.answers[0] for q in QUESTIONS}, {q.text: q.supporting_titles for q in QUESTIONS})


def test_the_oracle_is_right_every_time_and_sees_the_gold_passages(library):
    games = []
    for question in QUESTIONS:
        game = Game(GameSettings(), judge=ExactMatchJudge(), id=question.id)
        game.ask(question, attempts=1)
        games.append(game)
    for question, round_ in zip(QUESTIONS, play(games, {"solver": oracle()}, library), strict=True):
        assert round_.solve_rate == 1.0
        assert set(question.supporting_titles) <= {passage.title for passage in round_.solvers[0].passages}


def test_the_oracle_refuses_a_question_it_was_not_told(library):
    game = Game(GameSettings(), judge=ExactMatchJudge())
    game.ask(Question("q3", "Who?", ("x",)))
    with pytest.raises(InvalidInput, match="Who"):
        play([game], {"solver": oracle()}, library)


def test_the_template_challenger_poses_valid_questions(library, corpus_file):
    titles = [passage.title for passage in load_passages(str(corpus_file))[0]]
    games = []
    for number, title in enumerate(titles):
        game = Game(GameSettings(attempts=2), judge=ExactMatchJudge(), id=f"r{number}")
        game.pose(Target(title, hops=1))
        games.append(game)
    rounds = play(games, {"challenger": TemplateChallenger(), "solver": RandomAgent(seed=0)}, library)
    assert [round_.rejection for round_ in rounds] == [""] * len(titles)


def test_random_agents_of_equal_seeds_play_equally(library):
    def round_of(seed):
        game = Game(GameSettings(attempts=2), judge=ExactMatchJudge())
        game.ask(QUESTIONS[0])
        return play([game], {"solver": RandomAgent(seed)}, library)[0]

    assert round_of(3) == round_of(3)
    assert round_of(3) != round_of(4)
