"""Rows survive the disk or are refused with a line number; tables are functions of rows, and never mix what differs."""

import dataclasses
import io
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.report import (
    Row,
    compare,
    difference_table,
    read_rows,
    report,
    summarise,
    summary_table,
    write_rows,
)
from sesa_env.errors import CorpusError, DuplicateName, InvalidInput

RIGHT = {"em": True, "f1": 1.0, "containment": True}
WRONG = {"em": False, "f1": 0.0, "containment": False}
UNSCORED = {"em": None, "f1": None, "containment": None, "prediction": None, "end_reason": "search_unavailable"}


def row(question_id: str = "q1", **changes) -> Row:
    fields = {
        "run": "r1",
        "method": "sesa",
        "memory": "on",
        "dataset": "atlas",
        "fictional": True,
        "question_id": question_id,
        "family": "bridge",
        "answers": ("Vell",),
        "prediction": "Vell",
        "turns": 3,
        "searches": 2,
        "invalid": 0,
        "end_reason": "answered",
        "skill_ids": (),
        "prompt_tokens": 200,
        "completion_tokens": 40,
        "retrieval": "ab12cd34",
        "top_k": 3,
        **RIGHT,
    }
    return Row(**{**fields, **changes})


def both_arms(on: str, off: str, **changes) -> list[Row]:
    """One row for each letter: r(ight), w(rong), u(nscored)."""
    verdict = {"r": RIGHT, "w": WRONG, "u": UNSCORED}
    return [
        row(f"q{place}", memory=memory, **verdict[letter], **changes)
        for memory, letters in (("on", on), ("off", off))
        for place, letter in enumerate(letters)
    ]


def printed(renderable, *, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


# Rows


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"run": " "}, "run"),
        ({"method": None}, "method"),
        ({"memory": "On"}, "memory"),
        ({"memory": "off", "skill_ids": ("s1",)}, "skill_ids"),
        ({"fictional": 1}, "fictional"),
        ({"answers": "Vell"}, "answers"),
        ({"answers": ("Vell", 3)}, "answers"),
        ({"prediction": 7}, "prediction"),
        ({"em": 1}, "em"),
        ({"em": None}, "f1"),
        ({"f1": None}, "f1"),
        ({"f1": 1.5}, "f1"),
        ({"f1": float("nan")}, "f1"),
        ({"containment": None}, "containment"),
        ({"em": None, "f1": None}, "containment"),
        ({"turns": -1}, "turns"),
        ({"turns": True}, "turns"),
        ({"turns": 2.0}, "turns"),
        ({"turns": 1}, "turns"),
        ({"prompt_tokens": None}, "prompt_tokens"),
        ({"top_k": "3"}, "top_k"),
        ({"retrieval": ""}, "retrieval"),
    ],
)
def test_a_field_that_breaks_its_rule_is_named_with_its_value(changes, named):
    with pytest.raises(InvalidInput, match=rf"^{named} of question 'q1' must be .*, got "):
        row(**changes)


@settings(max_examples=50, deadline=None)
@given(
    prediction=st.none() | st.text(),
    answers=st.lists(st.text(min_size=1).filter(str.strip), max_size=3).map(tuple),
    f1=st.floats(0, 1),
)
def test_any_text_survives_the_disk(tmp_path_factory, prediction, answers, f1):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = [row("q1", prediction=prediction, answers=answers, f1=f1), row("q2\u2028\n\r", **UNSCORED)]
    write_rows(rows, path)
    assert read_rows(path) == rows


def test_a_lone_surrogate_survives_the_disk(tmp_path):
    rows = [row(prediction="\ud83d")]
    write_rows(rows, tmp_path / "rows.jsonl")
    assert read_rows(tmp_path / "rows.jsonl") == rows


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    write_rows([row("q1")], path)

    def killed(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr("skill_memory.records.os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_rows([row("q2")], path)
    assert [r.question_id for r in read_rows(path)] == ["q1"]


def test_writing_leaves_one_file_and_makes_its_folder(tmp_path):
    path = tmp_path / "run" / "rows.jsonl"
    write_rows([row("q1")], path)
    assert [p.name for p in path.parent.iterdir()] == ["rows.jsonl"]


GOOD = json.dumps({"schema": 2, **dataclasses.asdict(row("q1"))})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "not a JSON object"),
        ("", "not a JSON object"),
        ('{"a": "\udcff"}', "not a JSON object"),  # a byte that is not UTF-8
        ("[1, 2]", "not a row of schema 2"),
        (GOOD.replace('"schema": 2', '"schema": 1'), "not a row of schema 2"),
        (GOOD.replace('"schema": 2, ', ""), "not a row of schema 2"),
        (GOOD.replace('"em"', '"exact"'), "fields missing or unknown: em, exact"),
        (GOOD.replace('"em": true, ', ""), "fields missing or unknown: em"),
        (GOOD.replace('"f1": 1.0', '"f1": NaN'), "f1 of question 'q1'"),
        (GOOD.replace('["Vell"]', '"Vell"'), "answers of question 'q1'"),
        (GOOD[:-20], "not a JSON object"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path, line, complaint):
    path = tmp_path / "rows.jsonl"
    second = GOOD.replace('"q1"', '"q0"')
    path.write_bytes(f"{second}\n{line}\n{GOOD}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(CorpusError, match=rf"rows\.jsonl:2: {complaint}"):
        read_rows(path)


def test_a_missing_or_empty_file_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="not a file"):
        read_rows(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(CorpusError, match="holds no rows"):
        read_rows(tmp_path / "empty.jsonl")


def test_a_question_that_occurs_twice_is_refused_with_both_places(tmp_path):
    rows = [row("a"), row("b"), row("a")]
    for refuse in (summarise, compare, lambda r: write_rows(r, tmp_path / "rows.jsonl")):
        with pytest.raises(DuplicateName, match=r"'a' occurs twice in .* at rows 0 and 2"):
            refuse(rows)
    assert not (tmp_path / "rows.jsonl").exists()
    path = tmp_path / "twice.jsonl"
    path.write_text(f"{GOOD}\n{GOOD}\n")
    with pytest.raises(DuplicateName, match="rows 0 and 1"):
        read_rows(path)


def test_no_rows_make_no_table(tmp_path):
    for refuse in (summarise, compare, report, lambda r: write_rows(r, tmp_path / "rows.jsonl")):
        with pytest.raises(InvalidInput, match="rows"):
            refuse([])


# Counting


def test_a_cell_counts_what_its_rows_say():
    rows = [
        row("q1", turns=4, searches=2, invalid=1),
        row("q2", turns=3, searches=3, prediction=None, end_reason="turn_limit", **WRONG),
        row("q3", turns=1, searches=0, em=False, f1=0.5, containment=True),
        row("q4", turns=9, searches=9, **UNSCORED),
    ]
    (cell,) = summarise(rows)
    assert (cell.scored, cell.unscored) == (3, 1)
    assert cell.em.value == pytest.approx(1 / 3)
    assert cell.f1 == pytest.approx(0.5)
    assert cell.containment == pytest.approx(2 / 3)
    assert cell.searches == pytest.approx(5 / 3)
    assert (cell.search_share, cell.answer_share, cell.invalid_share) == pytest.approx((5 / 8, 2 / 8, 1 / 8))
    assert cell.no_answer == pytest.approx(1 / 3)


def test_an_unscored_question_is_neither_right_nor_wrong():
    (cell,) = summarise([row("q1"), row("q2", **WRONG), row("q3", **UNSCORED)])
    assert (cell.em.value, cell.em.n) == (0.5, 2)


def test_an_unanswered_question_stays_in_the_denominator():
    (cell,) = summarise([row("q1"), row("q2", prediction=None, end_reason="turn_limit", **WRONG)])
    assert (cell.em.value, cell.em.n, cell.no_answer) == (0.5, 2, 0.5)


def test_cells_are_kept_apart_by_run_method_dataset_and_memory():
    rows = [
        row(),
        row(run="r2", **WRONG),
        row(method="ssp", **WRONG),
        row(dataset="nq", **WRONG),
        row(memory="off", **WRONG),
    ]
    cells = {(c.run, c.method, c.dataset, c.memory): c.em.value for c in summarise(rows)}
    assert cells == {
        ("r1", "sesa", "atlas", "on"): 1.0,
        ("r2", "sesa", "atlas", "on"): 0.0,
        ("r1", "ssp", "atlas", "on"): 0.0,
        ("r1", "sesa", "nq", "on"): 0.0,
        ("r1", "sesa", "atlas", "off"): 0.0,
    }


def test_memory_on_is_compared_with_off_question_by_question():
    (comparison,) = compare(both_arms(on="rrwrw", off="rwrww"))
    assert (comparison.em.better, comparison.em.worse) == (2, 1)
    assert comparison.em.estimate.value == pytest.approx(0.2)
    assert comparison.left_out == 0


def test_a_question_that_one_arm_could_not_score_is_left_out_of_both():
    (comparison,) = compare(both_arms(on="rru", off="wuw"))
    assert (comparison.em.estimate.n, comparison.left_out) == (1, 2)
    (nothing,) = compare(both_arms(on="ru", off="ur"))
    assert (nothing.em, nothing.f1, nothing.left_out) == (None, None, 2)


def test_arms_that_were_asked_different_questions_are_refused():
    rows = both_arms(on="rr", off="rr")
    with pytest.raises(InvalidInput, match="same questions of 'atlas', got 1 in one arm only, as 'q1'"):
        compare(rows[:-1])


def test_one_memory_mode_alone_is_not_compared():
    assert compare([row("q1"), row("q2"), row("q1", run="r2", memory="off")]) == []


def three_arms(on: str, off: str, placebo: str) -> list[Row]:
    as_placebo = [dataclasses.replace(row, memory="placebo") for row in both_arms(on=placebo, off="")]
    return [*both_arms(on=on, off=off), *as_placebo]


def test_memory_on_is_compared_with_each_baseline_that_is_there():
    rows = three_arms(on="rrrrw", off="wwwwr", placebo="rrwww")
    found = {c.baseline: (c.em.better, c.em.worse, c.em.estimate.value) for c in compare(rows)}
    assert found == {"off": (4, 1, pytest.approx(0.6)), "placebo": (2, 0, pytest.approx(0.4))}
    without_off = [row for row in rows if row.memory != "off"]
    assert [comparison.baseline for comparison in compare(without_off)] == ["placebo"]
    assert compare([row for row in rows if row.memory != "on"]) == []
    assert [cell.memory for cell in summarise(rows)] == ["off", "on", "placebo"]


def test_a_placebo_shows_skills_and_must_be_asked_the_same_questions():
    assert row(memory="placebo", skill_ids=("s1",)).skill_ids == ("s1",)
    with pytest.raises(InvalidInput, match="memory on and placebo must be asked the same questions"):
        compare(three_arms(on="rr", off="rr", placebo="r"))


def test_each_difference_says_what_was_taken_away():
    text = printed(report(three_arms(on="rrrrw" * 9, off="wwwwr" * 9, placebo="rrwww" * 9)))
    assert "Memory on minus memory off and placebo, percentage points" in " ".join(text.split())
    assert "+60.0" in text
    assert "+40.0" in text
    columns = difference_table(three_arms(on="rw", off="wr", placebo="ww")).columns
    assert list(map(str, columns[0].cells)) == ["sesa,\noff", "sesa,\nplacebo"]
    assert "placebo" not in printed(report(both_arms(on="rw", off="wr")))


@pytest.mark.parametrize("changes", [{"top_k": 5}, {"retrieval": "ffff0000"}])
@pytest.mark.parametrize("refuse", [summarise, compare, summary_table, difference_table, report])
def test_rows_of_different_retrieval_are_refused_in_one_table(refuse, changes):
    with pytest.raises(InvalidInput, match="share retrieval and top_k"):
        refuse([row("q1"), row("q2", **changes)])


# Tables


def test_a_table_depends_on_the_rows_and_not_on_their_order():
    rows = both_arms(on="rrwrwrrw" * 5, off="rwrwwwrw" * 5)
    rows = [dataclasses.replace(row, f1=(place * 37 % 101) / 101) for place, row in enumerate(rows)]
    shuffled = random.Random(0).sample(rows, len(rows))
    assert printed(report(rows)) == printed(report(shuffled)) == printed(report(rows))


def test_the_table_prints_counts_intervals_and_the_retrieval():
    text = printed(report(both_arms(on="r" * 30 + "w" * 20, off="r" * 10 + "w" * 40)))
    assert "retrieval ab12cd34, 3 passages a search" in text
    for expected in ("60.0", "[46.2, 72.4]", "20.0", "[11.2, 33.0]", "67/33/0", "+40.0"):
        assert expected in text
    assert " 50 " in text


def test_eighty_characters_are_enough():
    text = printed(report(both_arms(on="rrwwu" * 12, off="rwwwu" * 12)), width=80)
    for whole in ("(fictional)", "67/33/0", "48/60", "invalid", "answer"):
        assert whole in text
    assert len(re.findall(r"\[\d\d\.\d, \d\d\.\d\]", text)) == 2
    assert "…" not in text


def test_an_invented_world_is_always_labelled():
    rows = [*both_arms(on="rw", off="wr"), *both_arms(on="rw", off="wr", dataset="nq", fictional=False)]
    for table in (summary_table(rows), difference_table(rows)):
        labels = list(table.columns[1].cells)
        assert {str(label) for label in labels} == {"atlas\n(fictional)", "nq"}


def test_square_brackets_in_a_name_are_printed_and_not_taken_for_markup():
    assert "[bold]nq" in printed(summary_table([row("q1", dataset="[bold]nq")]))


def test_a_difference_is_bold_only_when_its_interval_excludes_zero():
    sure = difference_table(both_arms(on="r" * 30 + "w" * 10, off="w" * 40))
    unsure = difference_table(both_arms(on="rwr" * 5, off="wrw" * 5))
    assert [str(next(iter(table.columns[3].cells)).style) for table in (sure, unsure)] == ["bold", ""]


def test_one_question_and_equal_arms_are_printed_without_an_interval():
    assert "n=1" in printed(summary_table([row("q1")]))
    text = printed(difference_table(both_arms(on="rw", off="rw")))
    assert "all alike" in text
    assert "no interval" in text


def test_a_cell_without_scores_prints_dashes_and_not_zeros():
    table = summary_table([row("q1", **UNSCORED)])
    assert [str(next(iter(column.cells))) for column in table.columns] == [
        "sesa,\non",
        "atlas\n(fictional)",
        "0/1",
        *"------",
    ]
    (line,) = zip(*(column.cells for column in difference_table(both_arms(on="u", off="r")).columns), strict=True)
    assert [str(cell) for cell in line] == ["sesa,\noff", "atlas\n(fictional)", "0/1", "-", "-", "-", "-"]


def test_several_runs_are_told_apart():
    rows = [row("q1"), row("q1", run="r2")]
    assert [str(cell) for cell in summary_table(rows).columns[0].cells] == ["sesa (r1),\non", "sesa (r2),\non"]


def test_the_differences_are_left_out_when_there_is_nothing_to_compare():
    assert "minus" not in printed(report([row("q1")]))
    assert "minus" in printed(report(both_arms(on="r", off="w")))
