"""The mini policy's vocabulary: byte-pair merges learned from fictional pages, questions and hints.

Digits stand alone, so that years can be compared.  Tags are one token each.  Words that can be cut into syllables of
fictional names are cut there, so that a syllable is one token wherever it stands and a name is two or three; this, too,
is a crutch that the model's card names.

    tokenizer = train_tokenizer(texts, size=2048)
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from sesa_env.corpora.atlas.names import SYLLABLE

END, SYSTEM, USER, ASSISTANT = "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"
TAGS = tuple(f"<{slash}{name}>" for name in ("think", "search", "answer", "question") for slash in ("", "/"))

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Turns are opened and never closed: the tag that ends an action ends its turn."""


_ONE_SYLLABLE = rf" ?(?i:{SYLLABLE})(?=(?i:{SYLLABLE})*(?!\p{{L}}))"
"""A syllable, with the space before it, of a word that consists of syllables from there to its end."""
_PIECE = rf"{_ONE_SYLLABLE}| ?\p{{L}}+|\d| ?[^\s\p{{L}}\d]+|\s"


def train_tokenizer(texts: Iterable[str], *, size: int) -> PreTrainedTokenizerFast:
    """Learn merges from texts; equal texts give equal vocabularies.

    Args:
        texts: what the policy will read.
        size: entries of the vocabulary, special tokens included.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [END, SYSTEM, USER, ASSISTANT]
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(TAGS),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=END
    )
    wrapped.add_special_tokens({"additional_special_tokens": [SYSTEM, USER, ASSISTANT]})
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped
