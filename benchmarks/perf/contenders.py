"""One environment's episodes in a process of its own: what `benchmarks.perf.env` starts once for each contender.

    python contenders.py NAME WORK.json      # lines of documents and episodes ("new 2000") in, their seconds out

It is a script of its own and imports nothing of this project but what its contender needs, so that the interpreter of
another virtual environment can run it.  All contenders get the same texts, and from a search tool that searches nothing
the same documents as data; each makes its own observation of them and scores the answer in its own way.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

Step = Callable[[str], object]


class Found:
    """What the search tool finds: one prepared result after the other, in the form that its environment reads."""

    def __init__(self, work: dict[str, Any], form: Callable[[list[str]], Any]) -> None:
        self._results = {kind: [form(result) for result in results] for kind, results in work["documents"].items()}
        self.choose(next(iter(self._results)))

    def choose(self, kind: str) -> None:
        """Go on with the results of this kind."""
        self._next = cycle(self._results[kind])

    def __call__(self) -> Any:
        """Return the next result."""
        return next(self._next)


class Contender(NamedTuple):
    """How an episode begins, which returns what takes its turns; and what its searches find."""

    start: Callable[[], Step]
    found: Found


def raw(work: dict[str, Any]) -> Contender:
    """Return SESA-Solve-v0 without wrappers."""
    wrapped, found = _solve_env(work)
    return Contender(_starter(wrapped.unwrapped), found)


def made(work: dict[str, Any]) -> Contender:
    """Return SESA-Solve-v0 as `gymnasium.make` gives it."""
    wrapped, found = _solve_env(work)
    return Contender(_starter(wrapped), found)


def _solve_env(work: dict[str, Any]) -> tuple[Any, Found]:
    import gymnasium

    import sesa_env  # noqa: F401  (registers the environment)
    from sesa_env.registry import RETRIEVERS
    from sesa_env.types import Passage

    def form(documents: list[str]) -> list[Passage]:
        parts = [text.partition("\n") for text in documents]
        return [Passage(str(rank), title, text, score=1.0) for rank, (title, _, text) in enumerate(parts)]

    found = Found(work, form)

    class Null:
        fingerprint = "null"
        in_memory = True

        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            return [found()[:k] for _ in queries]

        def close(self) -> None:
            pass

    RETRIEVERS.register("null", lambda corpus, index=None: Null())
    return gymnasium.make("SESA-Solve-v0", retriever="null", questions=work["questions"]), found


def _starter(env: Any) -> Callable[[], Step]:
    def start() -> Step:
        env.reset()
        step: Step = env.step
        return step

    return start


def gem_llm(work: dict[str, Any]) -> Contender:
    """Return gem-llm's question answering with its search tool, whose request is answered at once."""
    from datasets import Dataset
    from gem.envs.qa_env import QaEnv
    from gem.tools.search_tool import SearchTool
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    found = Found(work, _as_served)

    class NullSearch(SearchTool):  # type: ignore[misc]
        def _search(self, query: str) -> str:
            return str(self._passages2string(found()))

    rows = Dataset.from_list([{"question": work["question"], "answer": work["answers"]}] * 1000)
    return Contender(_starter(ToolEnvWrapper(QaEnv(dataset=rows), [NullSearch(search_url="null")])), found)


def skyrl_gym(work: dict[str, Any]) -> Contender:
    """Return skyrl-gym's search environment, whose request is answered at once."""
    from skyrl_gym.envs.search.env import SearchEnv, SearchEnvConfig
    from skyrl_gym.tools import search

    found = Found(work, _as_served)
    search.call_search_api = lambda **_: ({"result": [found()]}, None)
    extras = {"reward_spec": {"ground_truth": {"target": work["answers"]}}, "max_turns": len(work["turns"])}

    def start() -> Step:
        env = SearchEnv(SearchEnvConfig(), extras)
        env.init([{"role": "user", "content": work["question"]}])
        step: Step = env.step
        return step

    return Contender(start, found)


def _as_served(documents: list[str]) -> list[dict[str, Any]]:
    return [{"document": {"contents": text}} for text in documents]


CONTENDERS: dict[str, Callable[[dict[str, Any]], Contender]] = {
    "raw": raw,
    "made": made,
    "gem-llm": gem_llm,
    "skyrl-gym": skyrl_gym,
}


def play(start: Callable[[], Step], turns: Sequence[str], *, episodes: int, name: str = "") -> dict[str, float]:
    """Return the processor seconds of all steps and of all starts of so many episodes.

    No two episodes write the same: `name` and a number stand in each turn for NUMBER.
    """
    clock = time.process_time
    steps = starts = 0.0
    for number in range(episodes):
        texts = [turn.replace("NUMBER", f"{name}{number}") for turn in turns]
        began = clock()
        step = start()
        started = clock()
        for text in texts:
            step(text)
        steps += clock() - started
        starts += started - began
    return {"steps": steps, "starts": starts}


def main(name: str, path: str) -> None:
    """Serve one contender until standard input ends: a line of JSON for each line of what to play."""
    with open(path, encoding="utf-8") as file:
        work = json.load(file)
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not pass for an answer
    start, found = CONTENDERS[name](work)
    for asked, line in enumerate(sys.stdin):
        kind, episodes = line.split()
        found.choose(kind)
        played = play(start, work["turns"], episodes=int(episodes), name=f"{asked}-")
        print(json.dumps(played), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
