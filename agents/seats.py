"""Make the players of a run from its settings: the model, and an agent and a learner for each role.

model = load_model(settings)
seats = make_seats(model, memory, settings)     # {"challenger": Seat, "solver": Seat}
"""

from __future__ import annotations

from functools import partial

from agents.challenger import make_challenger
from agents.config import Settings
from agents.learner import Learner
from agents.policies import source_of
from agents.policies.hf import LanguageModel
from agents.selfplay import Seat
from agents.solver import make_solver
from sesa_env.types import CHALLENGER, SOLVER
from skill_memory.base import SkillMemory

SHARED = "shared"


def load_model(settings: Settings) -> LanguageModel:
    """Load the policy the settings name, with one adapter per role, or one for both.

    Raises:
        UnknownName, ModelNotFound, MissingDependency: as `agents.policies.source_of` and the loader say.
    """
    adapters = sorted({adapter_of(role, settings) for role in (SOLVER, CHALLENGER)})
    return LanguageModel.load(
        source_of(settings.policy), adapters=adapters, settings=settings.model, seed=settings.seed
    )


def adapter_of(role: str, settings: Settings) -> str:
    """Return the name of the adapter through which a role writes."""
    return SHARED if settings.shared_weights else role


def make_seats(model: LanguageModel, memory: SkillMemory, settings: Settings) -> dict[str, Seat]:
    """Return both roles' agents and learners; only the solver's agent is given the memory.

    With shared weights the roles share one optimiser too, as SSP's single actor does.
    """
    solver = make_solver(
        model.policy(adapter_of(SOLVER, settings), seed=2 * settings.seed),
        memory,
        token_budget=settings.memory.token_budget,
        max_new_tokens=settings.model.max_new_tokens,
        temperature=settings.model.solver_temperature,
    )
    challenger = make_challenger(
        model.policy(adapter_of(CHALLENGER, settings), seed=2 * settings.seed + 1),
        max_new_tokens=settings.model.max_new_tokens,
        temperature=settings.model.challenger_temperature,
    )
    learners: dict[str, Learner] = {}
    for role, learner_settings in ((SOLVER, settings.solver), (CHALLENGER, settings.challenger)):
        learners[role] = Learner(
            model.model,
            model.parameters(adapter_of(role, settings)),
            learner_settings,
            activate=partial(model.using, adapter_of(role, settings)),
            reference=model.reference,
            optimizer=learners[SOLVER].optimizer if settings.shared_weights and role == CHALLENGER else None,
        )
    return {
        CHALLENGER: Seat(challenger, learners[CHALLENGER]),
        SOLVER: Seat(solver, learners[SOLVER]),
    }
