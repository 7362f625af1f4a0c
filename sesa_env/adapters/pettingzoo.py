"""The round as PettingZoo sees it: `challenger_0` and `solver_0`, `solver_1`, ... in one environment.

    from sesa_env.adapters import pettingzoo
    one_by_one = pettingzoo.env(settings={"attempts": 3})               # AEC: one agent at a time
    side_by_side = pettingzoo.parallel_env(settings={"attempts": 3})    # Parallel: all solvers in one step

Importing the module registers both as "sesa/search-v0" with PettingZoo.

All agents are there from the start, the challenger to the end, since it is paid when the last solver is done; a solver
leaves when its attempt ends.  `infos[agent]["acts"]` says whether the agent's next action counts.  In the Parallel face
the action of an agent that is not to act (a solver while the question is being posed, the challenger afterwards) is
ignored and may be left out; the searches of a step go out in one call.

An observation has what the role may see and no more: `target`, `hops` and `examples` for the challenger, `question` for
a solver, and for both `turns_left`, `reply` (what the last turn brought), `transcript`, and what is left of tools that
the rules give (`opens_left`, `finds_left`).  (`reply` is `observation` in the Gymnasium faces; PettingZoo keeps that
key for arrays next to an action mask.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeVar

from gymnasium.spaces import Dict, Space

from sesa_env.envs.base import MAX_ACTION_CHARS, Info, Observation
from sesa_env.envs.search import SearchEnv
from sesa_env.errors import InvalidInput, MissingDependency, OutOfTurn
from sesa_env.game import CHALLENGER_SEAT, Game, Move, advance
from sesa_env.spaces import UnicodeText
from sesa_env.types import CHALLENGER, SOLVER, View

try:
    import pettingzoo
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils.wrappers import OrderEnforcingWrapper
except ImportError as error:
    raise MissingDependency("sesa_env.adapters.pettingzoo needs the extra `pettingzoo`") from error

_T = TypeVar("_T")
_SHARED = {"turns_left": "turns_left", "reply": "observation", "transcript": "transcript"}
_SHARED |= {"opens_left": "opens_left", "finds_left": "finds_left"}
_SHOWN = {
    CHALLENGER: {"target": "target", "hops": "hops", "examples": "examples", **_SHARED},
    SOLVER: {"question": "question", **_SHARED},
}
"""Per role, each part of its observation and the field of `View` that it comes from."""


def env(**arguments: Any) -> OrderEnforcingWrapper:
    """Return the AEC environment with PettingZoo's check of the order of calls; arguments as in `SearchAEC`."""
    return OrderEnforcingWrapper(raw_env(**arguments))


def raw_env(**arguments: Any) -> SearchAEC:
    """Return the bare AEC environment; arguments as in `SearchAEC`."""
    return SearchAEC(**arguments)


def parallel_env(**arguments: Any) -> SearchParallel:
    """Return the Parallel environment; arguments as in `SearchParallel`."""
    return SearchParallel(**arguments)


class _Table:
    """One round and the seats at it: what the two faces share.

    The single-agent environment within knows how to begin and to show a round; its turn-taking is not used.
    """

    def __init__(self, **arguments: Any) -> None:
        if arguments.get("role") is not None:
            raise InvalidInput(f"role must not be given where every seat is an agent, got {arguments['role']!r}")
        self.world = SearchEnv(**arguments)
        self.seats = [CHALLENGER_SEAT, *(f"{SOLVER}_{number}" for number in range(self.world.settings.attempts))]
        self.observation_spaces = {seat: self._space(seat) for seat in self.seats}
        self.action_spaces = {seat: UnicodeText(MAX_ACTION_CHARS) for seat in self.seats}

    @property
    def game(self) -> Game:
        return self.world.game

    def begin(self, *, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Begin a round; PettingZoo's own tests pass options that no environment knows, so those are passed over."""
        known = {name: value for name, value in (options or {}).items() if name in self.world.option_names}
        self.world.hold(self.world.new_game(seed=seed, options=known))

    def play(self, actions: Mapping[str, Any]) -> None:
        for seat, action in actions.items():
            if action not in self.action_spaces[seat]:
                raise InvalidInput(f"the action of {seat} must be in {self.action_spaces[seat]}, got {action!r:.80}")
        advance([Move(self.game, seat, action) for seat, action in actions.items()], self.world.search_tool())

    def over(self, seat: str) -> bool:
        """Tell whether a seat has nothing more to do and nothing more to be paid."""
        if self.game.phase == "settled":
            return True
        return seat != CHALLENGER_SEAT and seat in self.game.seats and bool(self.game.standing(seat).end_reason)

    def observe(self, seat: str) -> Observation:
        """Return what the seat may see; a solver that has no question yet sees an empty one."""
        if seat in self.game.seats:
            view = self.game.view(seat)
        else:
            rules = self.world.settings
            view = View(episode="", role=SOLVER, seat=seat, turn=0, turns_left=rules.solver_turns)
            view = view._replace(opens_left=rules.max_opens, finds_left=rules.max_finds)
        parts = {part: getattr(view, field) for part, field in self._shown(seat).items()}
        return {part: "\n".join(value) if isinstance(value, tuple) else value for part, value in parts.items()}

    def reward(self, seat: str) -> float:
        """Return what the seat has earned in all so far."""
        return self.game.standing(seat).reward if seat in self.game.seats else 0.0

    def describe(self, seat: str) -> Info:
        """Tell what the seat did in its last turn and, at the end, how the round went; never what the answer is."""
        game = self.game
        info: Info = {"acts": seat in game.active, "phase": game.phase, "action": "", "reason": "", "remark": ""}
        info.update(end_reason="", usable=True)
        if seat in game.seats:
            standing = game.standing(seat)
            info.update(end_reason=standing.end_reason, usable=standing.usable)
            if standing.last:
                last = standing.last
                info.update(action=last.action.kind, reason=last.action.reason, remark=last.remark)
        if game.phase == "settled":
            info.update(solve_rate=game.solve_rate, rejection=game.rejection)
        return info

    def _space(self, seat: str) -> Space[Any]:
        parts = self._parts()
        return Dict({part: deepcopy(parts[field]) for part, field in self._shown(seat).items()})

    def _parts(self) -> dict[str, Space[Any]]:
        parts: dict[str, Space[Any]] = self.world.observation_space.spaces  # type: ignore[attr-defined]
        return parts

    def _shown(self, seat: str) -> dict[str, str]:
        """Return the parts of what a seat observes, without those of tools that the rules do not give."""
        role = CHALLENGER if seat == CHALLENGER_SEAT else SOLVER
        return {part: field for part, field in _SHOWN[role].items() if field in self._parts()}


class SearchAEC(AECEnv[str, Observation, str]):  # type: ignore[misc]
    """The round one seat at a time: the challenger to its question, then each solver to its answer.

    A solver's reward comes with its last turn, the challenger's when the round is settled.  Nothing truncates: to run
    out of turns is part of the game.

    Args:
        arguments: those of `SearchEnv`, without role and opponent.

    Raises:
        InvalidInput, SettingsError: see there.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  (PettingZoo's form)
        "name": "sesa_search_v0",
        "render_modes": ["ansi", "human"],
        "is_parallelizable": False,
    }

    def __init__(self, **arguments: Any) -> None:
        self._table = _Table(**arguments)
        self.possible_agents = list(self._table.seats)
        self.render_mode = self._table.world.render_mode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a new round; the option `target` sets its target, and unknown options are passed over.

        Raises:
            InvalidInput: the target breaks its rule.
        """
        self._table.begin(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self.agent_selection = CHALLENGER_SEAT
        self._skip_agent_selection = None
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: self._table.describe(agent) for agent in self.agents}

    def step(self, action: str | None) -> None:
        """Take the turn of the selected agent; one that is over takes None and leaves.

        Raises:
            InvalidInput: the action is not a string, or is too long.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        before = {each: self._table.reward(each) for each in self.agents}
        self._table.play({agent: action})
        self._table.world.show()
        self._cumulative_rewards[agent] = 0.0
        self.rewards = {each: self._table.reward(each) - before[each] for each in self.agents}
        self.terminations = {each: self._table.over(each) for each in self.agents}
        self.infos = {each: self._table.describe(each) for each in self.agents}
        self.agent_selection = (*self._table.game.active, agent)[0]
        self._accumulate_rewards()
        self._deads_step_first()

    def observe(self, agent: str) -> Observation:
        """Return what the agent may see."""
        return self._table.observe(agent)

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of what the agent observes, always the same object."""
        return self._table.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of the agent's texts, always the same object."""
        return self._table.action_spaces[agent]

    def render(self) -> str | None:
        """Return the round so far as a person reads it; in mode "human" each step has printed its part already."""
        return self._table.world.render()

    def close(self) -> None:
        """Free what the environment holds."""
        self._table.world.close()


class SearchParallel(ParallelEnv[str, Observation, str]):  # type: ignore[misc]
    """The round with all seats that are to act side by side; see the module for whose action counts when.

    Args:
        arguments: those of `SearchEnv`, without role and opponent; what is played side by side cannot be printed as it
            is played, so `render_mode` is "ansi" or None.

    Raises:
        InvalidInput, SettingsError: see there.
    """

    metadata: dict[str, Any] = {"name": "sesa_search_v0", "render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(self, **arguments: Any) -> None:
        if arguments.get("render_mode") not in (None, "ansi"):
            raise InvalidInput(f"render_mode must be 'ansi' or None, got {arguments['render_mode']!r}")
        self._table = _Table(**arguments)
        self.possible_agents = list(self._table.seats)
        self.render_mode = self._table.world.render_mode
        self.agents: list[str] = []

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, Info]]:
        """Begin a new round; the option `target` sets its target, and unknown options are passed over.

        Raises:
            InvalidInput: the target breaks its rule.
        """
        self._table.begin(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._of_all(self._table.observe), self._of_all(self._table.describe)

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]:
        """Take one turn of every agent that is to act, with all their searches in one call.

        Raises:
            OutOfTurn: the round is over, or was never begun.
            InvalidInput: the action of an agent that is to act is missing, not a string or too long, or one is for an
                agent that is not there; no turn was taken.
        """
        acting = self._table.game.active
        if not acting:
            raise OutOfTurn("the round is over, call reset for a new one")
        if not set(acting) <= set(actions) <= set(self.agents):
            raise InvalidInput(f"actions must be for {list(acting)} and may be for {self.agents}, got {list(actions)}")
        before = self._of_all(self._table.reward)
        self._table.play({agent: actions[agent] for agent in acting})
        rewards = {agent: self._table.reward(agent) - before[agent] for agent in self.agents}
        over = self._of_all(self._table.over)
        returned = self._of_all(self._table.observe), rewards, over, dict.fromkeys(self.agents, False)
        infos = self._of_all(self._table.describe)
        self.agents = [agent for agent in self.agents if not over[agent]]
        return (*returned, infos)

    def _of_all(self, ask: Callable[[str], _T]) -> dict[str, _T]:
        return {agent: ask(agent) for agent in self.agents}

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of what the agent observes, always the same object."""
        return self._table.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of the agent's texts, always the same object."""
        return self._table.action_spaces[agent]

    def render(self) -> str | None:
        """Return the round so far as a person reads it."""
        return self._table.world.render()

    def close(self) -> None:
        """Free what the environment holds."""
        self._table.world.close()


pettingzoo.register("aec", "sesa/search-v0", entry_point="sesa_env.adapters.pettingzoo:env")
pettingzoo.register("parallel", "sesa/search-v0", entry_point="sesa_env.adapters.pettingzoo:parallel_env")
