"""SESA-Solve-v0: one solver, one attempt, at questions that are given.

    env = gymnasium.make("SESA-Solve-v0", questions="questions.jsonl", corpus="passages.jsonl")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("<answer>Oslo</answer>")

It is for training on a question set and for evaluation; questions that a challenger makes up are `SESA-Search-v0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium.spaces import Discrete, Space

from sesa_env.envs.base import MAX_ACTION_CHARS, Observation, RoundEnv, observation_chars, transcript_chars
from sesa_env.envs.world import load_questions
from sesa_env.errors import InvalidInput
from sesa_env.game import Game
from sesa_env.spaces import UnicodeText
from sesa_env.types import Question, Standing, View


class SolveEnv(RoundEnv):
    """One attempt at a given question; every argument can be written as JSON.

    The observation has `turns_left`, `question`, `observation` (what the last turn brought) and `transcript` (all
    turns).  The action is the text that the policy wrote.  The reward is 1.0 for a right answer, once, at its end.

    `reset(options={"question_id": ...})` asks that question; otherwise it is drawn.  An answer and too many invalid
    turns terminate; running out of turns, and a search tool that fails, truncate.

    Info is as in `SearchEnv`.

    Args:
        questions: "atlas", "atlas:SEED" or the path of a JSON-lines file.
        arguments: see `sesa_env.envs.base.RoundEnv`.

    Raises:
        SettingsError, InvalidInput: see there.
    """

    option_names: ClassVar[tuple[str, ...]] = ("question_id",)

    def __init__(self, *, questions: str = "atlas", **arguments: Any) -> None:
        super().__init__(**arguments)
        self._questions = questions

    def _spaces(self) -> dict[str, Space[Any]]:
        return {
            "turns_left": Discrete(self.settings.solver_turns + 1),
            "question": UnicodeText(MAX_ACTION_CHARS),
            "observation": UnicodeText(observation_chars(self.settings)),
            "transcript": UnicodeText(transcript_chars(self.settings)),
        }

    def _begin(self, game: Game, options: Mapping[str, Any]) -> None:
        question = self._find(options["question_id"]) if "question_id" in options else self._draw()
        game.ask(question, attempts=1)

    def _draw(self) -> Question:
        questions = load_questions(self._questions)
        return questions[int(self.np_random.integers(len(questions)))]

    def _find(self, question_id: str) -> Question:
        for question in load_questions(self._questions):
            if question.id == question_id:
                return question
        raise InvalidInput(f"the option 'question_id' must be an id in {self._questions!r}, got {question_id!r}")

    def _observe(self, view: View) -> Observation:
        return {
            "turns_left": view.turns_left,
            "question": view.question,
            "observation": view.observation,
            "transcript": view.transcript,
        }

    def _truncates(self, standing: Standing) -> bool:
        return standing.end_reason in ("turn_limit", "search_unavailable")
