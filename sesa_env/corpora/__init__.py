"""Where passages come from: the embedded fictional encyclopedia, or a JSON-lines file.

A corpus is named by one string everywhere: "atlas" and "atlas:SEED" mean the embedded encyclopedia, anything else is
the path of a JSON-lines file (`sesa_env.corpora.jsonl` tells its form).

    passages, fingerprint = load_passages("atlas:3")
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sesa_env.corpora.jsonl import corpus_fingerprint, passages_fingerprint, read_passages
from sesa_env.errors import InvalidInput
from sesa_env.types import Passage

if TYPE_CHECKING:
    from sesa_env.corpora.atlas import Atlas

ATLAS = "atlas"
ATLAS_SIZE = 500
"""How many targets, and how many questions, are drawn from an Atlas."""


def load_passages(corpus: str) -> tuple[list[Passage], str]:
    """Return every passage of a corpus, in order, and the corpus's fingerprint.

    Raises:
        InvalidInput: the seed in "atlas:SEED" is not a whole number from 0 up.
        CorpusError: the file is missing, empty or malformed.
    """
    if not is_atlas(corpus):
        return list(read_passages(Path(corpus))), corpus_fingerprint(Path(corpus))
    passages = list(load_atlas(corpus).passages)
    return passages, passages_fingerprint(passages)


def fingerprint(corpus: str) -> str:
    """Return what names the content of a corpus, without keeping its passages.

    Raises:
        InvalidInput: as `load_passages`.
        CorpusError: as `load_passages`.
    """
    return load_passages(corpus)[1] if is_atlas(corpus) else corpus_fingerprint(Path(corpus))


def is_atlas(corpus: str) -> bool:
    """Whether the name means the embedded, fictional encyclopedia."""
    return corpus.partition(":")[0] == ATLAS


@lru_cache(maxsize=2)
def load_atlas(corpus: str) -> Atlas:
    """Return the embedded encyclopedia of that name, made once per process.

    Raises:
        InvalidInput: the name is not "atlas" or "atlas:SEED", or there is no world of that seed.
    """
    from sesa_env.corpora.atlas import generate  # only who asks for an Atlas pays for making one

    name, colon, seed = corpus.partition(":")
    if name != ATLAS or (colon and not (seed.isascii() and seed.isdigit())):
        raise InvalidInput(f"an Atlas is named {ATLAS} or {ATLAS}:SEED with a whole number from 0 up, got {corpus!r}")
    return generate(seed=int(seed) if colon else 0)
