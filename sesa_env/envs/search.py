"""SESA-Search-v0: a whole round as one Gymnasium environment, a challenger first and then each solver in turn.

    env = gymnasium.make("SESA-Search-v0", settings={"attempts": 3})
    observation, info = env.reset(seed=0)                       # challenger_0 sees its target
    observation, reward, terminated, truncated, info = env.step("<search>...</search>")
    env = gymnasium.make("SESA-Search-v0", role="solver", opponent="scripted")   # only solvers' turns come out

`observation["role"]` says whose policy is to act next; the reward is that of the seat that has just acted.  A
challenger's reward is known only when the last solver is done, and then stands in `info["rewards"]` with all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium.spaces import Discrete, Space

from sesa_env.envs.base import MAX_ACTION_CHARS, Observation, RoundEnv, observation_chars, transcript_chars
from sesa_env.envs.opponents import Opponent
from sesa_env.errors import InvalidInput
from sesa_env.game import Game
from sesa_env.spaces import UnicodeText
from sesa_env.targets import CORPUS, open_targets
from sesa_env.types import CHALLENGER, Target, View

MAX_HOPS = 15
ROLES = ("challenger", "solver")
"""Index in this tuple is `observation["role"]`."""


class SearchEnv(RoundEnv):
    """The seats of a round, one at a time: of both roles, or of one role against an opponent.

    The observation has `role` (0 challenger, 1 solver), `seat` (0 the challenger, i the solver i - 1), `turns_left`,
    `hops`, `target` and `examples` (for the challenger; one example question a line), `question` (for a solver),
    `observation` (what the seat's last turn brought) and `transcript` (all its turns).  The action is the text that the
    policy wrote.

    `reset(options={"target": {"answer": ..., "hops": ..., "aliases": [...], "examples": [...]}})` sets the target;
    otherwise it is drawn.  The round always terminates and is never truncated: to run out of turns is part of the game.

    Where the rules let pages be opened (`max_opens`, `max_finds`), `opens_left` and `finds_left` are observed as well.

    Info tells of the turn just taken: `seat`, `role`, `phase`, `action`, `reason`, `remark` (what the search tool did
    to the query or the page, such as "query_truncated"), `end_reason`, `usable`; on the last step also `rewards` (by
    seat), `solve_rate` (None without one) and `rejection`.

    With `role="solver"` or `role="challenger"` only that role's seats are the learner's, all attempts of a solver
    included, and an opponent plays the others inside `reset` and `step`.  A challenger's last step then brings its
    reward; a solver is asked only questions that passed the validators.

    Args:
        targets: where targets are drawn from: "corpus", or "NAME:SOURCE" with a name in `TARGETS`.
        role: "challenger", "solver", or None for both.
        opponent: a name in `OPPONENTS`, a path "module:factory", or an object with `act(views)`; "scripted" unless
            given.  An object cannot be written as JSON, so such an environment's spec cannot either, and Gymnasium
            copies it whenever a wrapper's `spec` is read: name a large model by its path.
        opponent_options: keyword arguments for the factory of the opponent.
        arguments: see `sesa_env.envs.base.RoundEnv`.

    Raises:
        InvalidInput: there is no such role, or an opponent is given where the learner plays both.
        SettingsError, InvalidInput: see `sesa_env.envs.base.RoundEnv`.
    """

    option_names: ClassVar[tuple[str, ...]] = ("target",)

    def __init__(
        self,
        *,
        targets: str = CORPUS,
        role: str | None = None,
        opponent: str | Opponent | None = None,
        opponent_options: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        if role not in (None, *ROLES):
            raise InvalidInput(f"role must be 'challenger', 'solver' or None, got {role!r}")
        if role is None and (opponent is not None or opponent_options is not None):
            raise InvalidInput(f"opponent must be None unless a role is given, got {opponent or opponent_options!r}")
        super().__init__(**arguments)
        self._targets = targets
        self.role = role
        self._opponent_spec = "scripted" if opponent is None else opponent
        self._opponent_options = opponent_options

    def opponent_seats(self, game: Game) -> tuple[str, ...]:
        """Return the active seats, when their role is not the learner's; roles never act side by side."""
        if self.role is None or not game.active or game.view(game.active[0]).role == self.role:
            return ()
        return game.active

    def _spaces(self) -> dict[str, Space[Any]]:
        settings = self.settings
        return {
            "role": Discrete(len(ROLES)),
            "seat": Discrete(settings.attempts + 1),
            "turns_left": Discrete(max(settings.solver_turns, settings.challenger_turns) + 1),
            "hops": Discrete(MAX_HOPS + 1),
            "question": UnicodeText(MAX_ACTION_CHARS),
            "target": UnicodeText(MAX_ACTION_CHARS),
            "examples": UnicodeText(MAX_ACTION_CHARS),
            "observation": UnicodeText(observation_chars(settings)),
            "transcript": UnicodeText(transcript_chars(settings)),
        }

    def _begin(self, game: Game, options: Mapping[str, Any]) -> None:
        game.pose(_target(options["target"]) if "target" in options else self._draw())

    def _draw(self) -> Target:
        tests = self.settings.checks.test_questions
        targets = open_targets(self._targets, corpus=self._corpus, test_questions=tests)
        return targets[int(self.np_random.integers(len(targets)))]

    def _observe(self, view: View) -> Observation:
        return {
            "role": ROLES.index(view.role),
            "seat": 0 if view.role == CHALLENGER else int(view.seat.rpartition("_")[2]) + 1,
            "turns_left": view.turns_left,
            "hops": view.hops,
            "question": view.question,
            "target": view.target,
            "examples": "\n".join(view.examples),
            "observation": view.observation,
            "transcript": view.transcript,
        }


def _target(option: Any) -> Target:
    known = {"answer", "hops", "aliases", "examples"}
    if not isinstance(option, Mapping) or not {"answer"} <= set(option) <= known:
        raise InvalidInput(f"the option 'target' must be a mapping with {sorted(known)}, got {option!r}")
    several = {name: tuple(option.get(name, ())) for name in ("aliases", "examples")}
    return Target(option["answer"], hops=option.get("hops", 1), **several)
