"""What memories that learn from failures share: a distiller, and the queue in which failures wait for it.

class MyMemory(LearningMemory):
    def consolidate(self, *, step): ...
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skill_memory.base import Failure
from skill_memory.distill import Distiller, FailureQueue, make_distiller, require_trainable
from skill_memory.encode import Encoder
from skill_memory.settings import MemorySettings
from skill_memory.stored import StoredMemory


class LearningMemory(StoredMemory):
    """Skills in a file, and failures that are to become skills.

    Args:
        settings: what to remember and when to learn.
        path: the file; made, and primed, when there is none.
        encoder: in place of the one the settings name.
        distiller: in place of the one the settings name.

    Raises:
        UnknownName: no such encoder or distiller.
        SesaError: as `StoredMemory`.
    """

    def __init__(
        self,
        settings: MemorySettings,
        path: Path,
        *,
        encoder: Encoder | None = None,
        distiller: Distiller | None = None,
    ) -> None:
        self._distiller: Distiller = distiller or make_distiller(settings.distil, settings.distil_options)
        super().__init__(settings, path, encoder=encoder)
        self._queue = FailureQueue(self._store, size=settings.queue_size, frontier_only=settings.frontier_only)

    @property
    def waiting(self) -> int:
        """How many failures wait to be distilled."""
        with self._lock:
            return len(self._queue)

    def offer(self, failure: Failure) -> bool:
        """Queue a failure; False when nothing can be learned from it (solved, unusable, or not at the frontier).

        Raises:
            InvalidInput: the failure does not come from training, or lacks what a distiller needs.
        """
        require_trainable(failure)
        if not self._queue.wants(failure):
            return False
        with self._lock, self._store.transaction():
            self._queue.push(failure, step=self._tell(failure.step), spared=self._underway())
        return True

    def _underway(self) -> Sequence[int]:
        """Return the numbers of the failures that are being distilled, which an overflow must spare."""
        return ()
