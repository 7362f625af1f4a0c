import gzip
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.envs import world
from sesa_env.errors import CorpusError, InvalidInput, SettingsError, UnknownName
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.registry import TARGETS
from sesa_env.targets import hop_balanced, load_targets, open_targets, read_answers, read_ssp, without_test_answers
from sesa_env.types import Question, Target


def written(folder, *rows, name="targets.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# Sources


def test_sources_are_found_by_name(world, tmp_path):
    assert [target.answer for target in TARGETS.make("corpus", world["corpus"])] == ["Nile", "Aswan", "Rhine", "Zürich"]
    assert TARGETS.make("answers", written(tmp_path, {"answer": "Nile"})) == (Target("Nile", hops=1),)
    path = written(tmp_path, {"ground_truth": "Nile", "search_turns": 1})
    assert TARGETS.make("ssp", path) == (Target("Nile", hops=1),)


def test_an_environment_uses_the_same_targets_of_a_corpus():
    assert world.load_targets is load_targets
    assert {target.hops for target in load_targets("atlas")} == {1, 2, 3, 4}


def test_a_qualified_title_is_an_alias(tmp_path):
    rows = [{"id": n, "contents": f'"{title}"\nText.'} for n, title in enumerate(["Kestrel (film)", "(film)", "Oslo"])]
    assert load_targets(str(written(tmp_path, *rows))) == (
        Target("Kestrel", hops=1, aliases=("Kestrel (film)",)),
        Target("(film)", hops=1),
        Target("Oslo", hops=1),
    )


def test_a_file_of_answers_is_read_in_order(tmp_path):
    rows = [
        {"answer": "Nile", "hops": 3, "aliases": ["Iteru", "النيل"], "examples": ["Which sea?"]},
        {"answer": "1912", "aliases": "the year 1912"},
    ]
    assert read_answers(written(tmp_path, *rows)) == (
        Target("Nile", hops=3, aliases=("Iteru", "النيل"), examples=("Which sea?",)),
        Target("1912", hops=1, aliases=("the year 1912",)),
    )
    packed = tmp_path / "targets.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "targets.jsonl").read_bytes()))
    assert read_answers(str(packed)) == read_answers(tmp_path / "targets.jsonl")


def test_the_one_element_list_of_ssp_becomes_a_string(tmp_path):
    rows = [
        {"ground_truth": ["Nile"], "search_turns": 2, "sys_question_example": ["A?", "B?", "C?"], "data_source": "x"},
        {"ground_truth": "Rhine", "search_turns": 1, "sys_question_example": "A?\nB?"},
    ]
    targets = read_ssp(written(tmp_path, *rows))
    assert targets == (
        Target("Nile", hops=2, examples=("A?", "B?", "C?")),
        Target("Rhine", hops=1, examples=("A?\nB?",)),
    )
    game = Game(GameSettings(), judge=ExactMatchJudge())
    game.pose(targets[0])  # and a list can no longer make a check stumble
    assert game.view("challenger_0").target == "Nile"
    copy = Game(GameSettings(), judge=ExactMatchJudge())
    copy.set_state(json.loads(json.dumps(game.get_state())))
    assert copy.get_state() == game.get_state()


@pytest.mark.parametrize(
    ("read", "row", "message"),
    [
        (read_answers, {"answer": " "}, "answer of a target must be a non-blank string, got ' '"),
        (read_answers, {"hops": 1}, "non-blank string, got None"),
        (read_answers, {"answer": ["Nile"]}, r"non-blank string, got \['Nile'\]"),
        (read_answers, {"answer": "Nile", "hops": 0}, "hops of target 'Nile' must be at least 1"),
        (read_answers, {"answer": "Nile", "hops": 1.0}, "whole number from 1 up, got 1.0"),
        (read_answers, {"answer": "Nile", "hops": True}, "whole number from 1 up, got True"),
        (read_answers, {"answer": "Nile", "aliases": [3]}, "`aliases` must be a list of non-blank strings"),
        (read_answers, {"answer": "Nile", "hop": 2}, r"unknown fields \['hop'\]; known: answer, hops"),
        (read_ssp, {"ground_truth": ["Nile", "Rhine"], "search_turns": 1}, "`ground_truth` must be one answer"),
        (read_ssp, {"ground_truth": [], "search_turns": 1}, "`ground_truth` must be one answer"),
        (read_ssp, {"ground_truth": "Nile"}, "whole number from 1 up, got None"),
        (read_ssp, {"ground_truth": "N", "search_turns": 1, "sys_question_example": [""]}, "`sys_question_example`"),
    ],
)
def test_a_malformed_row_stops_the_reading_with_its_line(tmp_path, read, row, message):
    sound = {"answer": "Nile"} if read is read_answers else {"ground_truth": "Nile", "search_turns": 1}
    with pytest.raises(CorpusError, match=f"line 2: .*{message}"):
        read(written(tmp_path, sound, row))


def test_no_file_and_no_rows_are_errors(tmp_path):
    with pytest.raises(CorpusError, match="is not a file"):
        read_answers(tmp_path / "none.jsonl")
    with pytest.raises(CorpusError, match="is empty"):
        read_ssp(written(tmp_path))


# Choosing


def some(**numbers):
    return [Target(f"{hops}-{n}", hops=int(hops[1:])) for hops, number in numbers.items() for n in range(number)]


@given(number=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_hops_are_balanced_and_nothing_comes_twice(number, seed):
    drawn = hop_balanced(some(h1=40, h2=10, h5=12), number, rng=np.random.default_rng(seed))
    counts = Counter(target.hops for target in drawn)
    shares = [counts[hops] for hops in (1, 2, 5)]
    assert len(set(drawn)) == len(drawn) == number
    assert max(shares) - min(shares) <= 1


def test_a_draw_follows_from_its_seed_and_is_mixed():
    targets = load_targets("atlas")
    draws = [hop_balanced(targets, 60, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    hops = [target.hops for target in draws[0]]
    assert hops != sorted(hops)
    assert Counter(hops) == {1: 15, 2: 15, 3: 15, 4: 15}


def test_chance_decides_who_gets_one_more():
    firsts = {hop_balanced(some(h1=1, h2=1), 1, rng=np.random.default_rng(seed))[0].hops for seed in range(20)}
    assert firsts == {1, 2}


@pytest.mark.parametrize(
    ("targets", "number", "message"),
    [
        (some(h1=9, h2=2), 6, "targets must hold 3 of 2 hops, got 2"),
        ([], 1, "targets must not be empty"),
        (some(h1=1), 0, "number must be at least 1, got 0"),
    ],
)
def test_too_few_targets_are_an_error(targets, number, message):
    with pytest.raises(InvalidInput, match=message):
        hop_balanced(targets, number, rng=np.random.default_rng(0))


def test_targets_that_are_test_answers_are_left_out_by_any_of_their_names():
    targets = [Target("Nile", 1), Target("The  RHINE.", 1), Target("Zürich", 1, aliases=("Turicum",)), Target("Nil", 1)]
    questions = [Question("1", "Which?", ("Rhein", "Rhine")), Question("2", "Where?", ("“Turicum”",))]
    clean, dropped = without_test_answers(targets, questions)
    assert clean == [targets[0], targets[3]]
    assert dropped == [targets[1], targets[2]]
    assert without_test_answers(targets, []) == (targets, [])


# By name


def test_a_setting_names_the_source_and_what_it_reads(tmp_path):
    answers = written(tmp_path, {"answer": "Nile", "hops": 2}, {"answer": "Rhine"}, name="answers.jsonl")
    rows = written(
        tmp_path, {"ground_truth": ["Nile"], "search_turns": 3, "sys_question_example": ["Q?"]}, name="s.jsonl"
    )
    assert open_targets("corpus", corpus="atlas:1") == load_targets("atlas:1")
    assert open_targets("corpus:atlas:2", corpus="atlas:1") == load_targets("atlas:2")
    assert open_targets(f"answers:{answers}", corpus="atlas") == (Target("Nile", 2), Target("Rhine", 1))
    assert open_targets(f"ssp:{rows}", corpus="atlas") == (Target("Nile", 3, examples=("Q?",)),)


def test_no_answer_of_a_test_is_a_target(tmp_path):
    answers = written(tmp_path, {"answer": "Nile", "aliases": ["Iteru"]}, {"answer": "Rhine"}, name="answers.jsonl")
    tests = written(tmp_path, {"id": "t", "question": "Which river?", "answers": ["the ITERU"]}, name="tests.jsonl")
    assert open_targets(f"answers:{answers}", corpus="", test_questions=(str(tests),)) == (Target("Rhine", 1),)
    with pytest.raises(SettingsError, match="some that no test question has as its answer"):
        open_targets("corpus", corpus="atlas:1", test_questions=(str(all_of(tmp_path, "atlas:1")),))


def all_of(tmp_path, corpus):
    rows = [{"id": str(n), "question": "Q?", "answers": [t.answer]} for n, t in enumerate(load_targets(corpus))]
    return written(tmp_path, *rows, name="all.jsonl")


@pytest.mark.parametrize(
    ("targets", "error", "says"),
    [
        ("answers", SettingsError, "targets must be written answers:SOURCE"),
        ("file.jsonl", UnknownName, "no target source named 'file.jsonl'; known: answers, corpus, ssp"),
        ("answers:none.jsonl", CorpusError, "none.jsonl"),
    ],
)
def test_a_setting_that_names_no_targets_is_refused(targets, error, says):
    with pytest.raises(error, match=says):
        open_targets(targets, corpus="atlas")


def test_a_target_comes_again_only_when_more_are_asked_for_than_there_are():
    drawn = Counter(hop_balanced(some(h1=2, h2=3), 12, rng=np.random.default_rng(0)))
    assert sorted(Counter(target.hops for target in drawn.elements()).items()) == [(1, 6), (2, 6)]
    assert sorted(drawn.values()) == [2, 2, 2, 3, 3]
