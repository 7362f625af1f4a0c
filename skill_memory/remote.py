"""One memory for several processes: one of them owns and changes it, the others read copies and send what they saw.

    with serve(memory, settings, port=8700) as service:      # the owner, which goes on to call `consolidate`
        ...
    worker = RemoteMemory(MemorySettings(kind="remote", source="http://127.0.0.1:8700"), Path("worker/bank.sqlite"))

A worker reads a copy of the whole file, opened as the kind of memory that it is, so it finds what the owner would.  It
takes a newer copy when it is told to consolidate, at the end of its step, and at no other time: within a step its
prompts do not change.  Uses and failures are sent at once, and counted by the owner.

Plain HTTP and JSON, from the standard library.  There are no passwords: serve on the loopback address, or in a network
where everybody may write to the memory.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sesa_env.errors import InvalidInput, SesaError, SettingsError, StoreCorrupt, StoreError
from sesa_env.registry import MEMORIES
from skill_memory.base import Consolidation, Failure, SkillMemory, Use
from skill_memory.records import failure_from_json, failure_to_json
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill
from skill_memory.store import restore

log = logging.getLogger(__name__)

LARGEST = 16 * 2**20
"""Most bytes of a request."""
PATIENCE = 30.0
"""Seconds a worker waits for the owner."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy has no business between the two


class Service:
    """A memory behind HTTP; made by `serve`, and closed with it, while the memory stays open."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="skill memory", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """What workers give as `memory.source`."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop answering; closing twice is harmless."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def serve(memory: SkillMemory, settings: MemorySettings, *, host: str = "127.0.0.1", port: int = 0) -> Service:
    """Answer workers from a thread of this process, until the service is closed.

    Args:
        memory: what is served; this process goes on using it.
        settings: those it was made with.
        host: the address to listen at; workers elsewhere need one they can reach.
        port: 0 for any free one.
    """

    class Handler(_Handler):
        owner = _Owner(memory, settings)

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    return Service(server)


class _Owner:
    """What the service does with a memory: three questions and their answers, without HTTP."""

    def __init__(self, memory: SkillMemory, settings: MemorySettings) -> None:
        self._memory = memory
        self._settings = settings

    def about(self) -> bytes:
        """Name the kind of memory, how it is read, and its snapshot."""
        reading = replace(self._settings, distil="none", distil_options={}, attribution=False, executed=False)
        return json.dumps({"snapshot_id": self._memory.snapshot_id, "settings": asdict(reading)}).encode()

    def copy(self) -> bytes:
        """Return a complete copy of the memory's file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "copy"
            self._memory.save(path)
            return path.read_bytes()

    def credit(self, body: bytes) -> bytes:
        """Count uses."""
        uses = [Use(**{**record, "skill_ids": tuple(record["skill_ids"])}) for record in json.loads(body)]
        self._memory.credit(uses)
        return b"null"

    def offer(self, body: bytes) -> bytes:
        """Queue a failure and say whether it was wanted."""
        return json.dumps(self._memory.offer(failure_from_json(body.decode()))).encode()


class _Handler(BaseHTTPRequestHandler):
    owner: _Owner
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        reads = {"/about": self.owner.about, "/copy": self.owner.copy}
        self._answer(reads.get(self.path))

    def do_POST(self) -> None:
        writes = {"/credit": self.owner.credit, "/offer": self.owner.offer}
        length = int(self.headers.get("Content-Length", -1))
        if not 0 <= length <= LARGEST:
            self.close_connection = True
            self._reply(413, b"a request must state its length, and be of at most 16 MiB")
            return
        body = self.rfile.read(length)
        write = writes.get(self.path)
        self._answer(write and (lambda: write(body)))

    def _answer(self, work: Callable[[], bytes] | None) -> None:
        if work is None:
            self._reply(404, b"no such page")
            return
        try:
            answer = work()
        except (InvalidInput, StoreCorrupt, ValueError, KeyError, TypeError) as error:  # the worker's mistake
            self._reply(400, str(error).encode("utf-8", "replace"))
        except SesaError as error:
            self._reply(500, str(error).encode("utf-8", "replace"))
        else:
            self._reply(200, answer)

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


class RemoteMemory:
    """A worker's view of another process's memory; see the module's docstring.

    Args:
        settings: `source` is the address of the service; all else is the owner's to say.
        path: where the worker keeps its copy; what is there is replaced.

    Raises:
        SettingsError: no address is given.
        StoreError: the service cannot be reached.
    """

    def __init__(self, settings: MemorySettings, path: Path) -> None:
        if settings.source is None or not settings.source.startswith(("http://", "https://")):
            raise SettingsError(f"source of a remote memory must be an address (http://...), got {settings.source!r}")
        self._address = settings.source.rstrip("/")
        self._path = path
        self._copy: SkillMemory | None = None
        self._refresh()

    @property
    def snapshot_id(self) -> str:
        """That of the copy."""
        return self._reader.snapshot_id

    def __len__(self) -> int:
        """Return how many skills the copy has."""
        return len(self._reader)

    def retrieve(self, questions: Sequence[str], *, exclude_source: Sequence[str] = ()) -> list[list[Skill]]:
        """Return what the owner's memory returned when the copy was made."""
        return self._reader.retrieve(questions, exclude_source=exclude_source)

    def credit(self, uses: Iterable[Use]) -> None:
        """Send the uses to the owner.

        Raises:
            InvalidInput: the owner refuses them; nothing is counted.
            StoreError: the service cannot be reached.
        """
        self._ask("/credit", json.dumps([asdict(use) for use in uses]))

    def offer(self, failure: Failure) -> bool:
        """Send the failure to the owner; False when its memory does not want it.

        Raises:
            InvalidInput: the owner refuses it.
            StoreError: the service cannot be reached.
        """
        return bool(json.loads(self._ask("/offer", failure_to_json(failure))))

    def consolidate(self, *, step: int) -> Consolidation | None:
        """Take the newest copy, and return None: the owner alone turns failures into skills.

        Raises:
            StoreError: the service cannot be reached; the copy is as it was.
        """
        self._refresh()
        return None

    def save(self, path: Path) -> None:
        """Write the copy to one file, all or nothing."""
        self._reader.save(path)

    def close(self) -> None:
        """Close the copy; closing twice is harmless."""
        self._reader.close()

    @property
    def _reader(self) -> SkillMemory:
        assert self._copy is not None
        return self._copy

    def _refresh(self) -> None:
        about = json.loads(self._ask("/about"))
        if self._copy is not None and self._copy.snapshot_id == about["snapshot_id"]:
            return
        content = self._ask("/copy")
        with tempfile.TemporaryDirectory() as folder:
            arrived = Path(folder) / "copy"
            arrived.write_bytes(content)
            if self._copy is not None:
                self._copy.close()
            restore(arrived, self._path)
        settings = MemorySettings(**about["settings"])
        self._copy = MEMORIES.make(settings.kind, settings, self._path)

    def _ask(self, page: str, body: str | None = None) -> bytes:
        request = urllib.request.Request(self._address + page, data=None if body is None else body.encode())
        try:
            with _OPENER.open(request, timeout=PATIENCE) as reply:
                content: bytes = reply.read()
                return content
        except urllib.error.HTTPError as error:
            message = error.read().decode("utf-8", "replace")
            if error.code == 400:
                raise InvalidInput(message) from error
            raise StoreError(f"skill memory at {self._address}: {message}") from error
        except OSError as error:
            raise StoreError(f"skill memory at {self._address} cannot be reached: {error}") from error
