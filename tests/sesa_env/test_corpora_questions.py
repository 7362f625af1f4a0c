import gzip
import json

import pytest

from sesa_env.corpora.questions import read_questions
from sesa_env.errors import CorpusError, InvalidInput
from sesa_env.types import Question

ROWS = [
    {"id": "q1", "question": "Where is Lake Ona?", "answers": ["Varn", "the hills of Varn"]},
    {
        "id": 2,
        "question": "Which town near Lake Ona has a blue gate?",
        "answers": "Varn",
        "type": "bridge",
        "supporting_titles": ["Lake Ona", "Varn"],
        "gold_in_corpus": True,
        "hops": 2,
    },
    {"id": "q3", "question": "Who built the mills?", "answers": ["Ilse Roth"], "gold_in_corpus": False},
]


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "q.jsonl", ROWS)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_every_field_is_read(path):
    first, second, _ = read_questions(path)
    assert first == Question("q1", "Where is Lake Ona?", ("Varn", "the hills of Varn"))
    assert second == Question(
        "2", ROWS[1]["question"], ("Varn",), supporting_titles=("Lake Ona", "Varn"), hops=2, family="bridge"
    )


def test_gzip_is_read(path, tmp_path):
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_questions(tmp_path / "q.jsonl.gz") == read_questions(path)


def test_the_limit_counts_what_is_kept(path):
    kept = read_questions(path, limit=1, keep=lambda row: "gold_in_corpus" in row)
    assert [question.id for question in kept] == ["2"]
    assert read_questions(path, keep=lambda row: False) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(path, limit):
    with pytest.raises(InvalidInput, match="limit"):
        read_questions(path, limit=limit)


def test_a_repeated_id_names_both_rows(tmp_path):
    path = write(tmp_path / "q.jsonl", [*ROWS, {**ROWS[0], "question": "Another?"}])
    with pytest.raises(CorpusError, match=r"line 4: id 'q1' .* line 1"):
        read_questions(path)


def test_a_repeated_id_is_found_among_rows_left_out(tmp_path):
    path = write(tmp_path / "q.jsonl", [ROWS[2], ROWS[2]])
    with pytest.raises(CorpusError, match="line 2"):
        read_questions(path, keep=lambda row: False)


@pytest.mark.parametrize(
    "change",
    [
        {"id": None},
        {"question": None},
        {"question": " "},
        {"answers": None},
        {"answers": []},
        {"answers": ""},
        {"answers": ["ok", 3]},
        {"answers": ["ok", " "]},
        {"supporting_titles": "Varn"},
        {"hops": 0},
        {"hops": "2"},
        {"hops": True},
        {"type": 1},
    ],
)
def test_a_broken_row_is_named_by_its_line(tmp_path, change):
    path = write(tmp_path / "q.jsonl", [ROWS[0], {**ROWS[1], **change}])
    with pytest.raises(CorpusError, match="line 2"):
        read_questions(path)
