"""The number format is chosen by what the machine is good at, and only where the settings leave it open."""

import logging

import pytest
import torch

from agents.config import ModelSettings
from agents.device import matrix_rate, number_format
from agents.policies.hf import LanguageModel

CPU = torch.device("cpu")


def rates(float32, bfloat16):
    speeds = {torch.float32: float32, torch.bfloat16: bfloat16}
    return lambda *, dtype, **shape: speeds[dtype]


@pytest.mark.parametrize(
    ("bfloat16", "chosen"), [(5e11, "bfloat16"), (2e11, "bfloat16"), (1.9e11, "float32"), (5e9, "float32")]
)
def test_a_processor_computes_in_bfloat16_where_that_is_worth_while(caplog, bfloat16, chosen):
    with caplog.at_level(logging.INFO):
        found = number_format(ModelSettings(), CPU, rate=rates(1e11, bfloat16))
    assert found == (chosen, {"float32": 100.0, "bfloat16": bfloat16 / 1e9})
    assert f"float32 100 GFLOP/s, bfloat16 {bfloat16 / 1e9:.0f} GFLOP/s, so {chosen}" in caplog.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_is_measured_where_the_settings_name_a_number_format(dtype, device):
    assert number_format(ModelSettings(dtype=dtype), torch.device(device), rate=None) == (dtype, {})


@pytest.mark.parametrize(("supported", "chosen"), [(True, "bfloat16"), (False, "float32")])
def test_a_gpu_computes_in_bfloat16_if_it_can_without_emulation(monkeypatch, supported, chosen):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or supported
    )
    assert number_format(ModelSettings(), torch.device("cuda", 0), rate=None) == (chosen, {})


def test_a_model_is_loaded_in_a_number_format_that_is_chosen(chat_model_folder):
    settings = ModelSettings(device="cpu", lora_rank=2)
    model = LanguageModel.load(chat_model_folder, adapters=["solver"], settings=settings, seed=0)
    assert model.settings.dtype in ("float32", "bfloat16")
    base = model.weights.model("solver").get_base_model()
    assert base.model.embed_tokens.weight.dtype == getattr(torch, model.settings.dtype)


def test_a_rate_is_measured_and_leaves_the_random_stream_alone():
    before = torch.get_rng_state()
    rate = matrix_rate(rows=8, inner=16, columns=32, dtype=torch.float32, seconds=0.01)
    assert 0.0 < rate < float("inf")
    assert torch.equal(torch.get_rng_state(), before)
