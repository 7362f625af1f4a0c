"""The world of self-evolving search agents: what can be asked, searched, answered.

    import gymnasium as gym, sesa_env
    env = gym.make("SESA-Search-v0")
    observation, info = env.reset(seed=0)

Importing it registers two environments with Gymnasium, and the built-in parts by name.  A part is loaded when it is
first used, so this import needs numpy and Gymnasium only: no torch, no Java.
"""

import gymnasium

import sesa_env.retrieval  # noqa: F401  (registers the retrievers)
from sesa_env.errors import SesaError
from sesa_env.game import Game, GameSettings, Move, advance
from sesa_env.registry import CHALLENGER_REWARDS, RETRIEVERS, VALIDATORS
from sesa_env.types import Action, Passage, Question, Round, Target, Trajectory, Turn, View

__all__ = [
    "CHALLENGER_REWARDS",
    "RETRIEVERS",
    "VALIDATORS",
    "Action",
    "Game",
    "GameSettings",
    "Move",
    "Passage",
    "Question",
    "Round",
    "SesaError",
    "Target",
    "Trajectory",
    "Turn",
    "View",
    "advance",
]

gymnasium.register(id="SESA-Search-v0", entry_point="sesa_env.envs.search:SearchEnv")
gymnasium.register(id="SESA-Solve-v0", entry_point="sesa_env.envs.solve:SolveEnv")

CHALLENGER_REWARDS.register("frontier", "sesa_env.rewards:frontier")
CHALLENGER_REWARDS.register("one_minus_solve_rate", "sesa_env.rewards:one_minus_solve_rate")
CHALLENGER_REWARDS.register("format_only", "sesa_env.rewards:format_only")

VALIDATORS.register("format", "sesa_env.validators:has_format")
VALIDATORS.register("length", "sesa_env.validators:has_length")
VALIDATORS.register("leak", "sesa_env.validators:has_no_leak")
VALIDATORS.register("information", "sesa_env.validators:has_information")
VALIDATORS.register("searches", "sesa_env.validators:has_searches")
VALIDATORS.register("repeated_query", "sesa_env.validators:has_no_repeated_query")
