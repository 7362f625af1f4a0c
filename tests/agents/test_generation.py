"""What is kept between turns must change nothing but the time: tokens and log-probabilities are those of a fresh pass.

TRAPS C8, C9, D9, D10, D12, I4.
"""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from agents.generation import Writer, attention
from agents.generation.attention import HIDDEN, NAME, Scores, Shared, look_up, look_up_once
from sesa_env.errors import InvalidInput

VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
WINDOW = 24  # shorter than the texts below, so that it hides something
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=WINDOW)),
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SIZES, head_dim=8, sliding_window=WINDOW, attn_logit_softcapping=2.0, query_pre_attn_scalar=8)
    ),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **SIZES, head_dim=8, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"]
        )
    ),
}


def build(family):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FAMILIES[family]().eval()
        with torch.no_grad():  # large enough for attention to matter to what is written
            for tensor in model.parameters():
                if tensor.dim() == 2:
                    tensor.normal_(std=0.25)
    model.set_attn_implementation("eager")
    return model


@pytest.fixture(scope="module", params=FAMILIES)
def any_model(request):
    return build(request.param)


@pytest.fixture(scope="module")
def model():
    return build("llama")


def make_writer(model, **changes):
    return Writer(model, **{"end_ids": (), "side_by_side": 4, "max_context": 512, **changes})


def write(writer, prompts, *, temperature=0.0, seed=0, steps=8, stopped=lambda ids: False, names=None):
    return writer.write(
        prompts,
        stopped=stopped,
        max_new_tokens=steps,
        temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
        names=names,
    )


def tokens(rng, length):
    return [rng.randrange(VOCABULARY) for _ in range(length)]


def plain_logps(model, prompt, completion, temperature=1.0):
    """Log-probabilities of a completion by one forward pass over the whole text."""
    token_1T = torch.tensor([[*prompt, *completion]])
    with torch.no_grad():
        logp_TV = (model(token_1T).logits[0].float() / temperature).log_softmax(dim=-1)
    return logp_TV[len(prompt) - 1 : -1].gather(-1, token_1T[0, len(prompt) :, None]).squeeze(-1).tolist()


def greedy(model, prompt, steps):
    """What `transformers` writes after the prompt."""
    token_1T = torch.tensor([prompt])
    out_1T = model.generate(token_1T, attention_mask=torch.ones_like(token_1T), max_new_tokens=steps, do_sample=False)
    return tuple(out_1T[0, len(prompt) :].tolist())


PROMPTS = [[5, 6, 7, 8], [5, 6, 9], [5, 6, 7, 8, 10, 11, 12, 13, 14], [5, 6, 7, 8]]


def test_turn_after_turn_it_writes_what_transformers_writes_after_the_whole_text(any_model):
    """Ragged lengths, equal prompts, a shared beginning, turns that stop early, attempts that pause."""
    rng = random.Random(1)
    start = tokens(rng, 70)
    texts = [start + tokens(rng, length) for length in (3, 9, 20, 5, 12)]
    texts.append(list(texts[0]))
    writer = make_writer(any_model)
    for turn in range(4):
        playing = [row for row in range(len(texts)) if turn == 0 or rng.random() < 0.7]
        prompts = [texts[row] for row in playing]
        completions = write(
            writer, prompts, stopped=lambda ids: ids[-1] % 7 == 0, names=[f"episode {row}" for row in playing]
        )
        for row, prompt, completion in zip(playing, prompts, completions, strict=True):
            assert completion.token_T == greedy(any_model, prompt, len(completion.token_T))
            assert completion.logp_T == pytest.approx(plain_logps(any_model, prompt, completion.token_T), abs=1e-4)
            texts[row] = [*prompt, *completion.token_T, *tokens(rng, rng.randrange(1, 30))]


def test_rows_of_several_roots_and_of_none_are_written_side_by_side(any_model):
    rng = random.Random(4)
    starts = [tokens(rng, length) for length in (70, 140)]
    texts = [start + tokens(rng, length) for start in starts for length in (3, 9)]
    writer, names = make_writer(any_model, side_by_side=5), list("abcd")
    for first in (0, 2):  # each pair finds its own root
        written = write(writer, texts[first : first + 2], steps=4, names=names[first : first + 2])
        for row, one in enumerate(written, start=first):
            texts[row] = [*texts[row], *one.token_T, *tokens(rng, 3)]
    texts.append(tokens(rng, 30))
    for text, one in zip(texts, write(writer, texts, names=[*names, "e"]), strict=True):
        assert one.token_T == greedy(any_model, text, 8)
        assert one.logp_T == pytest.approx(plain_logps(any_model, text, one.token_T), abs=1e-4)


@settings(max_examples=30)
@given(data=st.data())
def test_any_order_of_turns_in_any_company_gives_what_each_text_alone_gives(model, data):
    rng = random.Random(data.draw(st.integers(0, 10**6)))
    start = tokens(rng, data.draw(st.sampled_from([0, 10, 75])))
    texts = [start + tokens(rng, rng.randrange(1, 20)) for _ in range(5)]
    texts += [list(text) for text in texts[: data.draw(st.integers(0, 3))]]
    writer = make_writer(
        model, side_by_side=data.draw(st.integers(1, 4)), max_context=data.draw(st.sampled_from([64, 512]))
    )
    for _ in range(4):
        playing = data.draw(st.lists(st.sampled_from(range(len(texts))), unique=True, min_size=1))
        completions = write(
            writer,
            [texts[row] for row in playing],
            steps=5,
            stopped=lambda ids: ids[-1] % 5 == 0,
            names=[str(row) for row in playing],
        )
        for row, completion in zip(playing, completions, strict=True):
            (alone,) = write(make_writer(model), [texts[row]], steps=5, stopped=lambda ids: ids[-1] % 5 == 0)
            assert completion.token_T == alone.token_T
            assert completion.finish == alone.finish
            assert completion.logp_T == pytest.approx(alone.logp_T, abs=1e-4)
            texts[row] = [*texts[row], *completion.token_T, *tokens(rng, rng.randrange(1, 9))]


def test_each_token_is_read_once_and_equal_prompts_are_read_together(model):
    seen = []
    hook = model.get_input_embeddings().register_forward_pre_hook(lambda module, args: seen.append(args[0].numel()))
    rng = random.Random(2)
    start = tokens(rng, 70)
    questions = [start + tokens(rng, 10), start + tokens(rng, 15)]
    prompts, names = [*[questions[0]] * 3, *[questions[1]] * 3], list("abcdef")
    writer = make_writer(model, side_by_side=6)
    try:
        first = write(writer, prompts, temperature=1.0, steps=4, names=names)
        # The last token of a turn is not read before the next turn.
        # 64 of the start; 16 + 21; and 6 three times, made up to multiples of 32 and of 8.
        assert sum(seen) == 64 + 64 + 8 * 3
        seen.clear()
        observations = [tokens(rng, length) for length in (7, 3, 9, 1, 5, 6)]
        grown = [[*p, *c.token_T, *o] for p, c, o in zip(prompts, first, observations, strict=True)]
        write(writer, grown, temperature=1.0, steps=4, names=names)
        assert sum(seen) == 64 + 8 * 3  # 6 + 31
    finally:
        hook.remove()


def test_a_beginning_found_once_is_shared_by_those_who_come_later(model):
    seen = []
    hook = model.get_input_embeddings().register_forward_pre_hook(lambda module, args: seen.append(args[0].numel()))
    rng = random.Random(3)
    start = tokens(rng, 70)
    writer = make_writer(model)
    late = [start + tokens(rng, 6), start + tokens(rng, 8)]
    try:
        write(writer, [start + tokens(rng, 10)] * 2, steps=1, names=["a", "b"])  # its beginning is all of the prompt
        seen.clear()
        completions = write(writer, late, steps=1, names=["c", "d"])
        assert sum(seen) == 32  # 12 + 14
    finally:
        hook.remove()
    assert [one.token_T for one in completions] == [greedy(model, prompt, 1) for prompt in late]


def train_a_little(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    model(torch.tensor([[1, 2, 3]])).logits.square().mean().backward()
    optimizer.step()


def load(model):
    model.load_state_dict({name: tensor * 1.5 for name, tensor in model.state_dict().items()})


def replace(model):
    layer = model.model.layers[0].mlp.down_proj
    layer.weight = torch.nn.Parameter(layer.weight.detach() * -1.0)


@pytest.mark.parametrize("change", [train_a_little, load, replace])
def test_nothing_computed_with_other_weights_is_used_again(change):
    model = build("llama")
    writer = make_writer(model)
    prompts = [[*range(70), 50], [*range(70), 60, 61]]
    before = write(writer, prompts, names=["a", "b"])
    grown = [[*p, *c.token_T, 70] for p, c in zip(prompts, before, strict=True)]
    change(model)
    model.zero_grad()
    for prompt, completion in zip(grown, write(writer, grown, names=["a", "b"]), strict=True):
        assert completion.logp_T == pytest.approx(plain_logps(model, prompt, completion.token_T), abs=1e-4)
        assert completion.token_T == greedy(model, prompt, len(completion.token_T))


def test_a_text_that_does_not_go_on_where_it_ended_is_read_anew(model):
    writer = make_writer(model)
    write(writer, [[1, 2, 3, 4]], names=["a"])
    for prompt in ([1, 2, 9, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], [1, 2], [1, 2, 3, 4]):
        (completion,) = write(writer, [prompt], names=["a"])
        assert completion.token_T == greedy(model, prompt, 8)


def test_what_is_kept_is_bounded_and_freed(model):
    rng = random.Random(4)
    writer = make_writer(model, side_by_side=2, max_context=100)
    texts = [tokens(rng, 30) for _ in range(8)]
    for _ in range(3):
        completions = write(writer, texts, steps=4, names=[str(row) for row in range(8)])
        assert 0 < len(writer.kept) < 8
        assert writer.kept.tokens <= 2 * 100
        texts = [[*text, *one.token_T, 1, 2] for text, one in zip(texts, completions, strict=True)]
    writer.forget(str(row) for row in range(8))
    assert (len(writer.kept), writer.kept.tokens) == (0, 0)
    write(writer, texts, steps=4)  # without names nothing is kept
    assert len(writer.kept) == 0


def test_attempts_in_use_are_not_pushed_out_by_newer_ones(model):
    writer = make_writer(model, side_by_side=1, max_context=200)  # room for two of these
    texts = [[*range(66), *tokens(random.Random(row), 50)] for row in range(3)]
    names = ["a", "b", "c"]
    first = write(writer, texts, steps=2, names=names)
    kept = [name for name in names if name in writer.kept]
    assert len(kept) == 2
    write(writer, [[*text, *one.token_T, 3] for text, one in zip(texts, first, strict=True)], steps=2, names=names)
    assert [name for name in names if name in writer.kept] == kept
    write(writer, texts[:2], steps=2, names=["d", "e"])  # the others may be done for all we know
    assert "d" in writer.kept


def test_rows_that_end_are_dropped_and_do_not_disturb_the_others(model):
    whole = write(make_writer(model), PROMPTS)
    first_token = whole[0].token_T[0]
    ended = write(make_writer(model, end_ids={first_token}), PROMPTS)
    assert (ended[0].token_T, ended[0].finish) == ((first_token,), "end")
    for before, after in zip(whole, ended, strict=True):
        assert after.token_T == before.token_T[: len(after.token_T)]
        assert after.finish == ("end" if first_token in before.token_T else "length")


def test_a_stop_keeps_the_token_that_completed_it(model):
    completions = write(make_writer(model), PROMPTS, stopped=lambda ids: len(ids) == 3)
    assert [(len(one.token_T), one.finish) for one in completions] == [(3, "stop")] * len(PROMPTS)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_logps_are_those_of_a_plain_pass_at_the_same_temperature(model, temperature):
    completions = write(make_writer(model), PROMPTS, temperature=temperature)
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        expected = plain_logps(model, prompt, completion.token_T, temperature)
        assert completion.logp_T == pytest.approx(expected, abs=1e-4)


def test_a_seed_decides_what_is_drawn_whatever_the_batches(model):
    def drawn(seed, side_by_side):
        completions = write(make_writer(model, side_by_side=side_by_side), PROMPTS, temperature=1.0, seed=seed)
        return [one.token_T for one in completions]

    assert drawn(1, 4) == drawn(1, 4) == drawn(1, 3) == drawn(1, 1)
    assert drawn(1, 4) != drawn(2, 4)
    assert drawn(1, 4)[0] != drawn(1, 4)[3]  # equal prompts draw for themselves


def test_sampling_leaves_the_global_random_state_alone(model):
    before = torch.random.get_rng_state()
    write(make_writer(model), PROMPTS, temperature=1.0)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("root", [0, 70])
def test_bfloat16_stays_within_its_rounding_of_a_plain_pass(root):
    model = build("llama").to(torch.bfloat16)
    rng = random.Random(5)
    shared = tokens(rng, root)
    texts = [shared + tokens(rng, length) for length in (40, 12, 25)]
    writer = make_writer(model)
    for _ in range(3):
        completions = write(writer, texts, temperature=1.0, names=["a", "b", "c"])
        for text, completion in zip(texts, completions, strict=True):
            # Logits here go up to about 10, where neighbouring bfloat16 numbers are 1/16 apart.
            assert completion.logp_T == pytest.approx(plain_logps(model, text, completion.token_T), abs=0.25)
        texts = [[*text, *one.token_T, 1, 2, 3] for text, one in zip(texts, completions, strict=True)]


def test_autocast_is_followed_and_its_end_noticed(model):
    writer, prompt = make_writer(model), [*range(70)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (coarse,) = write(writer, [prompt], names=["a"])
        assert coarse.logp_T == pytest.approx(plain_logps(model, prompt, coarse.token_T), abs=0.25)
    grown = [*prompt, *coarse.token_T, 3]
    (fine,) = write(writer, [grown], names=["a"])
    assert fine.logp_T == pytest.approx(plain_logps(model, grown, fine.token_T), abs=1e-4)


def test_autocast_casts_a_weight_once_for_all_tokens(model):
    weight = model.model.layers[0].mlp.up_proj.weight
    casts = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, arguments=(), how=None):
            if operation is torch.ops.aten._to_copy.default and arguments[0].data_ptr() == weight.data_ptr():
                casts.append(how["dtype"])
            return operation(*arguments, **(how or {}))

    with torch.autocast("cpu", dtype=torch.bfloat16), Watch():
        write(make_writer(model), [[1, 2, 3]])
    assert casts == [torch.bfloat16]


def test_the_model_gets_its_own_attention_back(model):
    def fail(ids):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write(make_writer(model), PROMPTS, stopped=fail)
    assert model.config._attn_implementation == "eager" != NAME
    model(torch.tensor([[1, 2]])).logits.sum().backward()  # and can be trained as before
    model.zero_grad()


ROPE = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
LAYERS = {"num_hidden_layers": 2, "vocab_size": VOCABULARY}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=ROPE)), "rotary embedding 'dynamic'"),
        (lambda: Qwen3NextForCausalLM(Qwen3NextConfig(**SIZES, layer_types=["linear_attention"] * 2)), "linear_attent"),
        (lambda: GptOssForCausalLM(GptOssConfig(**SIZES, head_dim=8, num_local_experts=2)), "s_aux"),
        (lambda: BloomForCausalLM(BloomConfig(**LAYERS, hidden_size=32, n_head=4)), "0 of its 2 layers"),
        (lambda: MambaForCausalLM(MambaConfig(**LAYERS, hidden_size=32)), "no attention heads"),
    ],
)
def test_a_model_whose_keys_cannot_be_kept_is_refused(make, says):
    with pytest.raises(InvalidInput, match=says):
        write(make_writer(make().eval()), [[1, 2, 3]])


@pytest.mark.parametrize("names", [["a"], ["a", "a", "b", "c"]])
def test_names_that_do_not_tell_the_texts_apart_are_refused(model, names):
    with pytest.raises(InvalidInput, match="4 different"):
        write(make_writer(model), PROMPTS, names=names)


@pytest.mark.parametrize("at_once", [16, 128])  # queries in parts, and all at once
@pytest.mark.parametrize("window", [None, 1, 10, 50, 100])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_attention_to_ones_own_text_is_what_plain_arithmetic_finds(monkeypatch, at_once, window, softcap):
    monkeypatch.setattr(attention, "_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(3, 2, 37, 8, generator=generator)
    key, value = torch.randn(2, 3, 79, 8, generator=generator)
    seen = torch.ones(37, 79, dtype=torch.bool).tril(42)
    if window is not None:
        seen &= torch.ones(37, 79, dtype=torch.bool).triu(42 - window + 1)
    score = 0.3 * query @ key.transpose(-1, -2)[:, None]
    score = score if softcap is None else softcap * (score / softcap).tanh()
    expected = score.masked_fill(~seen, -torch.inf).softmax(-1) @ value[:, None]
    found = look_up(query, key, value, Scores(0.3, window=window, softcap=softcap))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("hiding", [False, True])
@pytest.mark.parametrize("roots_of", [[0, 0, 0, 0, 0], [0, 1, 0, None, 1], [None] * 5])
def test_one_query_a_row_finds_what_attention_to_root_and_row_in_one_piece_does(hiding, softcap, roots_of):
    generator = torch.Generator().manual_seed(0)
    rows, heads, groups, keys, size = 5, 2, 3, 7, 8
    query_NHGD = torch.randn(rows, heads, groups, size, generator=generator)
    key_NHKD, value_NHKD = torch.randn(2, rows, heads, keys, size, generator=generator)
    roots_2HRD = [torch.randn(2, heads, length, size, generator=generator) for length in (64, 128)]
    hidden_NK = torch.rand(rows, keys, generator=generator) < 0.5
    hidden_NK[0, 1:] = True
    hidden_NK[0, 0] = roots_of[0] is not None  # a row that sees the root alone
    bias_N11K = torch.zeros(rows, 1, 1, keys).masked_fill(hidden_NK[:, None, None], HIDDEN)
    bias_NR = torch.zeros(rows, 128).masked_fill(torch.rand(rows, 128, generator=generator) < 0.5, HIDDEN)
    if not hiding:
        bias_NR.zero_()
    shared = []
    for number in sorted({root for root in roots_of if root is not None}):
        kv_2HRD, places = roots_2HRD[number], [row for row, root in enumerate(roots_of) if root == number]
        bias = bias_NR[places, : kv_2HRD.shape[2]] if hiding else None
        shared.append(Shared(kv_2HRD, None if len(places) == rows else torch.tensor(places), bias))
    scores = Scores(0.4, softcap=softcap)
    found_NHGD = look_up_once(query_NHGD, key_NHKD, value_NHKD, scores, bias_N11K=bias_N11K, roots=shared)
    for row, number in enumerate(roots_of):
        root_2HRD = roots_2HRD[number] if number is not None else torch.zeros(2, heads, 0, size)
        key_HTD, value_HTD = (
            torch.cat([root, own], dim=1) for root, own in zip(root_2HRD, (key_NHKD[row], value_NHKD[row]), strict=True)
        )
        score_HGT = 0.4 * query_NHGD[row] @ key_HTD.transpose(-1, -2)
        score_HGT = score_HGT if softcap is None else softcap * (score_HGT / softcap).tanh()
        bias_T = torch.cat([bias_NR[row, : root_2HRD.shape[2]], bias_N11K[row, 0, 0]])
        expected_HGD = (score_HGT + bias_T).softmax(-1) @ value_HTD
        torch.testing.assert_close(found_NHGD[row], expected_HGD, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("shared", "root"), [(63, 0), (64, 64), (130, 128)])
def test_roots_have_few_lengths(model, shared, root):
    rng = random.Random(6)
    start = tokens(rng, shared)
    writer = make_writer(model)
    write(writer, [[*start, 1], [*start, 2, 3]], steps=1, names=["a", "b"])
    assert (0 if writer.kept.root is None else len(writer.kept.root)) == root


def test_texts_that_end_one_by_one_need_few_shapes_of_products(model):
    rows = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, arguments=(), how=None):
            if operation is torch.ops.aten.mm.default:
                rows.add(len(arguments[0]))
            elif operation is torch.ops.aten.bmm.default:
                rows.add(len(arguments[0]) // model.config.num_key_value_heads)
            return operation(*arguments, **(how or {}))

    rng = random.Random(5)
    prompts = [tokens(rng, 40 + 3 * row) for row in range(11)]
    ends = dict(enumerate(range(2, 13)))
    with Watch():
        written = write(
            make_writer(model, side_by_side=11), prompts, steps=12, stopped=lambda ids: len(ids) >= ends[ids[0] % 11]
        )
    assert len({len(one.token_T) for one in written}) > 3
    assert {count for count in rows if count % 8} <= {len(prompts)}  # the output layer


def test_reading_spans_of_many_lengths_needs_few_shapes_of_products():
    shapes = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, arguments=(), how=None):
            if operation is torch.ops.aten.mm.default:
                shapes.add(tuple(tuple(part.shape) for part in arguments))
            return operation(*arguments, **(how or {}))

    counts = []
    for queries, keys in ((17, 70), (25, 90), (32, 128)):
        query, key = torch.zeros(2, 2, queries, 8), torch.zeros(2, keys, 8)
        with Watch():
            look_up(query, key, key, Scores(1.0))
        counts.append(len(shapes))
    assert counts == [2] * 3
