"""What the two Gymnasium faces share: one seat of one `Game` acts at a time, in the order of the seats.

A subclass says how a round begins (`_begin`), what a seat observes (`_spaces`, `_observe`) and when a step truncates;
everything else about a round is decided by `sesa_env.game`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, Space

from sesa_env.envs.batch import begin_rounds, let_opponents_play
from sesa_env.envs.opponents import Opponent, open_opponent
from sesa_env.envs.transcript import transcript
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput, OutOfTurn
from sesa_env.game import Game, GameSettings, Move, advance
from sesa_env.judge import ExactMatchJudge
from sesa_env.reading import longest_reading
from sesa_env.retrieval.base import Retriever
from sesa_env.spaces import UnicodeText
from sesa_env.types import Standing, View
from sesa_env.validators import ValidatorChain

MAX_ACTION_CHARS = 65_536

Observation = dict[str, Any]
Info = dict[str, Any]


class RoundEnv(gymnasium.Env[Observation, str], ABC):
    """A round as a Gymnasium environment; see `SearchEnv` and `SolveEnv`.

    Args:
        corpus: "atlas", "atlas:SEED" or the path of a JSON-lines file.
        retriever: a name in `RETRIEVERS`.
        index: path of a ready index; None builds or finds one.
        cache: file in which search results are kept from one run to the next, for retrievers that are slow.
        settings: fields of `GameSettings` to change.  Validators that remember do so for this environment alone, and
            from one seeded `reset` to the next.
        render_mode: "ansi", "human" or None.

    Raises:
        SettingsError: a setting is unknown.
        InvalidInput: a setting or the render mode is out of range.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 4}  # noqa: RUF012  (Gymnasium's form)
    option_names: ClassVar[tuple[str, ...]] = ()
    """What `reset(options=...)` understands."""
    role: str | None = None
    """The role that the learner plays; None when it plays all of them."""

    def __init__(
        self,
        *,
        corpus: str = "atlas",
        retriever: str = "bm25",
        index: str | None = None,
        cache: str | None = None,
        settings: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InvalidInput(f"render_mode must be 'ansi', 'human' or None, got {render_mode!r}")
        self.settings = GameSettings.from_mapping(settings or {})
        self.render_mode = render_mode
        self.action_space = UnicodeText(MAX_ACTION_CHARS)
        self.observation_space = Dict({**self._spaces(), **self._tool_spaces()})
        self._corpus, self._retriever_name, self._index, self._cache = corpus, retriever, index, cache
        self._retriever: Retriever | None = None
        self._opponent_spec: str | Opponent = "scripted"
        self._opponent_options: Mapping[str, Any] | None = None
        self._opponent: Opponent | None = None
        self._validators: ValidatorChain | None = None
        self.round_id = "round"
        self._game: Game | None = None
        self._seat = ""
        self._shown = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin a new round; without a seed the environment's random stream and the validators' memory go on.

        Raises:
            SettingsError: a validator cannot be made with these settings.
            InvalidInput: an option is unknown or breaks its rule, or the opponent finds no question that passes.
            SearchUnavailable, CheckUnavailable: the search tool, or a check of the opponent's question, failed.
        """
        return begin_rounds([self], seeds=[seed], options=options)[0]

    def step(self, action: str) -> tuple[Observation, float, bool, bool, Info]:
        """Take the turn of the seat that the last observation was for, with the text that its policy wrote.

        Returns:
            What the next seat observes (after the end: what the last one does), the reward of the seat that acted,
            terminated, truncated, and info about the turn that was taken.

        Raises:
            OutOfTurn: the round is over, or was never begun.
            InvalidInput: the action is not a string, or is too long.
        """
        move = self.move(action)
        advance([move], self.search_tool())
        if self.role is not None:  # without a role the learner plays all
            let_opponents_play([self], [move.game])
        return self.outcome(move.seat)

    def render(self) -> str | None:
        """Return the round so far as a person reads it; in mode "human" each step has printed its part already."""
        if self.render_mode == "ansi" and self._game:
            return transcript(self._game)
        return "" if self.render_mode == "ansi" else None

    @property
    def game(self) -> Game:
        """The round being played, for tools that may see everything: its `result` holds all that happened.

        Raises:
            OutOfTurn: no round was begun.
        """
        if self._game is None:
            raise OutOfTurn("no round was begun, call reset first")
        return self._game

    def get_state(self) -> dict[str, Any]:
        """Return the round, whose turn it is, the random stream and what the validators remember, as JSON data.

        The memory that an opponent may keep of earlier turns is not part of it.

        Raises:
            InvalidInput: the random stream was replaced by one that is not NumPy's default.
            SettingsError: a validator remembers and cannot say what; see `ValidatorChain.get_state`.
        """
        stream = self.np_random.bit_generator.state
        if stream["bit_generator"] != "PCG64":
            raise InvalidInput(f"np_random must be a PCG64 generator to be saved, got {stream['bit_generator']}")
        return {
            "role": self.role,
            "retriever": self.search_tool().fingerprint,
            "random": dict(stream),
            "seed": self.np_random_seed,
            "seat": self._seat,
            "validators": self._validators.get_state() if self._validators else None,
            "game": self._game.get_state() if self._game else None,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned, here or in another environment made with the same arguments.

        Raises:
            InvalidInput: it is no such state, or one of an environment with another role, retriever or settings;
                nothing was changed.
        """
        parts = {"role", "retriever", "random", "seed", "seat", "validators", "game"}
        if not isinstance(state, Mapping) or set(state) != parts:
            raise InvalidInput(f"state must be what get_state returned, got {state!r:.80}")
        for name, here in (("role", self.role), ("retriever", self.search_tool().fingerprint)):
            if state[name] != here:
                raise InvalidInput(f"state must be of an environment with {name} {here!r}, got {state[name]!r}")
        validators = self._chain() if state["validators"] is not None else None
        if validators is not None:
            validators.set_state(state["validators"])
        game = None
        if state["game"] is not None:
            game = Game(self.settings, judge=ExactMatchJudge(), validators=validators)
            game.set_state(state["game"])
        if state["seat"] not in (game.seats if game else ("",)):
            raise InvalidInput(f"state must be what get_state returned, got the seat {state['seat']!r}")
        stream = np.random.default_rng()
        try:
            stream.bit_generator.state = state["random"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"state must hold a PCG64 random stream, got {state['random']!r:.80}") from error
        self._np_random, self._np_random_seed = stream, state["seed"]
        self._game, self._seat, self._validators = game, state["seat"], validators
        self._shown = transcript(game) if game else ""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was opened by name; whoever unpickles the environment opens it anew."""
        return {**self.__dict__, "_retriever": None, "_opponent": None}

    # What `sesa_env.envs.batch` and the faces for other libraries are built from.

    def new_game(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Game:
        """Return a round that has begun, which this environment does not hold yet (see `hold`).

        Raises:
            InvalidInput: an option is unknown or breaks its rule.
        """
        super().reset(seed=seed)
        unknown = sorted(set(options or {}) - set(self.option_names))
        if unknown:
            raise InvalidInput(f"options must be among {list(self.option_names)}, got {unknown}")
        self.search_tool()
        if seed is not None:  # equal seeds give equal rounds, so what was remembered must not play a part
            self._validators = None
        game = Game(self.settings, judge=ExactMatchJudge(), id=self.round_id, validators=self.validators())
        self._begin(game, options or {})
        observation = self._shown_to(game.view(game.active[0]))
        if observation not in self.observation_space:
            raise InvalidInput(f"what is asked must fit the observation space, got {observation!r}")
        return game

    def hold(self, game: Game) -> tuple[Observation, Info]:
        """Make this the round that is played, and return what the seat to act observes, and info."""
        self._game, self._seat, self._shown = game, game.active[0], ""
        self.show()
        return self._shown_to(game.view(self._seat)), self._describe(game.standing(self._seat))

    def move(self, action: str) -> Move:
        """Return the turn that an action would be, without taking it.

        Raises:
            OutOfTurn: the round is over, or was never begun.
            InvalidInput: the action is not a string, or is too long.
        """
        game = self.game
        if game.phase == "settled":
            raise OutOfTurn("the round is over, call reset for a new one")
        if not self.action_space.contains(action):
            raise InvalidInput(
                f"an action must be a string of at most {MAX_ACTION_CHARS} characters, got {action!r:.80}"
            )
        return Move(game, self._seat, action)

    def outcome(self, seat: str) -> tuple[Observation, float, bool, bool, Info]:
        """Return what a step returns, after the turn of that seat was taken."""
        game = self.game
        active = game.active
        if active:
            self._seat = active[0]
        self.show()
        standing = game.standing(seat)
        truncated = self._truncates(standing)
        terminated = not active and not truncated
        return self._shown_to(game.view(self._seat)), standing.reward, terminated, truncated, self._describe(standing)

    def show(self) -> None:
        """Print what has happened since the last call, in render mode "human"."""
        if self.render_mode != "human":
            return
        now = transcript(self.game)
        sys.stdout.write(now[len(self._shown) :])
        sys.stdout.flush()
        self._shown = now

    def opponent_seats(self, game: Game) -> tuple[str, ...]:
        """Return the seats to act now that are not the learner's; none while the learner is to act."""
        return ()

    def opponent(self) -> Opponent:
        """Return who plays the other role, opened when it is first needed.

        Raises:
            UnknownName, InvalidInput: there is no such opponent; see `open_opponent`.
        """
        if self._opponent is None:
            self._opponent = open_opponent(self._opponent_spec, self._opponent_options)
        return self._opponent

    def search_tool(self) -> Retriever:
        """Return the retriever, opened when it is first needed.

        Raises:
            UnknownName, CorpusError, IndexMismatch: it cannot be opened; see `open_retriever`.
        """
        if self._retriever is None:
            self._retriever = open_retriever(
                self._corpus,
                retriever=self._retriever_name,
                index=self._index,
                cache=self._cache,
                pages=bool(self.settings.tools),
            )
        return self._retriever

    def validators(self) -> ValidatorChain:
        """Return the chain that checks this environment's questions, made when it is first needed.

        Raises:
            SettingsError, CorpusError: it cannot be made; see `ValidatorChain`.
        """
        if self._validators is None:
            self._validators = self._chain()
        return self._validators

    def _chain(self) -> ValidatorChain:
        return ValidatorChain(self.settings.validators, checks=self.settings.checks)

    @abstractmethod
    def _spaces(self) -> dict[str, Space[Any]]:
        """Return the space of each part of the observation."""

    @abstractmethod
    def _begin(self, game: Game, options: Mapping[str, Any]) -> None:
        """Pose a target or ask a question, as the options of `reset` say or at random."""

    @abstractmethod
    def _observe(self, view: View) -> Observation:
        """Return what the seat may see, in the form of the observation space."""

    def _tool_spaces(self) -> dict[str, Space[Any]]:
        """Return the spaces of what a seat has left of each tool; none for tools that the rules do not give."""
        budgets = {"open": self.settings.max_opens, "find": self.settings.max_finds}
        return {f"{tool}s_left": Discrete(budgets[tool] + 1) for tool in self.settings.tools}

    def _shown_to(self, view: View) -> Observation:
        observation = self._observe(view)
        for tool in view.tools:
            observation[f"{tool}s_left"] = getattr(view, f"{tool}s_left")
        return observation

    def _truncates(self, standing: Standing) -> bool:
        """Tell whether the step that led here cut the round short rather than ended it."""
        return False

    def _describe(self, standing: Standing) -> Info:
        """Tell what the seat did in its last turn; nothing here says what the right answer is."""
        game, last = self.game, standing.last
        info: Info = {
            "seat": standing.seat,
            "role": standing.role,
            "phase": game.phase,
            "action": last.action.kind if last else "",
            "reason": last.action.reason if last else "",
            "remark": last.remark if last else "",
            "end_reason": standing.end_reason,
            "usable": standing.usable,
        }
        if info["phase"] == "settled":
            info.update(rewards=game.rewards, solve_rate=game.solve_rate, rejection=game.rejection)
        return info


def observation_chars(settings: GameSettings) -> int:
    """Return an upper bound of what one turn can bring: the passages with their titles, a page, or a correction."""
    page = longest_reading(settings.limits) + 50 if settings.tools else 0
    return max(500, settings.top_k * (2 * settings.passage_chars + 50), page)


def transcript_chars(settings: GameSettings) -> int:
    """Return an upper bound of a seat's own texts and observations together."""
    turns = max(settings.solver_turns, settings.challenger_turns)
    return turns * (MAX_ACTION_CHARS + observation_chars(settings) + 50)
