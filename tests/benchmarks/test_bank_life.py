"""The run behind the page about a bank's life: repeatable, learning, and legible for the other commands."""

import json
from collections import Counter

import pytest

from benchmarks.bank_life import LIFE_FILE, live, table
from benchmarks.mine import mine
from benchmarks.rounds import read_rounds
from sesa_env.errors import InvalidInput
from skill_memory.history import by_cause, growth, read_bank


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    return live(tmp_path_factory.mktemp("runs") / "life", stays=(12, 3), entities=600)


def rows_of(run):
    return [json.loads(line) for line in (run / LIFE_FILE).read_text(encoding="utf-8").splitlines()]


def test_equal_arguments_give_equal_lives(life, tmp_path):
    again = live(tmp_path / "again", stays=(12, 3), entities=600)
    assert rows_of(again) == rows_of(life)
    assert read_bank(again).events == read_bank(life).events
    other = live(tmp_path / "other", stays=(2,), seed=1, entities=600)
    assert rows_of(other) != rows_of(life)[:2]


def test_what_is_learned_helps_behind_a_gap_until_the_world_changes(life):
    rows = rows_of(life)
    assert [row["world"] for row in rows] == [2] * 12 + [4] * 3
    gain = [row["wording-gap/on"] - row["wording-gap/off"] for row in rows]
    before, after, elsewhere = sum(gain[:5]) / 5, sum(gain[5:12]) / 7, sum(gain[12:]) / 3  # 5: the first consolidation
    assert after > 0.2
    assert max(before, elsewhere) < after / 2
    assert len(table(rows, parts=5).splitlines()) == 6


def test_the_rounds_can_be_read_and_mined(life, tmp_path):
    played = Counter(step for step, _, _ in read_rounds(life / "rounds.jsonl"))
    assert played == dict.fromkeys(range(1, 16), 16)
    mined = mine(life, tmp_path / "mined.jsonl")
    assert {"wording", "evidence_ignored"} <= {skill.category for skill in mined.skills}


def test_causes_add_up_to_the_growth(life):
    events, rows = read_bank(life).events, growth(read_bank(life).events)
    for kind, counts in (("admit", "admitted"), ("evict", "evicted"), ("refuse", "refused"), ("credit", "retrieved")):
        for row in rows:
            causes = by_cause(events, kind).values()
            assert sum(by_step[row.step] for by_step in causes) == getattr(row, counts)
    sums = [by_step.total() for by_step in by_cause(events, "refuse").values()]
    assert sums == sorted(sums, reverse=True)


def test_a_folder_in_use_and_a_stay_of_no_step_are_refused(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InvalidInput, match="new or empty"):
        live(tmp_path, stays=(1,))
    for stays in ((), (3, 0)):
        with pytest.raises(InvalidInput, match="stays"):
            live(tmp_path / "life", stays=stays)
    assert not (tmp_path / "life").exists()
