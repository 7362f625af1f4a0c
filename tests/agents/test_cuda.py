"""What a GPU computes is what a processor computes: writing, an update, a checkpoint.

`SESA_TEST_DEVICE=cpu` runs them where there is no GPU, which tries the tests and shows nothing of one.
"""

import copy
import os
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from agents.config import resolve
from agents.generation import Writer
from agents.learner import Learner, LearnerSettings, Sample
from agents.seats import load_model, make_seats
from agents.tokens import TokenSequence
from skill_memory import NoMemory

DEVICE = os.environ.get("SESA_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]
CONFIG = LlamaConfig(
    vocab_size=97,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    eos_token_id=None,
    bos_token_id=None,
)


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(CONFIG).eval()


def prompts_of(*lengths):
    shared = torch.arange(40) * 7 % 90 + 3
    return [
        [*shared.tolist(), *((torch.arange(length) * (3 + row)) % 90 + 3).tolist()]
        for row, length in enumerate(lengths)
    ]


def test_turn_after_turn_it_writes_what_transformers_writes_greedily(model):
    model = model.to(DEVICE)
    writer = Writer(model, end_ids=(), side_by_side=4, max_context=512)
    generator, names = torch.Generator(DEVICE).manual_seed(0), ["a", "b", "c"]
    texts = prompts_of(5, 17, 30)
    for observation in ([11, 12, 13], [50] * 40, [4, 5]):
        completions = writer.write(
            texts, stopped=lambda ids: False, max_new_tokens=12, temperature=0.0, generator=generator, names=names
        )
        for text, completion in zip(texts, completions, strict=True):
            token_1T = torch.tensor([text], device=DEVICE)
            expected = model.generate(
                token_1T, attention_mask=torch.ones_like(token_1T), max_new_tokens=12, do_sample=False, pad_token_id=0
            )
            assert list(completion.token_T) == expected[0, len(text) :].tolist()
        texts = [[*text, *one.token_T, *observation] for text, one in zip(texts, completions, strict=True)]


def test_an_update_is_that_of_the_processor(model):
    samples = []
    for row, prompt in enumerate(prompts_of(5, 17, 30, 8)):
        sequence = TokenSequence()
        sequence.append_context(prompt)
        sequence.append_written([3 + row, 40, 50 + row], [-4.0, -4.5, -5.0])
        samples.append(Sample(sequence.freeze(episode=str(row)), float(row % 2), group=row // 2))
    figures, weights = [], []
    for device in ("cpu", DEVICE):
        own = copy.deepcopy(model).to(device)
        learner = Learner(own, own.parameters(), LearnerSettings(lr=1e-3, kl_coef=0.0, micro_batch_tokens=128))
        figures.append(learner.update(samples))
        weights.append([parameter.detach().cpu() for parameter in own.parameters()])
    assert figures[0].updated
    for name in ("loss", "grad_norm", "entropy", "logp_gap_mean"):
        assert getattr(figures[1], name) == pytest.approx(getattr(figures[0], name), rel=1e-3, abs=1e-5), name
    # Adam's first step has the gradient's sign, which rounding turns where the gradient is next to nothing.
    moved = [one - other.detach() for one, other in zip(weights[0], model.parameters(), strict=True)]
    agree = sum((torch.isclose(a, b, atol=1e-4)).sum() for a, b in zip(*weights, strict=True))
    assert agree > 0.99 * sum(one.numel() for one in moved)
    assert any(one.abs().max() > 5e-4 for one in moved)


@pytest.mark.parametrize("train", ["lora", "full"])
def test_a_checkpoint_gives_back_weights_optimiser_and_what_is_written_next(chat_model_folder, tmp_path, train):
    settings = resolve({}, [f"policy={chat_model_folder}", f"model.train={train}", "model.max_context=6000"])
    settings = replace(settings, model=replace(settings.model, device=DEVICE))

    def make():
        model = load_model(settings)
        return model, make_seats(model, NoMemory(), settings)

    def write(seat):
        policy = seat.agent.policy
        return policy.generate(
            [policy.language_model.encode("Where is Tarrow?")], stop=(), max_new_tokens=8, temperature=1.0
        )

    model, seats = make()
    with torch.no_grad():
        for tensor in model.weights.parameters("solver"):
            tensor.add_(0.01)
    write(seats["solver"])
    save_checkpoint(tmp_path, step=3, model=model, seats=seats, memory=NoMemory())
    again, seats_again = make()
    assert load_checkpoint(latest_checkpoint(tmp_path), model=again, seats=seats_again) == 3
    for one, other in zip(model.weights.parameters("solver"), again.weights.parameters("solver"), strict=True):
        assert other.device.type == torch.device(DEVICE).type
        assert torch.equal(one, other)
    assert write(seats_again["solver"]) == write(seats["solver"])
