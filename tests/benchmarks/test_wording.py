"""In a world with words of its own, one failure teaches the word, and the next question about it is solved."""

from dataclasses import replace

import pytest

from agents.rollout import play
from agents.selfplay import failures
from benchmarks.players import Cast, fill
from benchmarks.wording import RULES, hidden, measure, table
from sesa_env.corpora.atlas import generate
from sesa_env.errors import InvalidInput
from sesa_env.game import Game
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.types import CHALLENGER, SOLVER, Target
from skill_memory import MemorySettings, NoMemory, SkillBank


@pytest.fixture(scope="module")
def rows():
    return [row for world in (1, 3) for row in measure(world, questions=100)]


def test_a_useful_card_comes_of_nine_failures_in_ten(rows):
    assert len(rows) >= 100
    assert sum(row.useful for row in rows) >= 0.9 * len(rows)
    assert sum(bool(row.transfers) for row in rows) >= 0.9 * len(rows)


def test_the_table_counts_the_rows(rows):
    assert f"useful       {len(rows):>4}" in table(rows)
    assert f"{sum(row.useful for row in rows) / len(rows):.3f}" in table(rows).splitlines()[-1]


@pytest.fixture(scope="module")
def world():
    atlas = generate(3, entities=1000, jargon=True)
    return atlas, Bm25Retriever.from_passages(atlas.passages, atlas.fingerprint)


def played(world, questions, memory):
    """Full rounds with a challenger who looks its target up; who solves what depends on the memory alone."""
    atlas, retriever = world
    cast = Cast(atlas, questions)
    games = []
    for question in questions:
        game = Game(RULES, judge=ExactMatchJudge(), id=question.id)
        game.pose(Target(question.answers[0], question.hops, question.answers[1:]))
        games.append(game)
    agents = {CHALLENGER: cast.challenger, SOLVER: cast.solver(memory, wits=0.0, slips=0.0, seed=0)}
    return cast, play(games, agents, retriever)


def test_what_one_failure_taught_solves_the_next_question(world, tmp_path):
    atlas, retriever = world
    gaps = [question for question in hidden(atlas, retriever) if question.hops == 1]
    first, second = [question for question in gaps if atlas.chain(question.id)[0].relation == "setting"][:2]
    cast, (lost,) = played(world, [first], NoMemory())
    (failure,) = failures([lost], {}, step=1)
    assert atlas.page(first.answers[0]) not in failure.trajectory.passages
    assert atlas.page(first.answers[0]) in [replace(passage, score=0.0) for passage in failure.evidence]

    settings = MemorySettings(distil_every=1, min_waiting=1, frontier_only=False, priming=False)
    bank = SkillBank(settings, tmp_path / "bank.sqlite")
    assert bank.offer(failure)
    assert len(bank.consolidate(step=1).admitted) == 1
    (card,) = bank
    assert card.queries == (f"{{name}} {atlas.relations['setting'].gap_cue}",)

    name = cast.ways[first.text][0].name
    for query, finds in ((fill(card.queries[0], name), True), (atlas.natural_queries(first.id)[0], False)):
        titles = {passage.title for passage in retriever.search([query], RULES.top_k)[0]}
        assert (first.answers[0] in titles) is finds

    assert [played(world, [second], memory)[1][0].solve_rate for memory in (NoMemory(), bank)] == [0.0, 1.0]
    assert played(world, [first], bank)[1][0].solve_rate == 0.0  # a question is never shown what it taught
    bank.close()


def test_questions_of_a_cast_must_be_told_apart_by_their_answers(world):
    atlas, _ = world
    question = atlas.all_questions[0]
    with pytest.raises(InvalidInput, match="different answers"):
        Cast(atlas, [question, question])
