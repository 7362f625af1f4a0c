"""Make the players of a run from its settings: the model, and an agent and a learner for each role.

settings, chosen = settle(settings)             # before they are stored with a run
model = load_model(settings)
seats = make_seats(model, memory, settings)     # {"challenger": Seat, "solver": Seat}
reader = make_reader(model, settings)           # the solver without its search tool
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from agents.challenger import make_challenger
from agents.checkpoint import SHARED, load_start
from agents.config import SeatSettings, Settings
from agents.device import NumberFormat, number_format, resolve_device
from agents.learner import Learner
from agents.policies import source_of
from agents.policies.hf import LanguageModel
from agents.reader import PolicyReader
from agents.selfplay import Seat
from agents.solver import make_solver
from sesa_env.types import CHALLENGER, SOLVER
from skill_memory.base import SkillMemory
from skill_memory.distill import DISTILLERS

DISTILLERS.register("local", "agents.distiller:local_distiller")


def settle(settings: Settings) -> tuple[Settings, NumberFormat]:
    """Return the settings with what "auto" leaves to this machine chosen, where a run must keep it: the number format.

    Raises:
        SettingsError: the settings name a device that is not there.
    """
    chosen = number_format(settings.model, resolve_device(settings.model.device))
    return replace(settings, model=replace(settings.model, dtype=chosen.dtype)), chosen


def load_model(settings: Settings) -> LanguageModel:
    """Load the policy the settings name, with weights for each role, or shared ones.

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

    A frozen seat has no learner.  Each policy starts where its settings say, and that is the reference of its KL term.

    With shared weights the roles share one optimiser too, as SSP's single actor does.
    """
    solver = make_solver(
        model.policy(adapter_of(SOLVER, settings), seed=2 * settings.seed),
        memory,
        token_budget=settings.memory.token_budget,
        max_new_tokens=settings.model.max_new_tokens,
        temperature=settings.model.solver_temperature,
        demonstrated=settings.model.demonstrations,
    )
    challenger = make_challenger(
        model.policy(adapter_of(CHALLENGER, settings), seed=2 * settings.seed + 1),
        max_new_tokens=settings.model.max_new_tokens,
        temperature=settings.model.challenger_temperature,
        demonstrated=settings.model.demonstrations,
    )
    learners: dict[str, Learner | None] = {}
    for role, chosen in ((SOLVER, settings.solver), (CHALLENGER, settings.challenger)):
        if chosen.start is not None:
            load_start(chosen.start, model, name=adapter_of(role, settings), role=role)
        other = learners.get(SOLVER) if settings.shared_weights else None
        learners[role] = _learner(model, adapter_of(role, settings), chosen, steps=settings.steps, shared_with=other)
    return {
        CHALLENGER: Seat(challenger, learners[CHALLENGER]),
        SOLVER: Seat(solver, learners[SOLVER]),
    }


def make_reader(model: LanguageModel, settings: Settings) -> PolicyReader:
    """Return the solver as it is at any time, answering from given passages; it decodes greedily."""
    return PolicyReader(
        model.policy(adapter_of(SOLVER, settings), seed=settings.seed),
        max_new_tokens=settings.model.max_new_tokens,
        demonstrated=settings.model.demonstrations,
    )


def _learner(
    model: LanguageModel, name: str, settings: SeatSettings, *, steps: int, shared_with: Learner | None
) -> Learner | None:
    """Return what trains the weights of that name; None when they are frozen."""
    if settings.frozen:
        return None
    weights = model.weights
    reference: dict[str, Any] = {}
    if settings.kl_coef > 0:
        weights.keep_reference(name)
        reference = {"reference": partial(weights.reference, name), "reference_model": weights.reference_model(name)}
    return Learner(
        weights.model(name),
        weights.parameters(name),
        replace(settings, total_updates=settings.total_updates or max(steps, 1)),
        activate=partial(weights.using, name),
        **reference,
        optimizer=shared_with.optimizer if shared_with else None,
    )
