"""The cache of searches: the same answers as without it, for every process, and no answer of another index."""

import json
import multiprocessing
import os
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sesa_env.errors import IndexMismatch, InvalidInput, SearchUnavailable
from sesa_env.retrieval.base import Retriever
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.retrieval.cached import SCHEMA, CachedRetriever, Statistics
from sesa_env.testing import check_retriever
from sesa_env.types import Passage

PASSAGES = [
    Passage("a", "Nile", "A river of Egypt. 東京 🚀"),
    Passage("b", "Rhine", "A river past Basel."),
    Passage("c", "Aswan", "A city of Egypt by the river."),
]


class Counting:
    """A real retriever that writes down what it was asked."""

    def __init__(self, passages=PASSAGES, corpus="c"):
        self.inner = Bm25Retriever.from_passages(passages, corpus)
        self.fingerprint = self.inner.fingerprint
        self.asked, self.closed = [], 0

    def search(self, queries, k):
        self.asked.append((list(queries), k))
        return self.inner.search(queries, k)

    def close(self):
        self.closed += 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "searches.sqlite3"


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def cached(counting, path):
    cached = CachedRetriever(counting, path)
    yield cached
    cached.close()


def test_it_keeps_the_contract_of_retrievers(cached):
    assert isinstance(cached, Retriever)
    check_retriever(cached, finds="Egypt river", other="Basel")
    check_retriever(cached, finds="Egypt river", other="Basel")  # and once more, out of the file


def test_what_was_found_is_found_again_without_a_search(cached, counting):
    first = cached.search(["river", "Egypt", "nothing"], 2)
    assert (
        cached.search(["river", "Egypt", "nothing"], 2)
        == first
        == counting.inner.search(["river", "Egypt", "nothing"], 2)
    )
    assert first[2] == []
    assert type(first[0][0]) is type(cached.search(["river"], 2)[0][0]) is Passage
    assert counting.asked == [(["river", "Egypt", "nothing"], 2)]


def test_only_what_is_missing_is_searched_once_each_in_one_call(cached, counting):
    cached.search(["river"], 2)
    cached.search(["Basel", "river", "Egypt", "Basel"], 2)
    assert counting.asked == [(["river"], 2), (["Basel", "Egypt"], 2)]
    assert cached.statistics() == Statistics(hits=1, misses=4)


def test_another_k_is_another_question(cached):
    assert len(cached.search(["river"], 1)[0]) == 1
    assert len(cached.search(["river"], 3)[0]) == 3


def test_changing_a_result_changes_no_other(cached):
    first = cached.search(["river", "river"], 2)
    expected = list(first[1])
    first[0].clear()
    assert first[1] == expected
    cached.search(["river"], 2)[0].clear()
    assert cached.search(["river"], 2) == [expected]


def test_queries_are_told_apart_letter_by_letter(cached, counting):
    for query in ("river", "River", "river ", "ri\u0301ver", "\ud83d", "\udc00", "\x00", ""):
        cached.search([query], 2)
    assert len(counting.asked) == 8


def test_another_index_never_answers(cached, path):
    cached.search(["river"], 3)
    other = Counting(PASSAGES[:2], corpus="another")
    assert len(CachedRetriever(other, path).search(["river"], 3)[0]) == 2
    assert len(cached.search(["river"], 3)[0]) == 3


def test_a_failure_is_not_kept(cached, counting, monkeypatch):
    def down(queries, k):
        raise SearchUnavailable("down")

    monkeypatch.setattr(counting, "search", down)
    with pytest.raises(SearchUnavailable, match="down"):
        cached.search(["river"], 2)
    monkeypatch.undo()
    assert cached.search(["river"], 2)[0]


def test_bad_requests_reach_neither_file_nor_retriever(cached, counting):
    for queries, k in (("river", 1), (["river"], 0)):
        with pytest.raises(InvalidInput):
            cached.search(queries, k)
    assert counting.asked == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.characters()))
def test_any_query_gives_what_it_gives_without_the_cache(cached, counting, query):
    expected = counting.inner.search([query], 2)
    assert cached.search([query], 2) == expected
    assert cached.search([query], 2) == expected


# Shared


def test_another_process_finds_what_this_one_searched(cached, counting, path):
    cached.search(["river"], 2)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            found, statistics = pool.apply(_search_elsewhere, (cached,))
        assert found == cached.search(["river"], 2)
        assert statistics == (1, 0)


def _search_elsewhere(cached):
    return cached.search(["river"], 2), tuple(cached.statistics())


def test_a_forked_copy_opens_the_file_itself(cached):
    cached.search(["river"], 2)
    connection = cached._connection
    child = os.fork()
    if child == 0:
        cached.search(["river", "Basel"], 2)
        os._exit(0 if cached._connection is not connection else 1)
    assert os.waitpid(child, 0)[1] == 0
    hits = cached.statistics().hits
    cached.search(["Basel"], 2)
    assert cached.statistics().hits == hits + 1


def test_a_pickled_copy_shares_the_file(cached):
    expected = cached.search(["river"], 2)
    copy = pickle.loads(pickle.dumps(cached))
    assert copy.search(["river"], 2) == expected
    assert copy.statistics() == Statistics(1, 0)


def test_threads_and_several_writers_lose_nothing(path):
    several = [CachedRetriever(Counting(), path) for _ in range(3)]
    queries = [f"river {number % 10}" for number in range(60)]
    expected = Counting().inner.search(queries, 2)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: several[place % 3].search([queries[place]], 2)[0], range(60)))
    assert found == expected
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from results").fetchone() == (10,)
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)


def test_closing_closes_both_and_searching_opens_again(cached, counting):
    cached.close()
    cached.close()
    assert counting.closed == 2
    assert cached.search(["river"], 2)[0]


# Damage


def test_a_file_that_is_no_database_is_named(counting, path):
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(IndexMismatch, match=r"searches\.sqlite3' is damaged; delete it"):
        CachedRetriever(counting, path)


def test_a_damaged_page_is_an_error_that_names_the_file(counting, path):
    cached = CachedRetriever(counting, path)
    for number in range(200):
        cached.search([f"river {number}"], 3)
    cached.close()
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    with pytest.raises(IndexMismatch, match=r"searches\.sqlite3"):
        CachedRetriever(counting, path).search(["river 7"], 3)


@pytest.mark.parametrize("text", ["", "{", '[["a"]]', '[["a", "b", "c", 1.0, "too many"]]', "7"])
def test_a_damaged_row_is_an_error_that_names_the_file(cached, path, text):
    cached.search(["river"], 2)
    with sqlite3.connect(path) as connection:
        connection.execute("update results set passages = ?", (text,))
    with pytest.raises(IndexMismatch, match=r"searches\.sqlite3' is damaged"):
        cached.search(["river"], 2)


def test_a_database_of_somebody_else_is_left_alone(counting, path):
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("create table precious (content)")
    with pytest.raises(IndexMismatch, match="no search cache"):
        CachedRetriever(counting, path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("select name from sqlite_master").fetchall() == [("precious",)]


def test_another_schema_is_refused_with_both_numbers(cached, counting, path):
    with sqlite3.connect(path) as connection:
        connection.execute(f"pragma user_version = {SCHEMA + 1}")
    with pytest.raises(IndexMismatch, match=rf"schema {SCHEMA} \(it has {SCHEMA + 1}\)"):
        CachedRetriever(counting, path)


def test_a_place_that_cannot_be_written_is_an_outage(counting, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SearchUnavailable, match=r"file/searches\.sqlite3"):
        CachedRetriever(counting, tmp_path / "file" / "searches.sqlite3")


def test_what_is_kept_is_readable(cached, path):
    cached.search(["river"], 1)
    with sqlite3.connect(path) as connection:
        ((fingerprint, query, k, passages),) = connection.execute("select * from results").fetchall()
    assert (fingerprint, query, k) == (cached.fingerprint, b"river", 1)
    assert json.loads(passages)[0][0] in {"a", "b", "c"}
