"""What several tests share: a chat model small enough to train in a test, and a small corpus of our own."""

import json
import os

import pytest
from hypothesis import settings

# The models of the tests are so small that threads only wait for each other, endlessly so beside another job.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("patient", deadline=None)  # a shared machine has no deadlines worth failing for
settings.load_profile("patient")

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PASSAGES = [
    ("Orla Venn", "Orla Venn was a novelist. Born in Tarrow, she wrote The Salt Road in 1931."),
    ("The Salt Road", "The Salt Road is a novel. Written by Orla Venn, it is set in Tarrow."),
    ("Tarrow", "Tarrow is a town in Neland on the river Isk."),
    ("Isk", "The Isk is a river. It flows through Tarrow and Obern."),
    ("Obern", "Obern is a town in Neland, known for its bridge over the Isk."),
    ("Neland", "Neland is a country. Its capital is Obern."),
]


TAGS = ["<search>", "<question>", "<answer>"]
FAVOURITES = [*TAGS, *(title for title, _ in PASSAGES if " " not in title)]


def build_chat_model(folder, *, template=CHATML):
    """Save a random Llama of 2 layers with a byte-level tokenizer and return its folder.

    Tags and some titles are single tokens that it writes often, so that it searches, asks, answers, and is sometimes
    right: enough for rewards that differ, and so for gradients.
    """
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {symbol: number for number, symbol in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in FAVOURITES])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=template,
    )
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=8192,
        eos_token_id=vocabulary["<|im_end|>"],
        pad_token_id=vocabulary["<|im_end|>"],
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    with torch.no_grad():  # a direction that every position carries, and that the favourites are read off
        model.model.embed_tokens.weight[:, 0] += 0.2
        model.lm_head.weight[[fast.convert_tokens_to_ids(text) for text in FAVOURITES], 0] += 1.5
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_chat_model():
    """The function `build_chat_model(folder, template=...)`."""
    return build_chat_model


@pytest.fixture(scope="session")
def chat_model_folder(tmp_path_factory):
    """A folder with a tiny chat model."""
    return build_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory):
    """A JSON-lines corpus of six linked passages."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rows = [
        {"id": f"p{number}", "title": title, "contents": f'"{title}"\n{text}'}
        for number, (title, text) in enumerate(PASSAGES)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def sesa(monkeypatch, capsys):
    """Run the `sesa` command and return exit code, stdout and stderr."""
    from benchmarks.__main__ import main

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["sesa", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    """Keep tests out of the user's cache, and let them share one of their own."""
    base = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("SESA_CACHE", str(base))
