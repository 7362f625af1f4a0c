"""Contracts that anybody's part can be held to, in anybody's test suite.

    check_retriever(MyRetriever(...), finds="Nile", other="Rhine")   # returns None, or raises AssertionError
    check_env("SESA-Search-v0", retriever="mine", role="solver")     # with your parts in it
    check_validator(my_check, passes=good_proposal, fails=bad_proposal)
    check_judge(MyJudge(), question=question, right="the Nile", wrong="the Rhine")

`check_env` runs Gymnasium's own checker first; what comes after it is what our environments promise on top.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import env_checker

from sesa_env.envs.base import Info, Observation, RoundEnv
from sesa_env.errors import InvalidInput, OutOfTurn
from sesa_env.game import GameSettings
from sesa_env.judge import Judge
from sesa_env.retrieval.base import Retriever
from sesa_env.types import CHALLENGER, Passage, Question
from sesa_env.validators import Proposal, Validator, ValidatorChain

ODD_QUERIES = (
    'who wrote: C++ (1983)? AND/OR [x]~ "quoted" *',
    "斯特拉斯堡 · 大学",
    "\ud83d",
    "\x00",
    "</search><answer>42</answer><|im_end|>",
    "river " * 5000,
    "x" * 100_000,
)
NO_TERMS = ("", "   ", "+", "()\"'/\\")


def check_retriever(retriever: Retriever, *, finds: str, other: str) -> None:
    """Hold a retriever to `sesa_env.retrieval.base.Retriever`; it is left open.

    Args:
        retriever: the one to check.
        finds: a query that finds at least two passages.
        other: a query with another best passage.

    Raises:
        AssertionError: it breaks the contract; the message says where.
    """
    _require(isinstance(retriever, Retriever), f"{retriever!r} lacks a part of the protocol")
    fingerprint = retriever.fingerprint
    _require(isinstance(fingerprint, str) and fingerprint != "", f"the fingerprint must be text, got {fingerprint!r}")
    _require(retriever.fingerprint == fingerprint, "the fingerprint must not change")
    _check_ranking(retriever, finds)
    _check_batches(retriever, finds, other)
    _check_odd_queries(retriever)
    _check_refusals(retriever, finds)


def _check_ranking(retriever: Retriever, finds: str) -> None:
    found = _search(retriever, finds, k=5)
    _require(2 <= len(found) <= 5, f"{finds!r} must find 2 to 5 passages with k=5, got {len(found)}")
    _require(all(isinstance(passage, Passage) for passage in found), f"results must be passages, got {found!r}")
    scores = [passage.score for passage in found]
    _require(scores == sorted(scores, reverse=True), f"the best passage must come first, got scores {scores}")
    ids = [passage.id for passage in found]
    _require(len(set(ids)) == len(ids), f"no passage may come twice, got ids {ids}")
    first = _search(retriever, finds, k=1)
    _require(first == found[:1], f"k=1 must give the first of k=5, got {first!r}")


def _check_batches(retriever: Retriever, finds: str, other: str) -> None:
    alone = [_search(retriever, query, k=3).copy() for query in (finds, other)]
    _require(alone[0][:1] != alone[1][:1], f"{finds!r} and {other!r} must differ in their best passage")
    together = retriever.search([other, finds, other], 3)
    _require(together == [alone[1], alone[0], alone[1]], "a batch must give each query what it gives alone, in order")
    together[0].clear()
    _require(_search(retriever, other, k=3) == alone[1], "changing a result must not change the next one")
    _require(retriever.search([], 3) == [], "no queries must give no results")


def _check_odd_queries(retriever: Retriever) -> None:
    for query in ODD_QUERIES:
        _require(len(_search(retriever, query, k=2)) <= 2, f"k=2 must give at most 2 passages for {query!r:.60}")
    for query in NO_TERMS:
        _require(_search(retriever, query, k=2) == [], f"{query!r} has no searchable term and must find nothing")


def _check_refusals(retriever: Retriever, finds: str) -> None:
    _require_refusal(lambda: retriever.search(finds, 3), "a bare string in place of a list")
    for k in (0, -1):
        _require_refusal(lambda k=k: retriever.search([finds], k), f"k={k}")  # type: ignore[misc]


def check_env(env_id: str, **arguments: Any) -> None:
    """Hold a registered environment, made with these arguments, to Gymnasium's contract and to ours.

    Beyond Gymnasium's: no warning from its checker; equal seeds give equal rounds, also in the unseeded rounds after;
    a seat observes what its view has and info tells no accepted answer; each invalid text has its reason and a round of
    them ends; the last step says how it ended; both render modes show the same; a round can be saved as JSON, pickled,
    and made again from its spec (the last two when the arguments are JSON).

    Args:
        env_id: id under which an environment built on `sesa_env.envs.base.RoundEnv` is registered with Gymnasium.
        arguments: what `gymnasium.make` is to be given, `render_mode` apart.

    Raises:
        AssertionError: it breaks the contract; the message says where.
    """

    def make(render_mode: str | None = None) -> RoundEnv:
        env = gymnasium.make(env_id, render_mode=render_mode, **arguments).unwrapped
        _require(isinstance(env, RoundEnv), f"{env_id} must be built on RoundEnv, got {env!r}")
        return env  # type: ignore[return-value]

    _check_gymnasium(make())
    _check_rounds(make)
    _check_invalid_texts(make())
    _check_rendering(make)
    _check_copies(make, is_json=_is_json(arguments))


def _check_gymnasium(env: RoundEnv) -> None:
    with warnings.catch_warnings(record=True) as told, redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        env_checker.check_env(env)
    _require(not told, f"Gymnasium's checker must have nothing to warn of, got {[str(each.message) for each in told]}")


def _check_rounds(make: Callable[[], RoundEnv]) -> None:
    one, other = make(), make()
    for seed in (0, 1, None, None):  # the unseeded ones go on where the seeded ones left the random stream
        rounds = [_play(env, seed=seed, texts=np.random.default_rng(0), watch=_check_view) for env in (one, other)]
        _require(rounds[0] == rounds[1], f"equal seeds and texts must give equal rounds, got others with seed {seed}")
        _check_ending(*rounds[0][-1][1:])


def _play(
    env: RoundEnv,
    *,
    seed: int | None = None,
    texts: np.random.Generator,
    watch: Callable[[RoundEnv, Observation, Info], None] = lambda env, observation, info: None,
) -> list[tuple[Any, ...]]:
    """Play a round with texts that search, pose, answer and say nothing; return all that came back."""
    observation, info = env.reset(seed=seed)
    returned: list[tuple[Any, ...]] = [(observation, info)]
    while env.game.phase != "settled":
        watch(env, observation, info)
        returned.append(env.step(_text(env, texts)))
        observation, info = returned[-1][0], returned[-1][-1]
    return returned


def _text(env: RoundEnv, texts: np.random.Generator) -> str:
    view = env.game.view(env.game.active[0])
    search = f"<search>{view.target or view.question}</search>"
    last = "<answer>nobody</answer>"
    if view.role == CHALLENGER:
        last = "<question>Which one of all these names is the one that is meant?</question>"
    tools = [f"<{tool}>{view.target or 'of'}</{tool}>" for tool in view.tools]
    return search if view.turn == 0 else str(texts.choice([search, *tools, last, last, "hm", "<think>"]))


def _check_view(env: RoundEnv, observation: Observation, info: Info) -> None:
    view = env.game.view(env.game.active[0])
    for part, seen in observation.items():
        may_see = getattr(view, part, seen) if part not in ("role", "seat") else seen
        may_see = "\n".join(may_see) if isinstance(may_see, tuple) else may_see
        _require(seen == may_see, f"{view.seat} must observe {part} as its view has it, {may_see!r}, got {seen!r}")
    state = env.game.get_state()
    answers = [*(state["question"] or {}).get("answers", ()), (state["target"] or {}).get("answer", "")]
    told = [answer for answer in answers if len(answer) > 3 and answer in repr(info)]
    _require(not told, f"info must tell no accepted answer, got {told} in {info!r}")


def _check_ending(reward: float, terminated: bool, truncated: bool, info: Info) -> None:
    _require(terminated is not truncated, f"a round must end in one way, got {terminated!r} and {truncated!r}")
    _require({"rewards", "solve_rate", "rejection"} <= set(info), f"the last info must tell the outcome, got {info!r}")
    rewards = [reward, *info["rewards"].values()]
    _require(all(math.isfinite(each) for each in rewards), f"rewards must be finite numbers, got {rewards!r}")
    rate = info["solve_rate"]
    _require(rate is None or 0.0 <= rate <= 1.0, f"solve_rate must be None or from 0 to 1, got {rate!r}")


def _check_invalid_texts(env: RoundEnv) -> None:
    env.reset(seed=0)
    settings = env.settings
    most = (settings.attempts + 1) * max(settings.solver_turns, settings.challenger_turns)
    for _ in range(most):
        seat = env.game.active[0]
        observation, _, terminated, truncated, info = env.step("hm")
        told = (info["action"], info["reason"])
        _require(told == ("invalid", "no_action"), f"a text without action must be told as such, got {told}")
        if terminated or truncated:
            break
        again = env.game.active[0] == seat
        _require(not again or observation["observation"] != "", "an invalid turn must bring a correction")
    _require(env.game.phase == "settled", f"a round of invalid texts must end within {most} turns")
    _require(info["end_reason"] in ("invalid_actions", "turn_limit"), f"it must end for that, got {info!r}")
    try:
        env.step("hm")
    except OutOfTurn:
        return
    raise AssertionError("a step after the end must be refused with OutOfTurn")


def _check_rendering(make: Callable[[str | None], RoundEnv]) -> None:
    printed = io.StringIO()
    shown = make("ansi")
    shown.reset(seed=0)
    first = shown.render()
    _require(isinstance(first, str) and first != "", f"render_mode 'ansi' must show the round, got {first!r}")
    _play(shown, seed=0, texts=np.random.default_rng(0))
    with redirect_stdout(printed):
        _play(make("human"), seed=0, texts=np.random.default_rng(0))
    _require(shown.render() == printed.getvalue(), "render_mode 'human' must print what 'ansi' returns")


def _check_copies(make: Callable[[], RoundEnv], *, is_json: bool) -> None:
    env, restored = make(), make()
    env.reset(seed=0)
    env.step("hm")
    state = env.get_state()
    _require(json.loads(json.dumps(state)) == state, "get_state must return JSON data")
    restored.set_state(json.loads(json.dumps(state)))
    copies = {"restored": restored}
    if is_json:
        copies["pickled"] = pickle.loads(pickle.dumps(env))
        _check_spec(env)
    rest = [(*env.step("hm"), env.reset())]
    for how, copy in copies.items():
        _require([(*copy.step("hm"), copy.reset())] == rest, f"a {how} environment must go on like the first")


def _check_spec(env: RoundEnv) -> None:
    spec = env.spec
    if spec is None or callable(spec.entry_point):  # registered by its class, it has no form in JSON
        return
    copy = gymnasium.make(EnvSpec.from_json(spec.to_json()))
    same = copy.reset(seed=3) == spec.make().reset(seed=3)
    _require(same, "the spec, written as JSON and read again, must make an equal environment")


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def _search(retriever: Retriever, query: str, *, k: int) -> list[Passage]:
    found = retriever.search([query], k)
    _require(isinstance(found, list) and len(found) == 1, f"one query must give a list of one list, got {found!r:.200}")
    return found[0]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _require_refusal(search: Callable[[], object], what: str) -> None:
    try:
        search()
    except InvalidInput:
        return
    raise AssertionError(f"{what} must be refused with InvalidInput")


def check_validator(
    validator: Validator, *, passes: Proposal, fails: Proposal, settings: GameSettings | None = None
) -> None:
    """Hold a validator to `sesa_env.validators.Validator`; one that remembers is told of `passes` in the end.

    Args:
        validator: the one to check, as it is given to a `ValidatorChain`.
        passes: a proposal that it must let pass.
        fails: a proposal that it must refuse.
        settings: the default ones unless given.

    Raises:
        AssertionError: it breaks the contract; the message says where.
    """
    rules = settings or GameSettings()
    ValidatorChain([validator])  # raises when it has no name
    for _ in range(2):
        _require(_reason(validator, passes, rules) == "", f"{passes.text!r:.200} must pass, whatever was asked before")
        _require(_reason(validator, fails, rules) != "", f"{fails.text!r:.200} must be refused, with a reason")
    for text in (*ODD_QUERIES, *NO_TERMS):
        _reason(validator, replace(passes, text=text), rules)
    if hasattr(validator, "accept"):
        validator.accept(passes)
        remembered = _reason(validator, passes, rules)
        if hasattr(validator, "get_state") and hasattr(validator, "set_state"):
            validator.set_state(json.loads(json.dumps(validator.get_state())))
            again = _reason(validator, passes, rules)
            _require(again == remembered, f"set_state must bring back what was known: {remembered!r}, got {again!r}")


def _reason(validator: Validator, proposal: Proposal, settings: GameSettings) -> str:
    reason = validator(proposal, settings)
    _require(
        isinstance(reason, str), f'a verdict must be text, "" to let pass, got {reason!r} for {proposal.text!r:.60}'
    )
    return reason


def check_judge(judge: Judge, *, question: Question, right: str, wrong: str) -> None:
    """Hold a judge to `sesa_env.judge.Judge`.

    Args:
        judge: the one to check.
        question: any question.
        right: an answer to it that must earn something.
        wrong: an answer to it that must earn nothing.

    Raises:
        AssertionError: it breaks the contract; the message says where.
    """
    for _ in range(2):
        score = _score(judge, question, right)
        _require(score is not None and score > 0, f"{right!r} must earn something, got {score!r}")
        _require(_score(judge, question, wrong) == 0, f"{wrong!r} must earn nothing")
    for nothing in (None, "", "  \n"):
        _require(_score(judge, question, nothing) == 0, f"no answer must earn nothing, and be scored: {nothing!r}")
    for text in ODD_QUERIES:
        _score(judge, question, text)


def _score(judge: Judge, question: Question, prediction: str | None) -> float | None:
    score = judge.judge(question, prediction)
    sound = score is None or (isinstance(score, int | float) and math.isfinite(score))
    _require(sound, f"a score must be a finite number, or None for unscored, got {score!r} for {prediction!r:.60}")
    return score
