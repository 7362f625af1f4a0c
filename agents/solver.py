"""The LLM solver: fetches skills for the question, searches, answers.

Skills are fetched once per question, when its attempts open, so that all G of them see the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.base import Message, Policy
from agents.llm import LLMAgent, Opening
from agents.prompts import solver_messages
from sesa_env.text import question_key
from sesa_env.types import View
from skill_memory.base import SkillMemory
from skill_memory.render import render_skills
from skill_memory.skill import Skill

STOP = ("</search>", "</answer>")


def make_solver(
    policy: Policy,
    memory: SkillMemory,
    *,
    token_budget: int,
    max_new_tokens: int,
    temperature: float,
    demonstrated: bool = True,
) -> LLMAgent:
    """Return the agent that plays every solver seat with `policy`.

    Args:
        policy: writes the texts.
        memory: where skills come from; `NoMemory` for none.
        token_budget: most tokens of the block of skills in a prompt; the lowest-ranked skills are left out first.
        max_new_tokens: most tokens per turn.
        temperature: of the sampling; 0 is greedy.
        demonstrated: whether prompts begin with instructions and demonstrations.
    """

    def openings(views: Sequence[View]) -> list[Opening]:
        questions = list(dict.fromkeys(view.question for view in views))
        tools = {view.question: view.tools for view in views}
        found = memory.retrieve(questions, exclude_source=[question_key(question) for question in questions])
        snapshot_id = memory.snapshot_id
        opened = {}
        for question, skills in zip(questions, found, strict=True):
            block, skill_ids = _block(policy, skills, token_budget=token_budget)
            messages = solver_messages(question, skills=block, demonstrated=demonstrated, tools=tools[question])
            opened[question] = Opening(messages, skill_ids=skill_ids, snapshot_id=snapshot_id)
        return [opened[view.question] for view in views]

    return LLMAgent(policy, openings, stop=STOP, max_new_tokens=max_new_tokens, temperature=temperature)


def _block(policy: Policy, skills: Sequence[Skill], *, token_budget: int) -> tuple[str, tuple[str, ...]]:
    """Return the rendered skills that fit the budget, and their ids."""

    def fits(block: str) -> bool:
        return len(policy.encode_chat([Message("user", block)])) <= token_budget

    return render_skills(skills, fits=fits)
