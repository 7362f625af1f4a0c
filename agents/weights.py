"""The weights that a run trains, by name: adapters on one frozen base, or whole models.

    weights = AdapterWeights(peft_model)             # model.train="lora": a few per cent of the weights, one base
    weights = FullWeights({"solver": model, "challenger": twin}, autocast=None)         # model.train="full"
    with weights.using("solver") as model: ...       # forward passes through these weights
    weights.keep_reference("solver")                 # what KL is measured against from now on
    with weights.reference("solver") as model: ...

Both are used in the same way, so nothing else needs to know which one a run has.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sesa_env.errors import InvalidInput


class Weights(Protocol):
    """Named sets of trainable weights of one architecture."""

    def model(self, name: str) -> Any:
        """Return the module that computes with these weights inside `using`."""
        ...

    def parameters(self, name: str) -> list[nn.Parameter]:
        """Return the trainable tensors of a set."""
        ...

    def using(self, name: str) -> Any:
        """Send forward passes of `model(name)`, which the context returns, through a set."""
        ...

    def keep_reference(self, name: str) -> None:
        """Take the weights as they are now for the frozen reference policy of a set; a second call changes nothing."""
        ...

    def reference_model(self, name: str) -> Any:
        """Return the module that computes with the reference inside `reference`."""
        ...

    def reference(self, name: str) -> Any:
        """Send forward passes of `reference_model(name)` through the reference."""
        ...

    def state(self, name: str) -> dict[str, Tensor]:
        """Return a set's trainable tensors by name, for a checkpoint."""
        ...

    def merged(self, name: str) -> Any:
        """Return a model without adapters that computes what `model(name)` does inside `using`."""
        ...

    def load(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` returned.

        Raises:
            InvalidInput: the tensors are of another architecture or rank.
        """
        ...


class AdapterWeights:
    """Named LoRA adapters on one frozen base; the reference of a fresh adapter is the base alone, at no cost.

    Args:
        model: a `peft` model that holds every adapter.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._references: dict[str, str] = {}

    def model(self, name: str) -> Any:
        """Return the one model."""
        return self._model

    def parameters(self, name: str) -> list[nn.Parameter]:
        """Return the adapter's tensors."""
        return [tensor for key, tensor in self._model.named_parameters() if f".{name}." in key]

    @contextmanager
    def using(self, name: str) -> Iterator[Any]:
        """Switch the adapter on."""
        self._model.set_adapter(name)
        yield self._model

    def keep_reference(self, name: str) -> None:
        """Copy the adapter, unless it still changes nothing."""
        if name in self._references or not any(
            tensor.any() for key, tensor in self.state(name).items() if "lora_B" in key
        ):
            return
        kept = self._references[name] = f"reference{len(self._references)}"
        with torch.random.fork_rng():  # its random start is of no use
            self._model.add_adapter(kept, self._model.peft_config[name])
        self.load(kept, self.state(name))

    def reference_model(self, name: str) -> Any:
        """Return the one model."""
        return self._model

    @contextmanager
    def reference(self, name: str) -> Iterator[Any]:
        """Switch all adapters off, or the kept copy on."""
        if name in self._references:
            self._model.set_adapter(self._references[name])
            yield self._model
            return
        with self._model.disable_adapter():
            yield self._model

    def state(self, name: str) -> dict[str, Tensor]:
        """Return the adapter's tensors, named without the adapter."""
        return {
            key.replace(f".{name}.", "."): tensor.detach()
            for key, tensor in self._model.named_parameters()
            if f".{name}." in key
        }

    def merged(self, name: str) -> Any:
        """Return a copy with the adapter added into the base."""
        return copy.deepcopy(self._model).merge_and_unload(adapter_names=[name])

    def load(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Copy tensors into the adapter."""
        _copy(state, into=self.state(name), what=f"adapter {name!r} and its LoRA rank")


class FullWeights:
    """A whole model for each name, in float32.

    Args:
        models: the model of each name; their weights may be equal, and their tensors must not be the same.
        autocast: the number format to compute in, while the weights stay float32; None computes in float32.
    """

    def __init__(self, models: Mapping[str, Any], *, autocast: torch.dtype | None) -> None:
        self._models = dict(models)
        self._references: dict[str, Any] = {}
        self._autocast = autocast

    def model(self, name: str) -> Any:
        """Return the model of that name."""
        return self._models[name]

    def parameters(self, name: str) -> list[nn.Parameter]:
        """Return all tensors of the model."""
        return list(self._models[name].parameters())

    def using(self, name: str) -> Any:
        """Compute in the chosen number format; the model is a separate one."""
        return self._computing(self._models[name])

    def keep_reference(self, name: str) -> None:
        """Copy the model, unless an equal copy has been kept for another name."""
        if name in self._references:
            return
        own = self.state(name)
        for kept in self._references.values():
            theirs = dict(kept.named_parameters())
            if all(torch.equal(tensor, theirs[key]) for key, tensor in own.items()):
                self._references[name] = kept
                return
        self._references[name] = copy.deepcopy(self._models[name]).requires_grad_(False)

    def reference_model(self, name: str) -> Any:
        """Return the frozen copy.

        Raises:
            InvalidInput: none was kept.
        """
        if name not in self._references:
            raise InvalidInput(f"no reference of {name!r} was kept; kl_coef must be 0 without one")
        return self._references[name]

    def reference(self, name: str) -> Any:
        """Compute in the chosen number format."""
        return self._computing(self.reference_model(name))

    def state(self, name: str) -> dict[str, Tensor]:
        """Return all tensors of the model; tied ones once."""
        return {key: tensor.detach() for key, tensor in self._models[name].named_parameters()}

    def merged(self, name: str) -> Any:
        """Return the model itself."""
        return self._models[name]

    def load(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Copy tensors into the model."""
        _copy(state, into=self.state(name), what=f"model {name!r}")

    @contextmanager
    def _computing(self, model: Any) -> Iterator[Any]:
        with torch.autocast(model.device.type, dtype=self._autocast, enabled=self._autocast is not None):
            yield model


def _copy(state: Mapping[str, Tensor], *, into: Mapping[str, Tensor], what: str) -> None:
    if {key: tensor.shape for key, tensor in state.items()} != {key: tensor.shape for key, tensor in into.items()}:
        raise InvalidInput(f"the weights do not fit {what}")
    with torch.no_grad():
        for key, tensor in into.items():
            tensor.copy_(state[key])
