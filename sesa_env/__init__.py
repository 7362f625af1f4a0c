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
from sesa_env.registry import ANSWERERS, CHALLENGER_REWARDS, JUDGES, OPPONENTS, RETRIEVERS, TARGETS, VALIDATORS
from sesa_env.types import Action, Passage, Question, Round, Target, Trajectory, Turn, View

__all__ = [
    "ANSWERERS",
    "CHALLENGER_REWARDS",
    "JUDGES",
    "OPPONENTS",
    "RETRIEVERS",
    "TARGETS",
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

gymnasium.register(
    id="SESA-Search-v0",
    entry_point="sesa_env.envs.search:SearchEnv",
    vector_entry_point="sesa_env.envs.vector:SearchVectorEnv",
)
gymnasium.register(
    id="SESA-Solve-v0",
    entry_point="sesa_env.envs.solve:SolveEnv",
    vector_entry_point="sesa_env.envs.vector:SolveVectorEnv",
)

OPPONENTS.register("scripted", "sesa_env.envs.opponents:ScriptedOpponent")

CHALLENGER_REWARDS.register("frontier", "sesa_env.rewards:frontier")
CHALLENGER_REWARDS.register("one_minus_solve_rate", "sesa_env.rewards:one_minus_solve_rate")
CHALLENGER_REWARDS.register("format_only", "sesa_env.rewards:format_only")

CHALLENGER_REWARDS.register("uncertainty", "sesa_env.rewards:uncertainty")
CHALLENGER_REWARDS.register("learnability", "sesa_env.rewards:learnability")

JUDGES.register("exact", "sesa_env.judge:ExactMatchJudge")
JUDGES.register("f1", "sesa_env.judge:F1Judge")
JUDGES.register("containment", "sesa_env.judge:ContainmentJudge")
JUDGES.register("em_or_model", "sesa_env.judge:em_or_model")
JUDGES.register("recorded", "sesa_env.judge:RecordedJudge")

TARGETS.register("corpus", "sesa_env.targets:load_targets")
TARGETS.register("answers", "sesa_env.targets:read_answers")
TARGETS.register("ssp", "sesa_env.targets:read_ssp")

VALIDATORS.register("format", "sesa_env.validators:has_format")
VALIDATORS.register("length", "sesa_env.validators:has_length")
VALIDATORS.register("leak", "sesa_env.validators:has_no_leak")
VALIDATORS.register("information", "sesa_env.validators:has_information")
VALIDATORS.register("searches", "sesa_env.validators:has_searches")
VALIDATORS.register("repeated_query", "sesa_env.validators:has_no_repeated_query")
VALIDATORS.register("tokens", "sesa_env.validators:has_token_count")
VALIDATORS.register("query_leak", "sesa_env.validators:has_no_query_leak")
VALIDATORS.register("single_answer", "sesa_env.wording:has_single_answer")
VALIDATORS.register("nested", "sesa_env.wording:has_few_clauses")
VALIDATORS.register("judge_bait", "sesa_env.wording:has_no_judge_bait")
VALIDATORS.register("near_duplicate", "sesa_env.novelty:NearDuplicate")
VALIDATORS.register("target_share", "sesa_env.novelty:TargetShare")
VALIDATORS.register("eval_overlap", "sesa_env.novelty:EvalOverlap")
VALIDATORS.register("rag", "sesa_env.verification:RagVerification")

ANSWERERS.register("solver", "sesa_env.answerers:trained_solver")
ANSWERERS.register("title", "sesa_env.answerers:title_answerer")
ANSWERERS.register("chat", "sesa_env.answerers:chat_answerer")
ANSWERERS.register("atlas", "sesa_env.corpora.atlas.reader:atlas_reader")
