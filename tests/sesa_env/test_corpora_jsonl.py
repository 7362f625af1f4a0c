import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env import corpora
from sesa_env.corpora.jsonl import (
    corpus_fingerprint,
    passage_from_row,
    passages_fingerprint,
    read_passages,
    row_from_passage,
)
from sesa_env.errors import CorpusError, InvalidInput
from sesa_env.types import Passage

ROWS = [
    {"id": "p1", "title": "Lake Ona", "contents": '"Lake Ona"\nLake Ona lies in the hills of Varn.'},
    {"id": "p2", "title": "Varn", "contents": '"Varn"\nVarn is a town with a "blue" gate.\nIt has two mills.'},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def refusal(path):
    with pytest.raises(CorpusError) as caught:
        list(read_passages(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_title_and_text_are_told_apart(tmp_path):
    passages = list(read_passages(write(tmp_path / "c.jsonl", ROWS)))
    assert passages == [
        Passage("p1", "Lake Ona", "Lake Ona lies in the hills of Varn."),
        Passage("p2", "Varn", 'Varn is a town with a "blue" gate.\nIt has two mills.'),
    ]


@pytest.mark.parametrize(
    ("row", "title", "text"),
    [
        ({"contents": '"Dune"\nA novel.'}, "Dune", "A novel."),
        ({"contents": '""Heroes" (album)"\nA record.'}, '"Heroes" (album)', "A record."),
        ({"contents": "No title here."}, "", "No title here."),
        ({"contents": '"A quotation, alone"'}, "", '"A quotation, alone"'),
        ({"title": "Dune", "contents": "A novel."}, "Dune", "A novel."),
        ({"title": "Greeting", "contents": '"Hello"\nsaid he.'}, "Greeting", '"Hello"\nsaid he.'),
        ({"title": "", "contents": '""\nsaid he.'}, "", '""\nsaid he.'),
    ],
)
def test_contents_come_with_and_without_a_title_line(row, title, text):
    passage = passage_from_row({"id": "x", **row}, where="here")
    assert (passage.title, passage.text) == (title, text)


plain = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(title=st.just("") | plain, text=plain)
def test_a_passage_survives_the_trip_through_its_row(title, text):
    passage = Passage("id", title, text)
    assert passage_from_row(json.loads(json.dumps(row_from_passage(passage))), where="here") == passage


def test_whole_numbers_are_ids_and_blank_lines_are_nothing(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": 7, "contents": "one"}\n\n{"id": "8", "contents": "two"}', encoding="utf-8")
    assert [passage.id for passage in read_passages(path)] == ["7", "8"]


def test_gzip_and_byte_order_mark_change_nothing(tmp_path):
    write(tmp_path / "plain.jsonl", ROWS)
    data = (tmp_path / "plain.jsonl").read_bytes()
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + data)
    expected = list(read_passages(tmp_path / "plain.jsonl"))
    assert list(read_passages(tmp_path / "packed.jsonl.gz")) == expected
    assert list(read_passages(tmp_path / "marked.jsonl")) == expected


def test_reading_is_lazy(tmp_path):
    path = write(tmp_path / "c.jsonl", [*ROWS, {"id": "p3"}])
    assert next(read_passages(path)).id == "p1"  # the broken third line is not reached


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    assert "is not a file" in refusal(tmp_path / "absent.jsonl")
    assert "is not a file" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path, content):
    path = tmp_path / "c.jsonl"
    path.write_text(content, encoding="utf-8")
    assert "is empty" in refusal(path)


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": "x", "contents": "cut o',
        b'["id", "contents"]',
        b'{"id": "x", "contents": "latin \xe9"}',
        b'{"id": "x", "contents": "half a pair \\ud83d"}',
        b'{"id": "x", "contents": "half a pair \xed\xa0\xbd"}',
        b'{"id": "x"}',
        b'{"id": "x", "contents": " "}',
        b'{"id": "x", "contents": 5}',
        b'{"id": "x", "contents": "text", "title": 5}',
        b'{"contents": "text"}',
        b'{"id": " ", "contents": "text"}',
        b'{"id": true, "contents": "text"}',
    ],
)
def test_a_broken_line_is_named_by_its_number(tmp_path, line):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"id": "ok", "contents": "fine"}\n\n' + line + b"\n")
    assert "line 3" in refusal(path)


def test_whole_surrogate_pairs_are_fine(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "x", "contents": "a smile \\ud83d\\ude00"}', encoding="utf-8")
    assert next(read_passages(path)).text == "a smile \N{GRINNING FACE}"


def test_a_repeated_id_names_both_lines(tmp_path):
    message = refusal(write(tmp_path / "c.jsonl", [*ROWS, ROWS[0]]))
    assert "line 3" in message
    assert "line 1" in message
    assert "'p1'" in message


def test_a_damaged_archive_is_named(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(ROWS[0]).encode() * 2000)[:-30])
    with pytest.raises(CorpusError, match="damaged"):
        corpus_fingerprint(path)
    path.write_bytes(b"not gzip at all")
    assert "damaged" in refusal(path)


def test_the_fingerprint_is_that_of_the_content(tmp_path):
    plain_file = write(tmp_path / "a.jsonl", ROWS)
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(plain_file.read_bytes()))
    other = write(tmp_path / "c.jsonl", ROWS[::-1])
    assert corpus_fingerprint(plain_file) == corpus_fingerprint(packed) != corpus_fingerprint(other)
    with pytest.raises(CorpusError, match="is not a file"):
        corpus_fingerprint(tmp_path / "absent.jsonl")


def test_passages_without_a_file_have_a_fingerprint_too():
    passages = [Passage("a", "T", "one"), Passage("b", "T", "two")]
    assert passages_fingerprint(passages) == passages_fingerprint(list(passages))
    assert passages_fingerprint(passages) != passages_fingerprint(passages[::-1])


def test_a_corpus_is_named_by_a_path(tmp_path):
    path = write(tmp_path / "c.jsonl", ROWS)
    passages, fingerprint = corpora.load_passages(str(path))
    assert [passage.id for passage in passages] == ["p1", "p2"]
    assert fingerprint == corpora.fingerprint(str(path)) == corpus_fingerprint(path)


@pytest.mark.parametrize("corpus", ["atlas:", "atlas:-1", "atlas:x", "atlas:1:2", "atlas:\u00b2"])
def test_a_bad_seed_is_refused(corpus):
    pytest.importorskip("sesa_env.corpora.atlas")
    with pytest.raises(InvalidInput, match=r"atlas:SEED"):
        corpora.load_passages(corpus)


def test_the_embedded_corpus_is_named_by_its_seed():
    atlas = pytest.importorskip("sesa_env.corpora.atlas")
    if not hasattr(atlas, "generate"):
        pytest.skip("the embedded corpus is not there yet")
    passages, fingerprint = corpora.load_passages("atlas")
    assert passages == list(atlas.generate(seed=0).passages)
    assert corpora.fingerprint("atlas:0") == fingerprint != corpora.fingerprint("atlas:1")
