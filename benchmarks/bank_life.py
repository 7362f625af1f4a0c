"""The life of a skill bank in a world with words of its own, which it has to leave: scripted, within a minute.

    python -m benchmarks.bank_life --out runs/life
    sesa skills stats runs/life --plot life.png

Scripted players (`benchmarks.players`) pose and answer questions of a fictional world; the rule-based distiller writes
skills from what they lose.  After a while they move to another world, whose pages use other words: what was learned is
then wrong, and has to go.  Memory, gates, queue, credit and search are the real ones; no weights are trained.

    settings.yaml      what it ran with        rounds.jsonl    every round, for `sesa skills mine`
    bank.sqlite        the bank                life.jsonl      the solve rates of each step, by kind of question
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agents.base import Agent
from agents.config import Settings, resolve, save_settings
from agents.rollout import play
from agents.selfplay import failures, uses
from benchmarks.methods import method
from benchmarks.players import Cast
from benchmarks.rounds import describe_round
from benchmarks.train import BANK_FILE, ROUNDS_FILE, SETTINGS_FILE
from sesa_env.corpora.atlas import Atlas, generate
from sesa_env.errors import InvalidInput
from sesa_env.game import Game
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.types import CHALLENGER, SOLVER, Question, Target
from skill_memory import NoMemory, SkillBank

LIFE_FILE = "life.jsonl"
GAP, PLAIN = "wording-gap", "plain"
WITS, SLIPS = 0.5, 0.08
STAYS = (40, 120)
GAP_SHARE = 0.8
"""Of the questions of a step, those behind a wording gap."""

SETTINGS = (
    *("rounds=16", "game.attempts=5", "game.validators=[format]", "game.solver_turns=9"),
    *("memory.cap=75", "memory.distil_every=5", "memory.min_waiting=10"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A world as the players find it: its questions by kind, and who plays there."""

    atlas: Atlas
    retriever: Bm25Retriever
    questions: dict[str, list[Question]]
    cast: Cast

    @classmethod
    def of(cls, world: int, *, entities: int) -> Place:
        """Make a world with jargon, and take its questions of one and two hops that differ in their answers."""
        atlas = generate(world, entities=entities, jargon=True)
        first: dict[str, Question] = {}
        for question in sorted(atlas.all_questions, key=lambda one: one.family != GAP):
            if (question.hops or 9) <= 2 and question.family != "comparison":
                first.setdefault(question.answers[0], question)
        kinds: dict[str, list[Question]] = {GAP: [], PLAIN: []}
        for question in first.values():
            kinds[GAP if question.family == GAP else PLAIN].append(question)
        retriever = Bm25Retriever.from_passages(atlas.passages, atlas.fingerprint)
        return cls(atlas, retriever, kinds, Cast(atlas, list(first.values())))

    def draw(self, count: int, *, seed: Sequence[int]) -> list[Question]:
        """Draw different questions of both kinds in their shares."""
        rng = np.random.default_rng(seed)
        sizes = {GAP: round(GAP_SHARE * count)}
        sizes[PLAIN] = count - sizes[GAP]
        return [self.questions[kind][i] for kind, n in sizes.items() for i in _some(len(self.questions[kind]), n, rng)]


def _some(size: int, count: int, rng: np.random.Generator) -> list[int]:
    chosen: list[int] = rng.permutation(size)[:count].tolist()
    return chosen


def live(out: Path, *, stays: Sequence[int] = STAYS, seed: int = 0, entities: int = 1000) -> Path:
    """Play, credit, distil, and return the folder.

    Args:
        out: new or empty folder.
        stays: steps in each of the worlds, which are the even ones from 2 on.
        seed: of all draws.
        entities: pages of each world.

    Raises:
        InvalidInput: the folder is in use, or a stay is shorter than a step.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InvalidInput(f"out must be a new or empty folder, got {str(out)!r}")
    if not stays or min(stays) < 1:
        raise InvalidInput(f"stays must be whole numbers of at least 1, got {stays!r}")
    settings = resolve(method("sesa"), [*SETTINGS, f"steps={sum(stays)}", f"seed={seed}"])
    places = [Place.of(2 * number, entities=entities) for number in range(1, len(stays) + 1)]
    out.mkdir(parents=True, exist_ok=True)
    save_settings(settings, out / SETTINGS_FILE)
    with (
        closing(SkillBank(settings.memory, out / BANK_FILE)) as bank,
        (out / ROUNDS_FILE).open("w", encoding="utf-8") as rounds,
        (out / LIFE_FILE).open("w", encoding="utf-8") as life,
    ):
        where = [place for place, stay in zip(places, stays, strict=True) for _ in range(stay)]
        for step, place in enumerate(where, start=1):
            row, records = _step(step, place, bank, settings)
            rounds.writelines(json.dumps(record, sort_keys=True, ensure_ascii=False) + "\n" for record in records)
            life.write(json.dumps(row, sort_keys=True) + "\n")
    return out


def _step(
    step: int, place: Place, bank: SkillBank, settings: Settings
) -> tuple[dict[str, float], list[dict[str, object]]]:
    """Play a step with the bank, and without for comparison; the bank learns from the former."""
    asked = place.draw(settings.rounds, seed=[settings.seed, step])
    numbers: dict[str, float] = {"step": step, "world": place.atlas.seed}
    for name, memory in (("off", NoMemory()), ("on", bank)):
        solver = place.cast.solver(memory, wits=WITS, slips=SLIPS, seed=settings.seed * 100_003 + step)
        games = []
        for number, question in enumerate(asked):
            game = Game(settings.game, judge=ExactMatchJudge(), id=f"step{step}-round{number}")
            game.pose(Target(question.answers[0], question.hops or 1, question.answers[1:]))
            games.append(game)
        agents: dict[str, Agent] = {CHALLENGER: place.cast.challenger, SOLVER: solver}
        played = play(games, agents, place.retriever)
        tokens = solver.drain()
        for kind in (GAP, PLAIN):
            rates = [
                round_.solve_rate
                for round_, question in zip(played, asked, strict=True)
                if round_.solve_rate is not None and (question.family == GAP) == (kind == GAP)
            ]
            numbers[f"{kind}/{name}"] = sum(rates) / len(rates)
    bank.credit(uses(played, tokens, step=step))
    for failure in failures(played, tokens, step=step):
        bank.offer(failure)
    bank.consolidate(step=step)
    numbers["skills"] = len(bank)
    return numbers, [{"step": step, **describe_round(round_, tokens)} for round_ in played]


def main() -> None:
    """Live, and print the solve rates by tenths of the steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True, help="new folder")
    parser.add_argument("--stays", default=",".join(map(str, STAYS)), help="steps in each world, comma-separated")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    out = live(given.out, stays=[int(stay) for stay in given.stays.split(",")], seed=given.seed)
    print(table([json.loads(line) for line in (out / LIFE_FILE).read_text(encoding="utf-8").splitlines()]))


def table(rows: Sequence[dict[str, float]], *, parts: int = 8) -> str:
    """Return mean solve rates by stretches of steps as text, with the memory on and off."""
    names = [f"{kind}/{mode}" for kind in (GAP, PLAIN) for mode in ("off", "on")]
    lines = [f"{'steps':<9} {'world':>5} {'skills':>6} " + " ".join(f"{name:>15}" for name in names)]
    for part in np.array_split(np.arange(len(rows)), parts):
        some = [rows[i] for i in part.tolist()]
        means = " ".join(f"{sum(row[name] for row in some) / len(some):15.3f}" for name in names)
        span = f"{some[0]['step']}-{some[-1]['step']}"
        lines.append(f"{span:<9} {some[-1]['world']:>5} {some[-1]['skills']:>6} {means}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
