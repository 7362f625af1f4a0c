"""`sesa mini`: a policy is trained and examined by two commands, in worlds to test on only."""

import json

import pytest

from agents.mini.lessons import Classroom
from agents.mini.train import MiniSettings, train
from benchmarks.mini_challenge import ChallengeRow, challenge
from benchmarks.mini_challenge import table as shares_table
from benchmarks.mini_exam import DISTILLED, IRRELEVANT, NONE, RELEVANT, MiniRow, evaluate_policy, table
from sesa_env.corpora.atlas import generate
from sesa_env.errors import InvalidInput


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    settings = MiniSettings(worlds=1, entities=200, questions=12)
    return train(settings, tmp_path_factory.mktemp("mini") / "run")


@pytest.fixture(scope="module")
def rows(policy):
    return evaluate_policy(policy, worlds=[1], questions=2)


def test_every_family_is_examined_without_skills_and_with_irrelevant_ones(rows):
    asked = {(row.family, row.skills) for row in rows}
    for hops in (1, 2, 3, 4):
        assert {(f"{hops} hop", NONE), (f"{hops} hop", IRRELEVANT)} <= asked
    for family in ("gap, seen", "gap, unseen", "no gap"):
        assert {(family, skills) for skills in (NONE, RELEVANT, DISTILLED, IRRELEVANT)} <= asked
    assert all(row.world == 1 for row in rows)


def test_the_same_questions_are_asked_with_each_kind_of_skills(rows):
    asked = {}
    for row in rows:
        asked.setdefault((row.family, row.skills), []).append(row.question_id)
    assert all(ids == asked[family, NONE] for (family, _), ids in asked.items())


def test_questions_behind_a_gap_need_one_word_of_the_world(rows):
    for jargon in (True, False):
        classroom = Classroom(generate(1, entities=1000, jargon=jargon), seed=0)
        questions = {question.id: question for question in classroom.atlas.all_questions}
        for row in rows:
            if (row.family == "gap, English") is not jargon:
                assert len(classroom.coined(questions[row.question_id])) == row.family.startswith("gap")


def test_the_table_counts_what_was_solved():
    rows = [MiniRow(1, f"q{i}", "1 hop", NONE, solved=i < 3, searches=2, answered=True) for i in range(4)]
    line = table(rows).splitlines()[1]
    assert line.split()[:5] == ["1", "hop", "none", "4", "0.750"]
    assert line.endswith("2.00")


def test_worlds_to_train_on_are_refused(policy):
    with pytest.raises(InvalidInput, match="odd"):
        evaluate_policy(policy, worlds=[1, 2], questions=1)


def test_the_command_prints_the_table_and_keeps_the_rows(sesa, policy, tmp_path):
    out = tmp_path / "rows.jsonl"
    code, printed, _ = sesa("mini", "eval", policy, "--worlds", "1", "--questions", 1, "--out", out)
    assert code == 0
    assert printed.startswith("family")
    assert all(json.loads(line)["world"] == 1 for line in out.read_text(encoding="utf-8").splitlines())
    assert sesa("mini", "eval", policy, "--out", out)[0] == 2  # the file is there already
    code, _, said = sesa("mini", "eval", policy, "--worlds", "one")
    assert code == 2
    assert "worlds must be" in said


@pytest.fixture(scope="module")
def posed(policy):
    return challenge(policy, worlds=[1], targets=4, temperature=0.8, attempts=2)


def test_every_target_is_posed_about_and_what_is_refused_is_not_solved(posed):
    assert len({row.target for row in posed}) == len(posed) == 4
    assert all((row.solve_rate is None) == bool(row.refused) for row in posed)


def test_the_shares_of_a_challenger_are_counted():
    def row(**kept):
        return ChallengeRow(
            **({"world": 1, "target": "Orla", "hops_asked": 1, "refused": "", "question": "Who?"} | kept)
        )

    rows = [
        row(right=True, hops=1, solve_rate=0.5),
        row(right=True, hops=1, solve_rate=1.0),
        row(right=False, hops=0, solve_rate=0.0, question="What?"),
        row(right=False, hops=0, solve_rate=None, question="", refused="format"),
    ]
    shares = {line[:28].strip(): line[28:].split()[:2] for line in shares_table(rows).splitlines()[1:]}
    assert shares == {
        "valid": ["4", "0.750"],
        "valid and right": ["4", "0.500"],
        "different, of the valid": ["3", "0.667"],
        "frontier, of the valid": ["3", "0.333"],
        "unreadable, of the valid": ["3", "0.333"],
        "1-hop, of the valid": ["3", "0.667"],
        "refused: format": ["4", "0.250"],
    }


def test_the_challenge_command_prints_the_shares_and_refuses_worlds_to_train_on(sesa, policy, tmp_path):
    out = tmp_path / "posed.jsonl"
    code, printed, _ = sesa("mini", "challenge", policy, "--worlds", "1", "--targets", 2, "--out", out)
    assert code == 0
    assert "valid and right" in printed
    assert len(out.read_text(encoding="utf-8").splitlines()) == 2
    code, _, said = sesa("mini", "challenge", policy, "--worlds", "2")
    assert code == 2
    assert "odd" in said
