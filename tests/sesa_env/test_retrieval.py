import math
import pickle
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sesa_env.errors import CorpusError, InvalidInput
from sesa_env.retrieval import bm25, lucene
from sesa_env.retrieval.base import Retriever
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.retrieval.terms import MAX_TERMS, capped, terms
from sesa_env.types import Passage

PASSAGES = [
    Passage("p01", "Lake Ona", "A deep lake in the hills of Varn, known for its silver trout."),
    Passage("p02", "Varn (town)", "Varn is a market town. Its blue gate was painted by Ilse Roth."),
    Passage("p03", "Ilse Roth", "Painter and engraver, born in 1871 beside the river Melk."),
    Passage("p04", "Melk Bridge", "A stone bridge of seven arches; the river below it floods in spring."),
    Passage("p05", "Ångström Institute", "A laboratory for spectra, named after the physicist Ångström."),
    Passage("p06", "斯特拉斯堡大学", "斯特拉斯堡大学位于法国东部，历史悠久。"),
    Passage("p07", "東京の駅", "東京の駅は朝とても混雑する。"),
    Passage(
        "p08",
        "Party sign \N{PARTY POPPER}",
        "The sign \N{PARTY POPPER} stands for a feast, \N{OLD PERSIAN SIGN A} for a vowel.",
    ),
    Passage("p09", "Twin A", "Copper kettles ring twice."),
    Passage("p10", "Twin B", "Copper kettles ring twice."),
    Passage("p11", "Twin C", "Copper kettles ring twice."),
    Passage("p12", "", 'A passage without a title, which tells of "quinces".'),
    Passage("p13", "C++", "A programming language that came out in 1983 AND is used still."),
    Passage("p14", "Ligature", "The word e\ufb03cient is set with a ligature; \uff26ull width too."),
]
BACKENDS = ["bm25", pytest.param("lucene", marks=pytest.mark.skipif(not find_spec("pyserini"), reason="no Pyserini"))]


@pytest.fixture(scope="module", params=BACKENDS)
def retriever(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "index"
    part = {"bm25": bm25, "lucene": lucene}[request.param]
    part.write_index(PASSAGES, folder)
    return part.open_folder(folder, "fingerprint of the corpus")


def ids(retriever, query, k=20):
    return [passage.id for passage in retriever.search([query], k)[0]]


# What every retriever promises


def test_it_is_a_retriever(retriever):
    assert isinstance(retriever, Retriever)
    assert len(retriever.fingerprint) == 16
    int(retriever.fingerprint, base=16)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("silver trout", "p01"),
        ("Who painted the blue gate?", "p02"),
        ("engraver born 1871", "p03"),
        ("Varn town", "p02"),
        ("quinces", "p12"),
        ("斯特拉斯堡 · 大学", "p06"),
        ("東京", "p07"),
        ("efficient", "p14"),
        ("full width", "p14"),
        ("who wrote: C++ (1983)? AND/OR [x]~", "p13"),
        ("trout:^2 +(silver -lake) \\ /a/ {x TO y}", "p01"),
    ],
)
def test_the_right_passage_comes_first(retriever, query, best):
    assert ids(retriever, query)[0] == best


def test_title_and_text_come_back_as_they_were(retriever):
    expected = {passage.id: (passage.title, passage.text) for passage in PASSAGES}
    queries = [f"{passage.title} {passage.text}" for passage in PASSAGES]
    for passage, found in zip(PASSAGES, retriever.search(queries, 3), strict=True):
        assert passage.id in [hit.id for hit in found]
        assert all((hit.title, hit.text) == expected[hit.id] for hit in found)


def test_a_word_of_the_title_alone_is_searched(retriever):
    assert ids(retriever, "institute") == ["p05"]
    assert ids(retriever, "ligature")[0] == "p14"


@pytest.mark.parametrize(
    "query",
    [
        "",
        " \n\t ",
        "+",
        "*",
        "!!! ??? ...",
        "\x00\x1f",
        "\ud83d",
        "the of and",
        "zyxwvut qqqq",
        "zyxwvut*",
        "a" * 20_000,
    ],
)
def test_a_query_without_a_known_term_finds_nothing(retriever, query):
    assert retriever.search([query], 5) == [[]]


def test_both_forms_of_an_accented_letter_are_one(retriever):
    composed, decomposed = (unicodedata.normalize(form, "Ångström spectra") for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert retriever.search([composed], 5) == retriever.search([decomposed], 5)
    assert ids(retriever, unicodedata.normalize("NFD", "Ångström")) == ["p05"]


def test_characters_beyond_sixteen_bits_find_and_come_back(retriever):
    assert ids(retriever, "\N{PARTY POPPER}") == ["p08"]
    found = retriever.search(["lake \N{PARTY POPPER} \N{GRINNING FACE} vowel"], 2)[0]
    assert found[0] == Passage("p08", PASSAGES[7].title, PASSAGES[7].text, found[0].score)


def test_half_a_surrogate_pair_does_not_hide_the_rest(retriever):
    assert retriever.search(["silver \ud83d trout \udc00"], 5) == retriever.search(["silver trout"], 5)


@pytest.mark.parametrize("filler", ["w{}", "\N{CJK UNIFIED IDEOGRAPH-4E00}{}", "\N{GRINNING FACE}{} "])
def test_a_very_long_query_is_cut_by_distinct_terms(retriever, filler):
    long = "trout " * 30 + " ".join(filler.format(number) for number in range(5000))
    assert ids(retriever, long)[0] == "p01"
    beyond = " ".join(f"w{number}" for number in range(2 * MAX_TERMS)) + " trout"
    assert ids(retriever, beyond) == []


def test_twenty_thousand_different_signs_are_safe(retriever):
    assert isinstance(retriever.search(["".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))], 3)[0], list)
    assert isinstance(retriever.search(["".join(map(chr, range(0x1F000, 0x1FB00))) * 8], 3)[0], list)


def test_one_endless_word_is_safe(retriever):
    assert retriever.search(["".join(f"{number:0255d}" for number in range(1100))], 3) == [[]]


def test_scores_fall_and_are_positive(retriever):
    scores = [passage.score for passage in retriever.search(["the river and the lake of Varn town"], 20)[0]]
    assert len(scores) >= 4
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0
    assert type(scores[0]) is float


@pytest.mark.parametrize("k", [1, 2])
def test_no_more_than_k(retriever, k):
    everything = retriever.search(["river lake Varn"], 20)[0]
    assert retriever.search(["river lake Varn"], k)[0] == everything[:k]


def test_k_beyond_the_corpus_gives_what_there_is(retriever):
    assert ids(retriever, "copper kettles", 10**12) == ["p09", "p10", "p11"]
    assert ids(retriever, "copper kettles", np.int64(500)) == ["p09", "p10", "p11"]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_ties_always_fall_the_same_way(retriever, k):
    assert ids(retriever, "kettles", k) == ["p09", "p10", "p11"][:k]


def test_a_batch_is_the_same_as_one_by_one(retriever):
    queries = ["silver trout", "", "river", "silver trout", "zyxwvut", "東京", "\N{PARTY POPPER}"] * 60
    batch = retriever.search(queries, 3)
    assert batch == [retriever.search([query], 3)[0] for query in queries[:7]] * 60
    batch[0].clear()
    assert batch[3] == retriever.search(["silver trout"], 3)[0]


def test_different_queries_find_different_passages(retriever):
    found = retriever.search(["trout", "gate", "engraver", "arches", "laboratory"], 1)
    assert [hits[0].id for hits in found] == ["p01", "p02", "p03", "p04", "p05"]


def test_no_queries_no_results(retriever):
    assert retriever.search([], 3) == []


@pytest.mark.parametrize("k", [0, -1, True, 1.5, None, "3"])
def test_a_bad_k_is_refused(retriever, k):
    with pytest.raises(InvalidInput, match="k must be"):
        retriever.search(["lake"], k)


@pytest.mark.parametrize("queries", ["lake", b"lake", [None], ["lake", 3]])
def test_bad_queries_are_refused(retriever, queries):
    with pytest.raises(InvalidInput, match="queries"):
        retriever.search(queries, 3)


def test_eight_threads_get_what_one_gets(retriever):
    queries = ["silver trout", "blue gate", "river", "kettles", "東京"]
    expected = retriever.search(queries, 3)
    with ThreadPoolExecutor(max_workers=8) as pool:
        results = list(pool.map(lambda _: retriever.search(queries, 3), range(64)))
    assert results == [expected] * 64


def test_a_pickled_copy_searches_too(retriever):
    expected = retriever.search(["river"], 3)
    copy = pickle.loads(pickle.dumps(retriever))
    assert copy.fingerprint == retriever.fingerprint
    assert copy.search(["river"], 3) == expected
    assert pickle.loads(pickle.dumps(copy)).search(["river"], 3) == expected
    copy.close()


def test_closing_twice_is_harmless_and_searching_opens_again(retriever):
    expected = retriever.search(["river"], 3)
    copy = pickle.loads(pickle.dumps(retriever))
    copy.close()
    assert copy.search(["river"], 3) == expected
    copy.close()
    copy.close()
    assert copy.search(["river"], 3) == expected == retriever.search(["river"], 3)
    copy.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.characters()) | st.text(alphabet='+-&|!(){}[]^"~*?:\\/ abtrout', min_size=5))
def test_no_string_breaks_it(retriever, query):
    found = retriever.search([query], 3)[0]
    assert all(passage.score > 0 for passage in found)


# The terms


def test_the_terms_of_many_scripts():
    assert terms("Ångström's 2nd CAFÉ") == ["ångström", "s", "2nd", "café"]
    assert terms("東京x") == ["東", "東京", "京", "x"]
    assert terms("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert terms("1\u2764\ufe0f2") == ["1", "\u2764", "2"]
    assert terms("zero\u200bwidth\ufeffsigns") == ["zero", "width", "signs"]


@given(st.text(st.characters()))
def test_terms_are_whole_words_whatever_the_text(text):
    found = terms(text)
    assert all(term and not any(sign.isspace() for sign in term) for term in found)
    assert found == terms(unicodedata.normalize("NFD", text)) == terms(unicodedata.normalize("NFC", text))


def test_the_cap_keeps_short_queries_whole():
    assert capped(["a", "b", "a"]) == ["a", "b", "a"]
    assert capped(["a"] * MAX_TERMS) == ["a"] * MAX_TERMS
    assert capped(["a"] * MAX_TERMS + ["b"]) == ["a", "b"]
    assert capped([str(number) for number in range(MAX_TERMS + 1)])[-1] == str(MAX_TERMS - 1)


# What only the one in memory promises


def test_scores_are_those_of_the_formula():
    texts = ["red fox red", "red hen", "grey goose flew over grey water", "hen"]
    retriever = Bm25Retriever.from_passages([Passage(str(n), "", text) for n, text in enumerate(texts)], "c")
    words = [text.split() for text in texts]
    mean = sum(map(len, words)) / len(words)

    def score(query, document):
        total = 0.0
        for term in query.split():
            holding = sum(term in other for other in words)
            rarity = math.log(1 + (len(words) - holding + 0.5) / (holding + 0.5))
            count = document.count(term)
            total += rarity * count / (count + 0.9 * (1 - 0.4 + 0.4 * len(document) / mean))
        return total

    expected = {str(n): score("red hen", document) for n, document in enumerate(words)}
    found = {passage.id: passage.score for passage in retriever.search(["red hen"], 9)[0]}
    assert found == pytest.approx({name: value for name, value in expected.items() if value}, rel=1e-5)
    assert list(found) == sorted(found, key=lambda name: -expected[name])


def test_equal_scores_keep_the_order_of_a_large_corpus():
    texts = ["word other", "word word"] * 300
    retriever = Bm25Retriever.from_passages([Passage(str(n), "", text) for n, text in enumerate(texts)], "c")
    order = [str(n) for n in (*range(1, 600, 2), *range(0, 600, 2))]
    assert ids(retriever, "word", 600) == order
    assert ids(retriever, "word", 307) == order[:307]


@pytest.mark.parametrize("passages", [[], [Passage("1", "", "the ... of")]])
def test_nothing_to_search_is_refused(passages):
    with pytest.raises(CorpusError, match="searchable"):
        Bm25Retriever.from_passages(passages, "c")


def test_passages_without_terms_do_no_harm():
    passages = [Passage("1", "", "..."), Passage("2", "", "a lake"), Passage("3", "", "!")]
    assert ids(Bm25Retriever.from_passages(passages, "c"), "lake") == ["2"]


def test_the_name_changes_with_the_corpus_and_the_back_end(retriever):
    other = Bm25Retriever.from_passages(PASSAGES, "another corpus")
    same = Bm25Retriever.from_passages(PASSAGES, "fingerprint of the corpus")
    assert other.fingerprint != retriever.fingerprint
    assert (same.fingerprint == retriever.fingerprint) == isinstance(retriever, Bm25Retriever)


@given(
    st.integers(1, 40), st.integers(0, 3000), st.sampled_from([2, 5, 1000, 10**9]), st.floats(0.0, 1.0), st.integers(0)
)
def test_the_best_are_those_of_a_full_sort_with_ties_in_the_order_of_the_corpus(k, passages, values, zeros, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, values, size=passages).astype(np.float32)
    scores[rng.random(passages) < zeros] = 0.0
    wanted = sorted((place for place in range(passages) if scores[place] > 0), key=lambda place: -scores[place])[:k]
    assert bm25._best(scores, k).tolist() == wanted
