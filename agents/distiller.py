"""A distiller that is a language model on this machine: frozen, and asked in batches.

    memory.distil=local memory.distil_options.model=path/or/hub-id

It is not the model that is trained, though it may be loaded from the same folder; it is loaded when it is first asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property

from agents.base import Message, Policy
from agents.config import ModelSettings
from agents.policies import source_of
from agents.policies.hf import LanguageModel
from skill_memory.teacher import ModelDistiller, with_record

log = logging.getLogger(__name__)

_ADAPTER = "distiller"


class PolicyTeacher:
    """Any policy as a teacher: greedy, and every request a conversation of its own.

    Args:
        load: returns the policy; called when something is asked for the first time.
        name: the policy's name, in records.
        max_new_tokens: longest reply.
    """

    def __init__(self, load: Callable[[], Policy], *, name: str, max_new_tokens: int) -> None:
        self.name = name
        self._load = load
        self._max_new_tokens = max_new_tokens

    @cached_property
    def _policy(self) -> Policy:
        return self._load()

    def ask_all(self, system: str, users: Sequence[str]) -> list[str | None]:
        """Return a reply for each user text; the empty one where the request alone fills the context."""
        prompts = [self._policy.encode_chat([Message("system", system), Message("user", user)]) for user in users]
        room = self._policy.max_context - self._max_new_tokens
        fitting = [row for row, prompt in enumerate(prompts) if len(prompt) <= room]
        if len(fitting) < len(prompts):
            log.warning("%d requests to the distiller have more than %d tokens", len(prompts) - len(fitting), room)
        completions = self._policy.generate(
            [prompts[row] for row in fitting], stop=(), max_new_tokens=self._max_new_tokens, temperature=0.0
        )
        replies: list[str | None] = [""] * len(users)
        for row, completion in zip(fitting, completions, strict=True):
            replies[row] = self._policy.decode(completion.token_T)
        return replies


def local_distiller(
    *,
    model: str,
    dtype: str = "bfloat16",
    max_context: int = 4096,
    max_new_tokens: int = 512,
    batch: int = 8,
    evidence_chars: int = 3000,
    record: str | None = None,
) -> ModelDistiller:
    """Make the distiller "local".

    Args:
        model: a registered policy, a model folder, or a hub id; it needs a chat template.
        dtype: number format of the weights; "auto" measures when it is loaded, and so again when a run is resumed.
        max_context: most tokens of request and reply together.
        max_new_tokens: longest reply.
        batch: requests answered side by side.
        evidence_chars: most characters of passages in one request.
        record: JSON-lines file to keep replies in, and to read them from.

    Raises:
        UnknownName, ModelNotFound: there is no such model.
        SettingsError: a number is out of range.
    """
    settings = ModelSettings(
        dtype=dtype, max_context=max_context, max_new_tokens=max_new_tokens, rollout_batch=batch, lora_rank=1
    )
    source = source_of(model)

    def load() -> Policy:
        # A fresh adapter changes nothing: what writes is the base.
        return LanguageModel.load(source, adapters=(_ADAPTER,), settings=settings, seed=0).policy(_ADAPTER, seed=0)

    teacher = PolicyTeacher(load, name=model, max_new_tokens=max_new_tokens)
    return with_record(teacher, evidence_chars=evidence_chars, record=record)
