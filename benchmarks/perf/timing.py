"""Seconds and what is said of them: medians with their spread, of works that take turns.

    taken = in_turns({"ours": ours, "plain": plain}, repeats=15)
    print(line_of(row_of("ours", taken["ours"])))

A busy machine lengthens the time that passes, not the time that the processor works; both are given.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Row = dict[str, Any]
"""What was measured, under "what", and its figures; a list is a time as `spread` returns it."""


class Taken(NamedTuple):
    """Seconds that passed, and those of them (of all threads together) that the processor worked for this process."""

    wall: float
    processor: float

    def each(self, count: int) -> Taken:
        """Return the share of one of so many."""
        return Taken(self.wall / count, self.processor / count)


Work = Callable[[], Taken]


def in_turns(works: Mapping[str, Work], *, repeats: int) -> dict[str, list[Taken]]:
    """Let each work take its turn, again and again; the first round is not counted."""
    seconds: dict[str, list[Taken]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name, work in works.items():
            taken = work()
            if repeat:
                seconds[name].append(taken)
    return seconds


def clock_of(*, threads: int, device: str) -> Callable[[], float]:
    """Return the clock to measure by: the processor's where one thread does all the work, else that of the wall.

    What one thread takes is then said as well on a busy machine as on an idle one, but for its caches.
    """
    return time.process_time if threads == 1 and device == "cpu" else time.perf_counter


def timed(act: Callable[[], object]) -> Taken:
    """Return the seconds that an act takes."""
    started = Taken(time.perf_counter(), time.process_time())
    act()
    return Taken(time.perf_counter() - started.wall, time.process_time() - started.processor)


def row_of(what: str, taken: list[Taken]) -> Row:
    """Return the row of one work."""
    return {"what": what, "time": spread(taken)}


def spread(taken: list[Taken]) -> list[float]:
    """Return in milliseconds the median, least and most that passed, and the median that the processor worked."""
    walls = [one.wall for one in taken]
    processor = statistics.median(one.processor for one in taken)
    return [1e3 * value for value in (statistics.median(walls), min(walls), max(walls), processor)]


def line_of(row: Row) -> str:
    """Return a row as text."""
    return f"{row['what']}: " + ", ".join(f"{name} {_words(value)}" for name, value in row.items() if name != "what")


def _words(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    median, least, most, processor = value
    return f"{median:,.2f} ms ({least:,.2f} to {most:,.2f}; processor {processor:,.2f})"
