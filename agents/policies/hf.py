"""Any causal language model of `transformers` as a policy, with one LoRA adapter for each role on one shared base.

    model = LanguageModel.load("path/or/hub-id", adapters=("solver", "challenger"), settings=ModelSettings(), seed=0)
    solver = model.policy("solver", seed=1)
    with model.using("solver"): ...        # forward passes through that adapter
    with model.reference(): ...            # forward passes through the base alone

A turn boundary is taken from the model's own chat template once, by rendering two marked turns; a template that would
rewrite what the model has already written is refused, since the learner would then train on a text nobody sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from agents.base import Completion, Message
from agents.config import ModelSettings
from agents.generate import generate
from sesa_env.errors import InvalidInput, ModelNotFound

_FIRST, _SECOND = "ASSISTANT-TURN-MARK", "USER-TURN-MARK"
_STOP_WINDOW = 16
"""Tokens looked back for a stop string: more than the longest closing tag has in any tokenizer."""


class LanguageModel:
    """A base model and its named LoRA adapters; only the adapters are ever trained.

    Args:
        model: a `peft` model holding every adapter.
        tokenizer: the model's tokenizer, with a chat template.
        settings: batch sizes and lengths.
    """

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, settings: ModelSettings) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        self.before_reply, self.after_reply = _turn_boundary(tokenizer)
        self.end_ids = frozenset(_end_ids(model, tokenizer))

    @classmethod
    def load(cls, source: str | Path, *, adapters: Sequence[str], settings: ModelSettings, seed: int) -> LanguageModel:
        """Load a folder or a hub id and add fresh adapters, whose random start depends on `seed` alone.

        Raises:
            ModelNotFound: nothing loadable at that path or under that id.
        """
        from peft import LoraConfig, get_peft_model

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(source))
            base = AutoModelForCausalLM.from_pretrained(str(source), dtype=getattr(torch, settings.dtype))
        except (OSError, ValueError, SafetensorError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelNotFound(f"no model could be loaded from {str(source)!r}: {reason}") from error
        lora = LoraConfig(
            r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: Any = get_peft_model(base, lora, adapter_name=adapters[0])
            for name in adapters[1:]:
                model.add_adapter(name, lora)
        return cls(model.eval(), tokenizer, settings)

    def policy(self, adapter: str, *, seed: int) -> HFPolicy:
        """Return the policy that writes through the named adapter, with its own random stream."""
        return HFPolicy(self, adapter, seed=seed)

    def parameters(self, adapter: str) -> list[nn.Parameter]:
        """Return the trainable tensors of the named adapter."""
        return [tensor for name, tensor in self.model.named_parameters() if f".{adapter}." in name]

    @contextmanager
    def using(self, adapter: str) -> Iterator[None]:
        """Send forward passes through the named adapter."""
        self.model.set_adapter(adapter)
        yield

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Send forward passes through the base alone: the frozen reference policy."""
        with self.model.disable_adapter():
            yield

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain data; special tokens in it stay ordinary text."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return ids

    def adapter_state(self, adapter: str) -> dict[str, Tensor]:
        """Return the adapter's weights by name, for a checkpoint."""
        from peft import get_peft_model_state_dict

        state: dict[str, Tensor] = get_peft_model_state_dict(self.model, adapter_name=adapter)
        return state

    def load_adapter_state(self, adapter: str, state: dict[str, Tensor]) -> None:
        """Put back what `adapter_state` returned.

        Raises:
            InvalidInput: the weights are of an adapter of another shape.
        """
        from peft import set_peft_model_state_dict

        expected = {name: tensor.shape for name, tensor in self.adapter_state(adapter).items()}
        if {name: tensor.shape for name, tensor in state.items()} != expected:
            raise InvalidInput(f"weights of adapter {adapter!r} do not fit this model and LoRA rank")
        set_peft_model_state_dict(self.model, state, adapter_name=adapter)


class HFPolicy:
    """One adapter of a `LanguageModel` behind the `Policy` protocol, with its own random stream."""

    def __init__(self, language_model: LanguageModel, adapter: str, *, seed: int) -> None:
        self.language_model = language_model
        self.adapter = adapter
        self.generator = torch.Generator().manual_seed(seed)
        self.max_context = language_model.settings.max_context

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, ready for the assistant to continue; contents are plain data."""
        lm = self.language_model
        marks = [f"CONTENT-MARK-{number}-" for number in range(len(messages))]
        rendered = _render(
            lm.tokenizer,
            [{"role": message.role, "content": mark} for message, mark in zip(messages, marks, strict=True)],
        )
        ids: list[int] = []
        for message, mark in zip(messages, marks, strict=True):
            frame, _, rendered = rendered.partition(mark)
            ids += _control(lm.tokenizer, frame) + lm.encode(message.content)
        return ids + _control(lm.tokenizer, rendered)

    def encode_reply(self, text: str, *, ended: bool) -> list[int]:
        """Return the ids that close the assistant's turn, hold a user turn with `text`, and reopen the assistant's."""
        lm = self.language_model
        before = lm.before_reply
        if ended and before and before[0] in lm.end_ids:
            before = before[1:]
        return [*before, *lm.encode(text), *lm.after_reply]

    def decode(self, token_T: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out."""
        return str(self.language_model.tokenizer.decode(list(token_T), skip_special_tokens=True))

    def generate(
        self, prompts: Sequence[Sequence[int]], *, stop: Sequence[str], max_new_tokens: int, temperature: float
    ) -> list[Completion]:
        """Continue every prompt; prompts of like length share a batch, and the order of results is that of the prompts.

        Raises:
            InvalidInput: a prompt leaves no room for `max_new_tokens` within `max_context`.
        """
        longest = max((len(prompt) for prompt in prompts), default=0)
        if longest + max_new_tokens > self.max_context:
            raise InvalidInput(
                f"a prompt of {longest} tokens plus {max_new_tokens} new ones exceeds max_context={self.max_context}"
            )
        lm = self.language_model
        order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        done: dict[int, Completion] = {}
        with lm.using(self.adapter):
            for start in range(0, len(order), lm.settings.rollout_batch):
                rows = order[start : start + lm.settings.rollout_batch]
                completions = generate(
                    lm.model,
                    [prompts[row] for row in rows],
                    stopped=lambda ids: any(tag in self.decode(ids[-_STOP_WINDOW:]) for tag in stop),
                    end_ids=lm.end_ids,
                    pad_id=lm.tokenizer.pad_token_id or 0,
                    max_new_tokens=max_new_tokens,
                    temperature=temperature,
                    generator=self.generator,
                )
                done.update(zip(rows, completions, strict=True))
        return [done[row] for row in range(len(prompts))]


def _render(tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, str]]) -> str:
    """Return a chat as the model's template writes it, the assistant's turn opened at the end.

    Raises:
        InvalidInput: the template refuses the chat; some refuse system messages.
    """
    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    except TemplateError as error:
        roles = ", ".join(turn["role"] for turn in chat)
        raise InvalidInput(
            f"the chat template of {tokenizer.name_or_path!r} refuses the turns {roles}: {error}"
        ) from error


def _control(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the ids of template text, its control tokens included."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _turn_boundary(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return what the chat template puts between an assistant turn and a user text, and between that and the next turn.

    Raises:
        InvalidInput: there is no chat template, or it rewrites earlier assistant turns.
    """
    if not tokenizer.chat_template:
        raise InvalidInput(f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an instruct model")
    opening = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    dialogue = [*opening, {"role": "assistant", "content": _FIRST}, {"role": "user", "content": _SECOND}]
    prompt, whole = _render(tokenizer, opening), _render(tokenizer, dialogue)
    if not whole.startswith(prompt + _FIRST):
        raise InvalidInput(
            f"the chat template of {tokenizer.name_or_path!r} rewrites earlier turns, so what was sampled could not be "
            "what is trained; use a model whose template only appends"
        )
    before, _, after = whole[len(prompt + _FIRST) :].partition(_SECOND)
    return _control(tokenizer, before), _control(tokenizer, after)


def _end_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return every token that ends a turn, by the tokenizer and by the model's generation settings."""
    declared = getattr(model.generation_config, "eos_token_id", None)
    several = declared if isinstance(declared, list) else [declared]
    return [token for token in {*several, tokenizer.eos_token_id} if token is not None]
