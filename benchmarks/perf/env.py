"""What a step of the environment costs when the search tool searches nothing, beside other text environments.

    python -m benchmarks.perf.env                         # SESA-Solve-v0, without and with Gymnasium's wrappers
    python -m benchmarks.perf.env --peers                 # and gem-llm and skyrl-gym, in virtual environments of theirs
    python -m benchmarks.perf.env --peers --venvs DIR     # which are kept in DIR, and used again

An episode is three searches and an answer.  Every contender has a process of its own, gets the same texts and the same
three documents of about 500 characters each for a search, as data, and makes of them what its policy would read.  They
take turns, so that a busy machine slows all; times are the processor's, of one thread.

They do not do the same in a step.  Only ours observes the whole transcript, disarms tags and control tokens in the
documents and cuts each at 400 characters, checks the action, keeps records that cannot be changed, and counts turns
without an action.  The others return the documents as they are, and of a turn only what it brought: skyrl-gym as JSON,
and it keeps the texts of the chat; gem-llm keeps nothing but how often the tool was used.  A start draws a question
with ours and with gem-llm, which reads it from a data set; with skyrl-gym it makes an environment.

"new": no document comes twice.  "seen": always the same three, as when the attempts at one question find the same.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, cast

from sesa_env.corpora import load_passages
from sesa_env.errors import BackendUnavailable, MissingDependency

try:
    import typer
except ImportError as error:
    raise MissingDependency("this benchmark needs the extra `cli`: pip install 'sesa-env[cli]'") from error

SCRIPT = Path(__file__).with_name("contenders.py")
OURS = ("raw", "made")
PEERS = {
    "gem-llm": ("gem-llm==0.1.0", "datasets", "requests"),  # it imports the last two and does not ask for them
    "skyrl-gym": ("skyrl-gym==0.4.0",),
}
KINDS = ("new", "seen")
DOCUMENTS, NEW_RESULTS = 3, 2000
"""Documents of a search, and results before one comes again: more documents than any cache of rendered ones keeps."""

QUESTION = {
    "id": "q",
    "question": "In which city is there a statue of the founder of Nalvusan Cellars?",
    "answers": ["Rinupen", "the city of Rinupen"],
}
TURNS = (
    "<think>NUMBER The question names a company, so its founder comes first, and then a statue of them.</think>\n"
    "<search>Nalvusan Cellars founder</search>",
    "<think>NUMBER The founder is known now; what is missing is a statue and where it stands.</think>\n"
    "<search>statue of Lilbur Bonolon</search>",
    "<think>NUMBER One of the documents speaks of a square, and the city of that square is what I need.</think>\n"
    "<search>Tintan Square city</search>",
    "<think>NUMBER The square is in Rinupen, so the statue is there too.</think>\n<answer>Rinupen</answer>",
)


class Cost(NamedTuple):
    """Microseconds of one repeat."""

    contender: str
    documents: str
    repeat: int
    step_us: float
    start_us: float


def make_work(folder: Path) -> Path:
    """Write what all contenders play, and return the file."""
    passages = list(load_passages("atlas")[0])
    texts = [f"{passage.title}\n{passage.text} " for passage in passages]

    def document(place: int) -> str:
        rest = place * 7 + place // len(texts) + 1  # another second half each time the first ones come again
        return texts[place % len(texts)] + passages[rest % len(passages)].text

    new = [[document(DOCUMENTS * number + rank) for rank in range(DOCUMENTS)] for number in range(NEW_RESULTS)]
    questions = folder / "questions.jsonl"
    questions.write_text(json.dumps(QUESTION) + "\n", encoding="utf-8")
    work = folder / "work.json"
    played = {"questions": str(questions), "question": QUESTION["question"], "answers": QUESTION["answers"]}
    work.write_text(
        json.dumps({**played, "turns": TURNS, "documents": {"new": new, "seen": new[:1]}}), encoding="utf-8"
    )
    return work


class Process:
    """A contender in its own process, which plays episodes when asked.

    Raises:
        BackendUnavailable: it does not run.
    """

    def __init__(self, name: str, python: str, work: Path) -> None:
        self._name = name
        self._errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (`close` closes it)
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"PYTHONPATH": root} if name in OURS else {})}
        self._process = subprocess.Popen(
            [python, str(SCRIPT), name, str(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=work.parent,
        )
        try:
            self.play("seen", episodes=20)
        except BackendUnavailable:
            self.close()
            raise

    def play(self, documents: str, *, episodes: int) -> dict[str, float]:
        """Return the seconds of so many episodes."""
        asked, answers = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        with suppress(BrokenPipeError):  # what it printed says why, below
            asked.write(f"{documents} {episodes}\n")
            asked.flush()
        line = answers.readline()
        if not line:
            self._errors.seek(0)
            told = self._errors.read().strip().splitlines() or ["it said nothing"]
            raise BackendUnavailable(f"{self._name} does not run: {told[-1]}")
        played: dict[str, float] = json.loads(line)
        return played

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()


def measure(processes: Mapping[str, Process], *, episodes: int, repeats: int) -> list[Cost]:
    """Let the contenders take turns, each repeat beginning with another one, and return what each of them took."""
    names = list(processes)
    costs = []
    for repeat in range(repeats):
        for documents in KINDS:
            for place in range(len(names)):
                name = names[(place + repeat) % len(names)]
                seconds = processes[name].play(documents, episodes=episodes)
                step_us = 1e6 * seconds["steps"] / episodes / len(TURNS)
                costs.append(Cost(name, documents, repeat, step_us, 1e6 * seconds["starts"] / episodes))
    return costs


def report(costs: Sequence[Cost]) -> str:
    """Return a table: medians with the range of the repeats, and how often `made` goes into each, repeat by repeat."""
    lines = [f"{'documents':<10} {'contender':<10} {'us a step':>22} {'us a start':>22} {'times `made`':>20}"]
    for documents in KINDS:
        here = [cost for cost in costs if cost.documents == documents]
        reference = {cost.repeat: cost.step_us for cost in here if cost.contender == "made"}
        for name in dict.fromkeys(cost.contender for cost in here):
            own = sorted((cost for cost in here if cost.contender == name), key=lambda cost: cost.repeat)
            steps = spread([cost.step_us for cost in own], digits=1)
            starts = spread([cost.start_us for cost in own], digits=1)
            times = spread([cost.step_us / reference[cost.repeat] for cost in own], digits=2)
            lines.append(f"{documents:<10} {name:<10} {steps:>22} {starts:>22} {times:>20}")
    return "\n".join(lines)


def spread(values: Sequence[float], *, digits: int) -> str:
    """Return the median, and the least and the greatest."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def install(name: str, folder: Path) -> str:
    """Return the interpreter of a virtual environment that has the peer, made if need be.

    Raises:
        BackendUnavailable: it cannot be installed.
    """
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", *PEERS[name]], capture_output=True, text=True)
    if done.returncode:
        told = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise BackendUnavailable(f"{name} cannot be installed: {told[-1]}")
    return str(python)


def _open(work: Path, peers: Path | None) -> dict[str, Process]:
    """Start all contenders; a peer that cannot be had is told and left out."""
    processes = {name: Process(name, sys.executable, work) for name in OURS}
    for name in PEERS if peers else ():
        try:
            processes[name] = Process(name, install(name, peers or work.parent), work)
        except BackendUnavailable as error:
            typer.echo(str(error))
    return processes


def main(
    peers: Annotated[bool, typer.Option(help="Measure gem-llm and skyrl-gym, too.")] = False,
    venvs: Annotated[Path | None, typer.Option(help="Folder for the peers' virtual environments.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of a repeat.")] = 2000,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each contender.")] = 5,
    out: Annotated[Path | None, typer.Option(help="File for the rows.")] = None,
) -> None:
    """Measure the steps and print the table."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        processes = _open(make_work(folder), (venvs or folder) if peers else None)
        try:
            costs = measure(processes, episodes=episodes, repeats=repeats)
        finally:
            for process in processes.values():
                process.close()
    typer.echo(report(costs))
    if out is not None:
        rows: list[dict[str, Any]] = [cost._asdict() for cost in costs]
        out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
