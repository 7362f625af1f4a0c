"""Any causal language model of `transformers` as a policy, with weights of its own for each role.

    model = LanguageModel.load("path/or/hub-id", adapters=("solver", "challenger"), settings=ModelSettings(), seed=0)
    solver = model.policy("solver", seed=1)
    with model.weights.using("solver") as module: ...        # forward passes through the solver's weights

With `settings.train="lora"` they are adapters on one shared base, with "full" they are whole models (`agents.weights`).

A turn boundary is taken from the model's own chat template once, by rendering two marked turns; a template that would
rewrite what the model has already written is refused, since the learner would then train on a text nobody sampled.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from agents.base import Completion, Message
from agents.config import ModelSettings
from agents.device import attention_for, number_format, resolve_device
from agents.generation import Writer
from agents.policies import source_of
from agents.weights import AdapterWeights, FullWeights, Weights
from sesa_env.errors import InvalidInput, ModelNotFound

_FIRST, _SECOND = "ASSISTANT-TURN-MARK", "USER-TURN-MARK"
_STOP_WINDOW = 16
"""Tokens looked back for a stop string: more than the longest closing tag has in any tokenizer."""


class LanguageModel:
    """A tokenizer, and the named sets of weights that write with it.

    Args:
        weights: of every name.
        tokenizer: the model's tokenizer, with a chat template.
        settings: batch sizes and lengths.
        end_ids: tokens that end a turn, besides the tokenizer's own.
    """

    def __init__(
        self,
        weights: Weights,
        tokenizer: PreTrainedTokenizerBase,
        settings: ModelSettings,
        *,
        end_ids: Collection[int] = (),
    ) -> None:
        self.weights = weights
        self.tokenizer = tokenizer
        self.settings = settings
        self.before_reply, self.after_reply = _turn_boundary(tokenizer)
        own = tokenizer.eos_token_id
        self.end_ids = frozenset(end_ids if own is None else [*end_ids, own])

    @classmethod
    def load(cls, source: str | Path, *, adapters: Sequence[str], settings: ModelSettings, seed: int) -> LanguageModel:
        """Load a folder or a hub id, with weights of each name; the random start of an adapter depends on `seed` alone.

        Raises:
            ModelNotFound: nothing loadable at that path or under that id.
            SettingsError: the settings name a device that is not there.
        """
        device = resolve_device(settings.device)
        settings = replace(settings, dtype=number_format(settings, device).dtype)
        base, tokenizer = _load(source, settings, device)
        end_ids = _end_ids(base)
        weights = (
            _copies(base.to(device), adapters, settings)
            if settings.train == "full"
            else _adapters(base, adapters, settings, seed=seed, device=device)
        )
        return cls(weights, tokenizer, settings, end_ids=end_ids)

    def policy(self, adapter: str, *, seed: int) -> HFPolicy:
        """Return the policy that writes through the named weights, with its own random stream."""
        return HFPolicy(self, adapter, seed=seed)

    def save(self, folder: Path, name: str) -> None:
        """Write the weights of that name and the tokenizer as a model folder that can be loaded as a policy."""
        self.weights.merged(name).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def start_from(self, policy: str, *, name: str) -> None:
        """Let the weights of that name start as those of another policy, of equal architecture and tokenizer.

        Raises:
            ModelNotFound: there is no such policy, or it cannot be loaded.
            InvalidInput: the weights are adapters, or do not fit; or the policy has another tokenizer or chat template.
        """
        if self.settings.train != "full":
            raise InvalidInput(f"start must be a checkpoint's folder unless model.train=full, got {policy!r}")
        base, tokenizer = _load(source_of(policy), self.settings, torch.device("cpu"))
        if _spelling(tokenizer) != _spelling(self.tokenizer):
            raise InvalidInput(f"start must have the policy's tokenizer and chat template, got {policy!r}")
        self.weights.load(name, dict(base.named_parameters()))

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain data; special tokens in it stay ordinary text."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return ids


class HFPolicy:
    """One set of weights of a `LanguageModel` behind the `Policy` protocol, with its own random stream."""

    def __init__(self, language_model: LanguageModel, adapter: str, *, seed: int) -> None:
        self.language_model = language_model
        self.adapter = adapter
        device = language_model.weights.model(adapter).device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.max_context = language_model.settings.max_context
        self._writer = Writer(
            language_model.weights.model(adapter),
            end_ids=language_model.end_ids,
            side_by_side=language_model.settings.rollout_batch,
            max_context=self.max_context,
        )
        self._texts: dict[int, str] = {}

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
        self,
        prompts: Sequence[Sequence[int]],
        *,
        stop: Sequence[str],
        max_new_tokens: int,
        temperature: float,
        keep: Sequence[str] | None = None,
    ) -> list[Completion]:
        """Continue every prompt, reading only what is new of those that were kept; results are in the prompts' order.

        Raises:
            InvalidInput: a prompt leaves no room for `max_new_tokens` within `max_context`.
        """
        longest = max((len(prompt) for prompt in prompts), default=0)
        if longest + max_new_tokens > self.max_context:
            raise InvalidInput(
                f"a prompt of {longest} tokens plus {max_new_tokens} new ones exceeds max_context={self.max_context}"
            )
        with self.language_model.weights.using(self.adapter):
            return self._writer.write(
                prompts,
                stopped=self._stopped_by(stop),
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                generator=self.generator,
                names=keep,
            )

    def forget(self, names: Iterable[str]) -> None:
        """Free what is kept of attempts that will not go on."""
        self._writer.forget(names)

    def _stopped_by(self, stop: Sequence[str]) -> Callable[[Sequence[int]], bool]:
        """Return the check for a stop string at the end, which decodes only after a token that can complete one."""
        last = {tag[-1] for tag in stop} | {"\ufffd"}  # the last one: a token that is part of a character

        def stopped(ids: Sequence[int]) -> bool:
            token = ids[-1]
            if token not in self._texts:
                self._texts[token] = self.decode([token])
            return not last.isdisjoint(self._texts[token]) and any(
                tag in self.decode(ids[-_STOP_WINDOW:]) for tag in stop
            )

        return stopped


def _load(source: str | Path, settings: ModelSettings, device: torch.device) -> tuple[Any, PreTrainedTokenizerBase]:
    """Return a model, on the processor still, and its tokenizer."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(source))
        model = AutoModelForCausalLM.from_pretrained(
            str(source),
            # Steps of training vanish in half precision: whole models stay in float32 and only compute in less.
            dtype=torch.float32 if settings.train == "full" else getattr(torch, settings.dtype),
            attn_implementation=attention_for(settings, device),
        )
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelNotFound(f"no model could be loaded from {str(source)!r}: {reason}") from error
    return model, tokenizer


def _spelling(tokenizer: PreTrainedTokenizerBase) -> tuple[Any, ...]:
    """Return what decides the ids of a chat; of a tokenizer in pure Python, its vocabulary must do."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else {"model": tokenizer.get_vocab()}
    rules |= {"padding": None, "truncation": None}  # how it was last called
    return rules, tokenizer.chat_template, tokenizer.eos_token_id


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


def _end_ids(model: Any) -> list[int]:
    """Return every token that ends a turn by the model's generation settings."""
    declared = getattr(model.generation_config, "eos_token_id", None)
    several = declared if isinstance(declared, list) else [declared]
    return [token for token in several if token is not None]


def _adapters(
    base: Any, names: Sequence[str], settings: ModelSettings, *, seed: int, device: torch.device
) -> AdapterWeights:
    """Add the adapters before the model goes to its device, so that their start does not depend on which one it is."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = get_peft_model(base, lora, adapter_name=names[0])
        for name in names[1:]:
            model.add_adapter(name, lora)
    return AdapterWeights(model.to(device).eval())


def _copies(base: Any, names: Sequence[str], settings: ModelSettings) -> FullWeights:
    models = {name: (base if name == names[0] else copy.deepcopy(base)).eval() for name in names}
    return FullWeights(models, autocast=torch.bfloat16 if settings.dtype == "bfloat16" else None)
