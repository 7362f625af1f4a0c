"""A shared prompt that is run once, and layers that are run again: less work or memory, the same numbers."""

import dataclasses

import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from agents import attention
from agents.attention import BLOCKS
from agents.learner import Learner, LearnerSettings, Sample
from agents.scoring import Root, Row, Scorer, collate, micro_batches
from agents.tokens import TokenSequence
from sesa_env.errors import SettingsError

CPU = torch.device("cpu")
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny_model(attention="sdpa", **extra):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(**SHAPE, initializer_range=0.2, attn_implementation=attention, **extra)
        return LlamaForCausalLM(config)


def row(position, prompt, *parts, advantage=1.0):
    sequence = TokenSequence()
    sequence.append_context(prompt)
    for number, tokens in enumerate(parts):
        if number % 2:
            sequence.append_context(tokens)
        else:
            sequence.append_written(tokens, [-1.0] * len(tokens))
    return Row(position, sequence.freeze(episode=f"e{position}"), advantage)


def group(prompt=tuple(range(1, 41))):
    return [
        row(0, prompt, [30, 31], [40, 41, 42], [32]),
        row(1, prompt, [33]),
        row(2, prompt, [34, 35, 36], [43], [37], [44, 45], [38]),
    ]


def gradient_of(model, rows, *, at_once=10**6, **options):
    """Return the log-probabilities of each row, by position, and the gradient of all micro-batches together."""
    scorer = Scorer(model, temperature=1.0, device=CPU, **options)
    model.zero_grad()
    batches = scorer.batches(rows, tokens=at_once)
    root, logps = scorer.root(batches), {}
    for batch in batches:
        logp_NT, entropy_NT = scorer.logps(batch, root)
        (logp_NT.sum() + 0.1 * entropy_NT.sum()).backward()
        logps |= {one.position: logp_T for one, logp_T in zip(batch.rows, logp_NT.detach(), strict=True)}
    root.backward()
    return logps, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def tokens_run(model, rows, *, at_once=10**6):
    """Count what passes the first layer while rows are scored."""
    scorer = Scorer(model, temperature=1.0, device=CPU)
    seen = []
    hook = model.model.layers[0].register_forward_hook(lambda _, arguments, __: seen.append(arguments[0].shape[:2]))
    batches = scorer.batches(rows, tokens=at_once)
    root = scorer.root(batches)
    for batch in batches:
        scorer.logps(batch, root)
    hook.remove()
    return sum(shape.numel() for shape in seen)


@pytest.mark.parametrize("kind", ["sdpa", "eager", BLOCKS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("at_once", [1, 70, 10**6])  # a row each, rows of one question, all rows in a micro-batch
def test_a_shared_prompt_changes_neither_scores_nor_gradients(kind, dtype, at_once):
    model = tiny_model(kind).to(dtype)
    instructions = tuple(range(1, 41))
    rows = [*group((*instructions, *[50] * 40)), *(row(3 + i, (*instructions, *[51] * 33), [60, 61]) for i in range(2))]
    together, gradient = gradient_of(model, rows, at_once=at_once)
    alone = [gradient_of(model, [one]) for one in rows]
    for position, (logps, _) in enumerate(alone):
        logp_T = logps[position]
        found_T = together[position][: len(logp_T)]
        torch.testing.assert_close(found_T, logp_T, atol=1e-5 if dtype == torch.float32 else 0.1, rtol=0.0)
    expected = sum(each for _, each in alone)
    error = (gradient - expected).norm() / expected.norm()
    assert error < (1e-5 if dtype == torch.float32 else 0.05)


@pytest.mark.parametrize("trained", [["q_proj"], ["q_proj", "v_proj"], "all-linear"])
def test_the_root_of_adapters_has_the_gradient_of_whole_rows(trained):
    def gradient(at_once, rows):
        model = peft.get_peft_model(tiny_model(), peft.LoraConfig(target_modules=trained, init_lora_weights=False))
        scorer = Scorer(model, temperature=1.0, device=CPU)
        batches = scorer.batches(rows, tokens=at_once)
        root = scorer.root(batches)
        for batch in batches:
            scorer.logps(batch, root)[0].sum().backward()
        root.backward()
        return torch.cat([one.grad.flatten() for one in model.parameters() if one.requires_grad])

    def seeded(at_once, rows):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return gradient(at_once, rows)

    expected = sum(seeded(1, [one]) for one in group())
    torch.testing.assert_close(seeded(1, group()), expected, atol=1e-5, rtol=1e-4)


def test_the_root_keeps_the_number_formats_of_autocast(monkeypatch):
    formats, attend = set(), attention._Attend.apply
    monkeypatch.setattr(
        attention._Attend,
        "apply",
        lambda query, key, value, blocks: (
            formats.add((query.dtype, key.dtype, value.dtype)),
            attend(query, key, value, blocks),
        )[1],
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gradient_of(tiny_model(BLOCKS), group(), at_once=1)
    assert formats == {(torch.bfloat16,) * 3}


def test_a_shared_prompt_is_run_once_and_one_that_differs_is_not():
    rows = group()
    assert tokens_run(tiny_model(), rows) == 32 + 3 * 32  # multiples of 32 of a prompt of 40 and a longest of 48
    other = [*rows[:2], row(2, [9] * 40, [34])]
    assert tokens_run(tiny_model(), other) == 3 * 64


def test_what_all_micro_batches_begin_with_is_run_once_for_all_of_them():
    rows = group()
    assert tokens_run(tiny_model(), rows, at_once=1) == 32 + 3 * 32
    instructions = tuple(range(1, 41))
    questions = [*group((*instructions, *[50] * 40)), *(row(3 + i, [*instructions, *[9] * 40], [8]) for i in range(3))]
    # a root of 32; 32 more of the first question and 3 * 32 of its rows; two questions share 40 tokens
    assert tokens_run(tiny_model(), questions, at_once=100) == 32 + (32 + 3 * 32) + (32 + 3 * 32)


def test_a_prompt_that_is_the_beginning_of_another_is_shared_up_to_its_last_token():
    rows = [row(0, [1, 2, 3], [4, 5]), row(1, [1, 2, 3, 4, 5, 6], [7])]
    assert collate(rows, device=CPU).shared == 2
    assert collate(rows[:1], device=CPU).shared == 0


def test_a_model_that_forgets_runs_every_prompt_whole():
    config = MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=4, initializer_range=0.2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MistralForCausalLM(config).eval()
    assert tokens_run(model, group()) == 3 * 64


def test_micro_batches_put_attempts_at_one_question_together_when_that_leaves_less_to_run():
    long, short = tuple(range(2, 42)), tuple(range(42, 62))
    rows = [row(i, long if i % 2 else short, [1] * (3 + i)) for i in range(6)]
    parts = micro_batches(rows, tokens=66)  # 39 + 3 * 9 for the long prompt; nothing is shared by all
    assert sorted(sorted(one.position for one in part) for part in parts) == [[0, 2, 4], [1, 3, 5]]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 80),
    st.booleans(),
    st.booleans(),
)
def test_micro_batches_hold_every_row_once_and_keep_their_limit(shapes, limit, rooted, sharing):
    root = 64 if rooted and len(shapes) > 1 else 0
    rows = [
        row(i, [60] * root + ([1] * prompt if same else [2 + i] * prompt), [3] * written)
        for i, (prompt, written, same) in enumerate(shapes)
    ]
    parts = micro_batches(rows, tokens=limit, sharing=sharing)
    assert sorted(one.position for part in parts for one in part) == list(range(len(rows)))
    for part in parts:
        batch = collate(part, device=CPU)
        longest, shared = batch.token_NT.shape[1], max(batch.shared, root)
        run = shared - root + len(part) * (longest - shared) if sharing else len(part) * longest
        assert run <= limit or len(part) == 1
        assert (batch.token_NT[:, : batch.shared] == batch.token_NT[0, : batch.shared]).all()
        assert not batch.mask_NT[:, : batch.shared + 1].any()


# --- layers that are run again ---


def kept_bytes(model, rows, **options):
    """Measure what the forward pass keeps for the backward pass, weights left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    scorer = Scorer(model, temperature=1.0, device=CPU, **options)
    batch = collate(rows, device=CPU)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logp_NT, _ = scorer.logps(batch, Root())
    return sum(kept.values()), logp_NT


def test_gradient_checkpointing_is_active_and_changes_no_number():
    model = tiny_model(attention_dropout=0.5).eval()
    rows = [row(i, [i + 1] * 60, [5, 6, 7]) for i in range(4)]
    runs = []
    hook = model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    plain, gradient = gradient_of(model, rows)
    assert len(runs) == 3  # two of them look for the output layer
    again, same_gradient = gradient_of(model, rows, checkpointing=True)
    assert len(runs) == 3 + 4
    hook.remove()
    assert all(torch.equal(plain[position], again[position]) for position in range(4))
    torch.testing.assert_close(gradient, same_gradient)
    most, _ = kept_bytes(model, rows)
    least, _ = kept_bytes(model, rows, checkpointing=True)
    assert least < 0.5 * most
    assert "forward" not in vars(model.model.layers[0])  # everyone else finds the model as it was


def test_gradient_checkpointing_works_inside_an_update_with_dropout_off():
    def run(checkpointing):
        model = tiny_model(attention_dropout=0.5).train()
        settings = LearnerSettings(lr=1e-2, kl_coef=0.0, gradient_checkpointing=checkpointing)
        learner = Learner(model, model.parameters(), settings)
        trajectories = [one.trajectory for one in group()]
        scores = learner.score(trajectories)
        samples = [
            Sample(dataclasses.replace(one, logp_T=score), float(i == 0), "q")
            for i, (one, score) in enumerate(zip(trajectories, scores, strict=True))
        ]
        return learner.update(samples)

    plain, again = run(False), run(True)
    assert again.grad_norm == pytest.approx(plain.grad_norm, rel=1e-5)
    assert again.logp_gap_max < 1e-4


def test_a_model_without_layers_to_run_again_is_refused():
    model = tiny_model()
    model.model.layers = torch.nn.ModuleList()
    model.config.num_hidden_layers = 0
    with pytest.raises(SettingsError, match="gradient_checkpointing must be False with LlamaForCausalLM"):
        Scorer(model, temperature=1.0, device=CPU, checkpointing=True)
