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
from gymnasium.spaces import Dict, Space

from sesa_env.envs.transcript import transcript
from sesa_env.envs.world import open_retriever
from sesa_env.errors import InvalidInput, OutOfTurn
from sesa_env.game import Game, GameSettings, Move, advance
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.base import Retriever
from sesa_env.spaces import UnicodeText
from sesa_env.types import Trajectory, View

MAX_ACTION_CHARS = 65_536

Observation = dict[str, Any]
Info = dict[str, Any]


class RoundEnv(gymnasium.Env[Observation, str], ABC):
    """A round as a Gymnasium environment; see `SearchEnv` and `SolveEnv`.

    Args:
        corpus: "atlas", "atlas:SEED" or the path of a JSON-lines file.
        retriever: a name in `RETRIEVERS`.
        index: path of a ready index; None builds or finds one.
        settings: fields of `GameSettings` to change.
        render_mode: "ansi", "human" or None.

    Raises:
        SettingsError: a setting is unknown.
        InvalidInput: a setting or the render mode is out of range.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 4}  # noqa: RUF012  (Gymnasium's form)
    _option_names: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        corpus: str = "atlas",
        retriever: str = "bm25",
        index: str | None = None,
        settings: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InvalidInput(f"render_mode must be 'ansi', 'human' or None, got {render_mode!r}")
        self.settings = GameSettings.from_mapping(settings or {})
        self.render_mode = render_mode
        self.action_space = UnicodeText(MAX_ACTION_CHARS)
        self.observation_space = Dict(self._spaces())
        self._corpus, self._retriever_name, self._index = corpus, retriever, index
        self._retriever: Retriever | None = None
        self._game: Game | None = None
        self._seat = ""
        self._shown = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin a new round; without a seed the environment's random stream goes on.

        Raises:
            InvalidInput: an option is unknown or breaks its rule.
        """
        super().reset(seed=seed)
        unknown = sorted(set(options or {}) - set(self._option_names))
        if unknown:
            raise InvalidInput(f"options must be among {list(self._option_names)}, got {unknown}")
        self._search_tool()
        game = Game(self.settings, judge=ExactMatchJudge())
        self._begin(game, options or {})
        observation = self._observe(game.view(game.active[0]))
        if observation not in self.observation_space:
            raise InvalidInput(f"what is asked must fit the observation space, got {observation!r}")
        self._game, self._seat, self._shown = game, game.active[0], ""
        self._show()
        return observation, self._describe(game.trajectory(self._seat))

    def step(self, action: str) -> tuple[Observation, float, bool, bool, Info]:
        """Take the turn of the seat that the last observation was for, with the text that its policy wrote.

        Returns:
            What the next seat observes (after the end: what the last one does), the reward of the seat that acted,
            terminated, truncated, and info about the turn that was taken.

        Raises:
            OutOfTurn: the round is over, or was never begun.
            InvalidInput: the action is not a string, or is too long.
        """
        game = self.game
        if game.phase == "settled":
            raise OutOfTurn("the round is over, call reset for a new one")
        if action not in self.action_space:
            raise InvalidInput(
                f"an action must be a string of at most {MAX_ACTION_CHARS} characters, got {action!r:.80}"
            )
        seat = self._seat
        advance([Move(game, seat, action)], self._search_tool())
        if game.active:
            self._seat = game.active[0]
        self._show()
        done = game.trajectory(seat)
        truncated = self._truncates(done)
        terminated = not game.active and not truncated
        return self._observe(game.view(self._seat)), done.reward, terminated, truncated, self._describe(done)

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

    def __getstate__(self) -> dict[str, Any]:
        """Leave the retriever out; whoever unpickles the environment opens one of its own."""
        return {**self.__dict__, "_retriever": None}

    @abstractmethod
    def _spaces(self) -> dict[str, Space[Any]]:
        """Return the space of each part of the observation."""

    @abstractmethod
    def _begin(self, game: Game, options: Mapping[str, Any]) -> None:
        """Pose a target or ask a question, as the options of `reset` say or at random."""

    @abstractmethod
    def _observe(self, view: View) -> Observation:
        """Return what the seat may see, in the form of the observation space."""

    def _truncates(self, trajectory: Trajectory) -> bool:
        """Tell whether the step that led here cut the round short rather than ended it."""
        return False

    def _search_tool(self) -> Retriever:
        if self._retriever is None:
            self._retriever = open_retriever(self._corpus, retriever=self._retriever_name, index=self._index)
        return self._retriever

    def _describe(self, trajectory: Trajectory) -> Info:
        """Tell what the seat did in its last turn; nothing here says what the right answer is."""
        action = trajectory.turns[-1].action if trajectory.turns else None
        info: Info = {
            "seat": trajectory.seat,
            "role": trajectory.role,
            "phase": self.game.phase,
            "action": action.kind if action else "",
            "reason": action.reason if action else "",
            "end_reason": trajectory.end_reason,
            "usable": trajectory.usable,
        }
        if self.game.phase == "settled":
            result = self.game.result
            info.update(rewards=result.rewards, solve_rate=result.solve_rate, rejection=result.rejection)
        return info

    def _show(self) -> None:
        if self.render_mode != "human":
            return
        now = transcript(self.game)
        sys.stdout.write(now[len(self._shown) :])
        sys.stdout.flush()
        self._shown = now


def observation_chars(settings: GameSettings) -> int:
    """Return an upper bound of what one turn can bring: the passages with their titles, or a correction."""
    return max(500, settings.top_k * (2 * settings.passage_chars + 50))


def transcript_chars(settings: GameSettings) -> int:
    """Return an upper bound of a seat's own texts and observations together."""
    turns = max(settings.solver_turns, settings.challenger_turns)
    return turns * (MAX_ACTION_CHARS + observation_chars(settings) + 50)
