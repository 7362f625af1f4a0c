"""E5's way with a text, against the arithmetic done by hand on a BERT of two layers in the format E5 comes in."""

import json

import numpy as np
import pytest

from sesa_env import encoders
from sesa_env.encoders import E5_BASE_V2, PROFILES, SentenceTransformerEncoder, Truncating, make_encoder
from sesa_env.errors import InvalidInput
from sesa_env.retrieval.index import build_index, open_index, read_manifest

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")
faiss = pytest.importorskip("faiss")
torch = pytest.importorskip("torch")

E5 = PROFILES[E5_BASE_V2]
LONGEST = 24
TEXTS = ["the nile floods egypt", "rhine", "a river past basel and cologne and more"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random BERT saved as sentence-transformers saves E5: a transformer, mean pooling, normalisation."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    plain, saved = tmp_path_factory.mktemp("bert"), tmp_path_factory.mktemp("e5")
    words = sorted({word for text in TEXTS for word in text.split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (plain / "vocab.txt").write_text("\n".join([*special, "query", "passage", ":", *words]) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(str(plain / "vocab.txt"), model_max_length=LONGEST).save_pretrained(plain)
    config = transformers.BertConfig(
        vocab_size=len(special) + 3 + len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LONGEST,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(plain)
    parts = [Transformer(str(plain), max_seq_length=LONGEST), Pooling(16, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=parts, device="cpu").save(str(saved))
    return saved


@pytest.fixture(scope="module")
def encoder(folder):
    return SentenceTransformerEncoder(folder, profile=E5)


def by_hand(folder, texts):
    """Return the mean of the last hidden states over each text's real tokens, scaled to length 1."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:  # one by one, so that no padding is in the way
        tokens = tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
        with torch.no_grad():
            state_TD = model(**tokens).last_hidden_state[0]
        mean_D = state_TD.mean(dim=0)
        rows.append((mean_D / mean_D.norm()).numpy())
    return np.stack(rows)


@pytest.mark.parametrize(
    ("encode", "prefix"), [("encode_passages", "passage: "), ("encode_queries", "query: ")], ids=["passages", "queries"]
)
def test_prefix_pooling_and_length_are_those_of_e5(encoder, folder, encode, prefix):
    vector_ND = getattr(encoder, encode)(TEXTS)
    assert vector_ND.dtype == np.float32
    np.testing.assert_allclose(vector_ND, by_hand(folder, [prefix + text for text in TEXTS]), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vector_ND, axis=1), 1.0, atol=1e-6)
    assert np.abs(vector_ND - by_hand(folder, TEXTS)).max() > 1e-3  # without the prefix it is another vector


def test_a_typed_prefix_is_the_prefix(encoder):
    assert np.array_equal(encoder.encode_queries([f"query: {TEXTS[0]}"]), encoder.encode_queries(TEXTS[:1]))


def test_the_settings_say_how_it_was_done(encoder, folder):
    assert encoder.settings == {
        "encoder": str(folder),
        "dimension": 16,
        "query_prefix": "query: ",
        "passage_prefix": "passage: ",
        "pooling": "mean",
        "max_length": LONGEST,
        "normalise": True,
    }
    assert encoder.max_similarity == 0.93


def test_the_registered_name_has_the_profile(folder, encoder, monkeypatch):
    monkeypatch.setattr(encoders, "_source", lambda model: str(folder) if model == E5_BASE_V2 else model)
    named = make_encoder("e5-base-v2")
    assert named.fingerprint == encoder.fingerprint
    assert np.array_equal(named.encode_queries(TEXTS), encoder.encode_queries(TEXTS))


def test_a_folder_without_a_profile_is_refused(folder):
    with pytest.raises(InvalidInput, match="profile"):
        make_encoder(str(folder))


def test_what_is_not_read_of_a_text_counts_the_prefix(encoder):
    assert isinstance(encoder, Truncating)
    most = LONGEST - 4  # [CLS] query : ... [SEP]
    assert not encoder.truncates_query(" ".join(["nile"] * most))
    assert encoder.truncates_query(" ".join(["nile"] * (most + 1)))


def test_an_index_made_with_it_opens_with_its_profile(encoder, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    rows = [
        {"id": str(number), "title": f"t{number}", "contents": f'"t{number}"\n{text}'}
        for number, text in enumerate(TEXTS)
    ]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index(corpus, tmp_path / "index", backend="dense", encoder=encoder)
    settings = read_manifest(tmp_path / "index").settings
    assert (settings["query_prefix"], settings["passage_prefix"], settings["pooling"]) == (
        "query: ",
        "passage: ",
        "mean",
    )
    opened = open_index(tmp_path / "index", corpus=corpus)
    assert opened._encoder.settings == encoder.settings
    score = opened.search([TEXTS[0]], 3)[0]
    query_D = encoder.encode_queries(TEXTS[:1])[0]
    expected = sorted((encoder.encode_passages([row["contents"]])[0] @ query_D for row in rows), reverse=True)
    assert [passage.score for passage in score] == pytest.approx(expected, abs=1e-5)
