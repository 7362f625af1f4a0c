"""A deadline and a few retries around any retriever, so that a search ends with results or with a typed error.

An outage must never look like "nothing found": it would teach a policy that a good query is a bad one.  So what comes
out is what the retriever found, or `SearchTimeout`, or `SearchUnavailable`; the game masks an attempt that meets those.

    retriever = GuardedRetriever(remote, deadline_s=10, retries=2, budget_s=30)

A search that is past its deadline cannot be stopped, only left behind.  So that a dead back end does not collect
threads without bound, searches are refused at once while `max_abandoned` of them are still running.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from sesa_env.errors import InvalidInput, SearchTimeout, SearchUnavailable
from sesa_env.retrieval.base import Retriever, check_request, remarks_on
from sesa_env.types import Passage

_Found = list[list[Passage]]


class GuardedRetriever:
    """Gives each search a deadline, and tries again after an outage, within a budget of time for all tries.

    Args:
        retriever: what to search; closed with this one.  It must bear being searched while an earlier search still
            runs.
        deadline_s: seconds for one try.
        retries: tries after the first.
        budget_s: seconds for all tries of one call and the pauses between them.
        pause_s: seconds before the first retry; each later pause is twice as long.
        max_abandoned: searches past their deadline that may still be running before new ones are refused.

    Raises:
        InvalidInput: a number is out of range.
    """

    def __init__(
        self,
        retriever: Retriever,
        *,
        deadline_s: float = 10.0,
        retries: int = 2,
        budget_s: float = 30.0,
        pause_s: float = 0.1,
        max_abandoned: int = 8,
    ) -> None:
        for name, value in (("deadline_s", deadline_s), ("budget_s", budget_s), ("max_abandoned", max_abandoned)):
            if not value > 0:
                raise InvalidInput(f"{name} must be above 0, got {value!r}")
        for name, value in (("retries", retries), ("pause_s", pause_s)):
            if not value >= 0:
                raise InvalidInput(f"{name} must be 0 or more, got {value!r}")
        self._retriever = retriever
        self._deadline_s, self._budget_s, self._pause_s = deadline_s, budget_s, pause_s
        self._retries = retries
        self._max_abandoned = max_abandoned
        self._abandoned: set[threading.Thread] = set()
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """The retriever's: its results are not changed."""
        return self._retriever.fingerprint

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return what the retriever finds, after a retry if need be.

        Only outages are tried again (`SearchUnavailable`, `OSError`); any other exception of the retriever is a bug or
        a bad request, and propagates at once.

        Raises:
            InvalidInput: as `Retriever.search`.
            SearchTimeout: the last try was not answered in time.
            SearchUnavailable: the last try failed, or did not give a list for each query, or too many earlier searches
                are still running.
        """
        check_request(queries, k)
        end = time.monotonic() + self._budget_s
        pause_s = self._pause_s
        for tries_left in range(self._retries, -1, -1):
            try:
                return self._tried(queries, k, min(self._deadline_s, end - time.monotonic()))
            except (SearchUnavailable, OSError) as error:
                failure = error
            if not tries_left or time.monotonic() + pause_s >= end:
                break
            time.sleep(pause_s)
            pause_s *= 2
        if isinstance(failure, SearchUnavailable):
            raise failure
        kind = SearchTimeout if isinstance(failure, TimeoutError) else SearchUnavailable
        raise kind(f"the search of {len(queries)} queries failed: {failure!r}") from failure

    def remarks(self, queries: Sequence[str]) -> list[str]:
        """Return what the retriever remarks."""
        return remarks_on(self._retriever, queries)

    def close(self) -> None:
        """Close the retriever."""
        self._retriever.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_abandoned": set(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": threading.Lock()})

    def _tried(self, queries: Sequence[str], k: int, seconds: float) -> _Found:
        self._refuse_when_stuck()
        answer: Future[_Found] = Future()
        thread = threading.Thread(target=_answer, args=(answer, self._retriever, list(queries), k), daemon=True)
        thread.start()
        thread.join(max(seconds, 0.0))
        if not answer.done():
            with self._lock:
                self._abandoned.add(thread)
            raise SearchTimeout(f"the search of {len(queries)} queries took more than {seconds:.3g} s")
        found = answer.result()
        if not isinstance(found, list) or len(found) != len(queries):
            raise SearchUnavailable(f"the retriever must return {len(queries)} lists of passages, got {found!r:.80}")
        return found

    def _refuse_when_stuck(self) -> None:
        with self._lock:
            self._abandoned = {thread for thread in self._abandoned if thread.is_alive()}
            stuck = len(self._abandoned)
        if stuck >= self._max_abandoned:
            raise SearchUnavailable(f"{stuck} searches past their deadline are still running; this one was not begun")


def _answer(answer: Future[_Found], retriever: Retriever, queries: list[str], k: int) -> None:
    try:
        answer.set_result(retriever.search(queries, k))
    except BaseException as error:  # whatever it is, it belongs to who waits
        answer.set_exception(error)
