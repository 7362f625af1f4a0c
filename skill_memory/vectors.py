"""A bank's file and the vectors in it, which are only a cache: they belong to an encoder and can be made again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from sesa_env.errors import EncoderMismatch
from skill_memory.encode import Encoder
from skill_memory.shelf import Shelf
from skill_memory.store import Store


def open_store(path: Path, encoder: Encoder) -> Store:
    """Open the store at a path, or make an empty one.

    Raises:
        StoreCorrupt: the file is damaged or foreign; nothing was changed.
        EncoderMismatch: its vectors are another encoder's; nothing was changed.
    """
    if not path.exists():
        return Store.create(path, encoder=encoder.fingerprint)
    store = Store.open(path)
    made_by = store.about("encoder")
    if made_by != encoder.fingerprint:
        store.close()
        raise EncoderMismatch(
            f"vectors in {str(path)!r} are of encoder {made_by}, not {encoder.fingerprint}; "
            "open it with that encoder, or call skill_memory.reembed"
        )
    return store


def load_shelf(store: Store, encoder: Encoder) -> Shelf:
    """Read skills and vectors; a vector that is missing is made again."""
    skills, vectors = store.skills(), store.vectors()
    lost = [skill for skill in skills if skill.id not in vectors]
    vectors |= zip([skill.id for skill in lost], encoder.encode_passages([skill.text for skill in lost]), strict=True)
    if not skills:
        return Shelf((), encoder.encode_passages([]))
    return Shelf(tuple(skills), np.stack([vectors[skill.id] for skill in skills]))


def reembed(path: Path, encoder: Encoder) -> None:
    """Make the vectors of a bank anew, with another encoder; texts, ids, counters and queue stay.

    Nothing is dropped, even where two skills are nearer under the new encoder than its threshold allows.

    Raises:
        StoreCorrupt: the file is damaged or foreign; nothing was changed.
    """
    with closing(Store.open(path)) as store, store.transaction():
        skills = store.skills()
        for skill, vector_D in zip(skills, encoder.encode_passages([s.text for s in skills]), strict=True):
            store.set_vector(skill.id, vector_D)
        store.set_about("encoder", encoder.fingerprint)
        store.log("reembed", step=store.last_step(), cause="by hand", encoder=encoder.fingerprint)
