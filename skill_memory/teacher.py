"""A distiller that asks a language model, whichever it is: at an endpoint, on this machine, or recorded.

    distiller = ModelDistiller(ChatTeacher(ChatModel("qwen2.5-32b-instruct", base_url="http://localhost:8000/v1")))
    distiller.distill(failures)      # per failure: its cards, or None when there was no reply

An outage is not a lesson: a failure without a reply goes on waiting.  A reply that is no card is asked for once more
with the reason; if the second is none either, the failure has been distilled in vain, which the bank counts.

With a `record` file every reply is kept as it comes.  The file serves as a cache (a run that was killed asks nothing
twice, and gets the same cards) and as a recording that plays without a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from sesa_env.chat import ChatModel
from sesa_env.errors import CorpusError, InvalidInput
from skill_memory.base import Failure
from skill_memory.card import PROMPT, Malformed, describe_attempt, read_card
from skill_memory.diagnose import diagnose
from skill_memory.distill import Drafts

ASKS = 2  # one repetition for a reply that is no card


class Teacher(Protocol):
    """A language model that is asked many things at once."""

    @property
    def name(self) -> str:
        """The model's name: replies of another model are not its own."""
        ...

    def ask_all(self, system: str, users: Sequence[str]) -> list[str | None]:
        """Return a reply for each user text, in order; None where none could be had."""
        ...


class ModelDistiller:
    """Writes one card per failure, by a language model.

    Args:
        teacher: who is asked; it need not be, and better is not, the model that is trained.
        prompt: what the model is told; it must demand the JSON object that `read_card` reads.
        evidence_chars: most characters of passages in one request.

    Raises:
        InvalidInput: `evidence_chars` is below 1.
    """

    def __init__(self, teacher: Teacher, *, prompt: str = PROMPT, evidence_chars: int = 6000) -> None:
        if evidence_chars < 1:
            raise InvalidInput(f"evidence_chars must be at least 1, got {evidence_chars!r}")
        self._teacher = teacher
        self._prompt = prompt
        self._evidence_chars = evidence_chars

    def distill(self, failures: Sequence[Failure]) -> list[Drafts]:
        """Return for each failure its card, the reason why a reply is none, or None when there was no reply.

        Raises:
            BackendUnavailable: the endpoint refuses key or model.
        """
        drafts: list[Drafts] = [None] * len(failures)
        open_rows = list(range(len(failures)))
        for _ in range(ASKS):
            users = [self._request(failures[row], drafts[row]) for row in open_rows]
            replies = self._teacher.ask_all(self._prompt, users) if users else []
            for row, reply in zip(open_rows, replies, strict=True):
                drafts[row] = None if reply is None else [read_card(reply, category=diagnose(failures[row]).fault)]
            open_rows = [row for row in open_rows if _malformed(drafts[row])]
        return drafts

    def _request(self, failure: Failure, draft: Drafts) -> str:
        text = describe_attempt(failure, max_chars=self._evidence_chars)
        fault = _malformed(draft)
        return f"{text}\n\nAn earlier reply could not be used: {fault.detail}." if fault else text


def _malformed(draft: Drafts) -> Malformed | None:
    return next((part for part in draft or [] if isinstance(part, Malformed)), None)


class ChatTeacher:
    """A chat model at an endpoint, asked by several threads.

    Args:
        model: the client; it retries and times out by itself.
        threads: most requests at a time.
    """

    def __init__(self, model: ChatModel, *, threads: int = 8) -> None:
        if threads < 1:
            raise InvalidInput(f"threads must be at least 1, got {threads!r}")
        self.name = model.model
        self._model = model
        self._threads = threads

    def ask_all(self, system: str, users: Sequence[str]) -> list[str | None]:
        """Return a reply for each user text; None after the client's retries.

        Raises:
            BackendUnavailable: the endpoint refuses key or model.
        """
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda user: self._model.ask(system, user), users))


class RecordingTeacher:
    """Keeps every reply of a teacher in a JSON-lines file, and asks nothing twice; without a teacher it plays back.

    Args:
        path: the file; read once, then appended to.  A last line without an end was cut off by a kill and is ignored.
        teacher: who is asked what the file does not know; None to play back.

    Raises:
        CorpusError: the file is malformed; or, with nobody to ask, missing.
    """

    def __init__(self, path: str | Path, teacher: Teacher | None = None) -> None:
        self._path = Path(path)
        self._teacher = teacher
        self.name = teacher.name if teacher else f"recorded:{self._path.name}"
        self._known = _read_replies(self._path, model=teacher.name if teacher else None)

    def ask_all(self, system: str, users: Sequence[str]) -> list[str | None]:
        """Return a reply for each user text, the recorded one where there is one.

        Raises:
            CorpusError: there is neither a record nor a teacher; playing back never guesses.
        """
        new = [user for user in dict.fromkeys(users) if _key(system, user) not in self._known]
        if new and self._teacher is None:
            raise CorpusError(f"{self._path} has no reply to {len(new)} of {len(users)} requests, such as {new[0]!r}")
        replies = self._teacher.ask_all(system, new) if new and self._teacher else []
        for user, reply in zip(new, replies, strict=True):
            if reply is not None:
                self._keep(system, user, reply)
        return [self._known.get(_key(system, user)) for user in users]

    def _keep(self, system: str, user: str, reply: str) -> None:
        self._known[_key(system, user)] = reply
        record = {"model": self.name, "key": _key(system, user), "user": user, "reply": reply}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _key(system: str, user: str) -> str:
    return hashlib.sha256(f"{system}\0{user}".encode("utf-8", "replace")).hexdigest()[:16]


def _read_replies(path: Path, *, model: str | None) -> dict[str, str]:
    """Return the replies of a file by their keys; those of one model, or of all."""
    if not path.is_file():
        if model is None:
            raise CorpusError(f"no recorded replies at {str(path)!r}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return {}
    whole, end, torn = path.read_bytes().rpartition(b"\n")
    if torn and model is not None:  # what is appended next must begin a line of its own
        path.write_bytes(whole + end)
    replies = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            record = json.loads(line)
            if model in (None, record["model"]):
                replies[str(record["key"])] = str(record["reply"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(f"{path}, line {number}: not a recorded reply ({error!r})") from error
    return replies


def chat_distiller(
    *,
    model: str,
    base_url: str,
    timeout: float = 120.0,
    retries: int = 3,
    threads: int = 8,
    temperature: float = 0.0,
    max_tokens: int = 4500,
    evidence_chars: int = 6000,
    record: str | None = None,
) -> ModelDistiller:
    """Make the distiller "chat".  The key is `OPENAI_API_KEY`: settings are saved with a run, and keys must not be.

    Args:
        model: its name at the endpoint.
        base_url: of the endpoint, up to and with "/v1".
        timeout: seconds that one request may take.
        retries: how often the client repeats a request that failed.
        threads: most requests at a time.
        temperature: of the sampling.
        max_tokens: longest reply; SESA's is 4,500.
        evidence_chars: most characters of passages in one request.
        record: JSON-lines file to keep replies in, and to read them from.
    """
    client = ChatModel(
        model, base_url=base_url, timeout=timeout, retries=retries, temperature=temperature, max_tokens=max_tokens
    )
    return with_record(ChatTeacher(client, threads=threads), evidence_chars=evidence_chars, record=record)


def recorded_distiller(*, path: str, evidence_chars: int = 6000) -> ModelDistiller:
    """Make the distiller "recorded": it plays back a `record` file without any model."""
    return ModelDistiller(RecordingTeacher(path), evidence_chars=evidence_chars)


def with_record(teacher: Teacher, *, evidence_chars: int, record: str | None) -> ModelDistiller:
    """Return a distiller that asks the teacher, through a record file if one is named."""
    return ModelDistiller(RecordingTeacher(record, teacher) if record else teacher, evidence_chars=evidence_chars)
