"""One question to a chat model behind any OpenAI-compatible endpoint, and its reply.

The one idea: an outage is not a reply.  A model that cannot be reached, that stays overloaded or that sends something
else than a chat completion gives None, and whoever asked must not take that for a verdict.

    model = ChatModel("qwen2.5-32b-instruct", base_url="http://localhost:8000/v1")
    model.ask("You are brief.", "Name a river.")     # "The Nile", or None

Retries with growing pauses are the client library's.  Nothing here keeps a conversation, or learns.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from sesa_env.errors import BackendUnavailable, InvalidInput, MissingDependency

log = logging.getLogger(__name__)

NO_KEY = "none"
"""Sent when no key is set: local servers ask for none, and the client insists on one."""
_REFUSED = (401, 403, 404)


class ChatModel:
    """A frozen chat model, asked one thing at a time.

    Args:
        model: its name at the endpoint.
        base_url: of the endpoint, up to and with "/v1".
        api_key: the endpoint's key; `OPENAI_API_KEY` when None.
        timeout: seconds that one request may take, above 0.
        retries: how often a request is repeated after a time-out, a lost connection, 408, 409, 429 or 5xx.
        temperature: of the sampling; at 0 the model is as deterministic as it can be.
        max_tokens: longest reply.

    Raises:
        MissingDependency: the client library is not installed.
        InvalidInput: time-out, retries or tokens are out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        temperature: float = 0.0,
        max_tokens: int = 256,
    ) -> None:
        _check_limits(timeout=timeout, retries=retries, max_tokens=max_tokens)
        try:
            import openai
        except ImportError as error:
            raise MissingDependency("a chat model needs the extra `judge`: pip install 'sesa-env[judge]'") from error
        self.model = model
        self.temperature = temperature
        self.max_tokens = max_tokens
        key = api_key or os.environ.get("OPENAI_API_KEY") or NO_KEY
        self._errors = openai
        self._client = openai.OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=retries)

    def ask(self, system: str, user: str) -> str | None:
        """Return the reply without surrounding space, or None when there was none.

        Raises:
            BackendUnavailable: the endpoint does not know the key or the model; asking again would not help.
        """
        try:
            return _content(self._complete(system, user))
        except self._errors.APIStatusError as error:
            if error.status_code in _REFUSED:
                raise BackendUnavailable(f"the endpoint refuses model {self.model!r}: {error}") from error
            self._report(error)
        except (self._errors.OpenAIError, ValueError) as error:  # the client lets broken JSON through as ValueError
            self._report(error)
        return None

    def _complete(self, system: str, user: str) -> Any:
        return self._client.chat.completions.create(
            model=self.model,
            messages=[{"role": "system", "content": sound(system)}, {"role": "user", "content": sound(user)}],
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )

    def _report(self, error: Exception) -> None:
        log.warning("no reply from %s: %s: %s", self.model, type(error).__name__, error)


def sound(text: str) -> str:
    """Return text that any encoder takes: half of a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _content(reply: Any) -> str | None:
    """Return the text of a completion; the client builds its records without checking what the server sent."""
    choices = getattr(reply, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    content = getattr(message, "content", None)
    return content.strip() or None if isinstance(content, str) else None


def _check_limits(*, timeout: float, retries: int, max_tokens: int) -> None:
    if not timeout > 0.0:
        raise InvalidInput(f"timeout must be above 0 seconds, got {timeout!r}")
    if retries < 0:
        raise InvalidInput(f"retries must be at least 0, got {retries!r}")
    if max_tokens < 1:
        raise InvalidInput(f"max_tokens must be at least 1, got {max_tokens!r}")
