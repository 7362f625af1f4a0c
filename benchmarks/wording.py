"""How often does the rule-based distiller learn a world's own word from one failure, and is the word of use?

    python -m benchmarks.wording --worlds 1,3 --questions 100

Questions behind a wording gap are played in full rounds: a scripted challenger looks its answer up and poses them, a
scripted solver searches in their words and fails.  From each failure the distiller writes a card, which is then asked
three things: does its query, with the name put in, find the page; do the gates let it in; and does it find the page of
another question about the same relation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields

from agents.base import Agent
from agents.rollout import play
from agents.selfplay import failures
from benchmarks.players import Cast, fill
from benchmarks.statistics import wilson
from sesa_env.corpora.atlas import Atlas, generate
from sesa_env.errors import InvalidInput
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.types import CHALLENGER, SOLVER, Question, Target
from skill_memory import NoMemory
from skill_memory.encode import HashingEncoder
from skill_memory.gates import Candidate, Surroundings, refuse
from skill_memory.priming import load_seeds
from skill_memory.rules import RuleDistiller
from skill_memory.shelf import Shelf
from skill_memory.triggers import is_about
from skill_memory.wording import CATEGORY

RULES = GameSettings(validators=("format",), attempts=2)


@dataclass(frozen=True, slots=True)
class GapRow:
    """One question whose page the question's own words do not find, and what its failure taught."""

    world: int
    question_id: str
    relation: str
    written: bool
    """Whether the card is about the wording."""
    right: bool
    """Whether it names the world's own word."""
    triggered: bool
    """Whether its trigger stands in the question."""
    admitted: bool
    """Whether the gates let it into a bank of the hand-written skills."""
    found: bool
    """Whether its query finds the page among the passages of one search."""
    transfers: bool | None
    """Whether it does so for another question about the relation; None where there is none."""

    @property
    def useful(self) -> bool:
        """Whether the card would be shown, followed, and lead to the page."""
        return self.triggered and self.admitted and self.found


def hidden(atlas: Atlas, retriever: Bm25Retriever) -> list[Question]:
    """Return the questions, by different answers, whose last page the question's words do not find, the short first."""
    found: dict[str, Question] = {}
    gaps = [q for q in atlas.all_questions if q.family == "wording-gap" and (q.hops or 9) <= 2]
    results = retriever.search([atlas.natural_queries(q.id)[-1] for q in gaps], RULES.top_k)
    for question, passages in zip(gaps, results, strict=True):
        if question.supporting_titles[-1] not in {passage.title for passage in passages}:
            found.setdefault(question.answers[0], question)
    return list(found.values())


def measure(world: int, *, questions: int, jargon: bool = True, entities: int = 1000) -> list[GapRow]:
    """Return a row for each of so many questions of one or two hops that need their page's own word.

    Args:
        world: seed of the world.
        questions: most questions.
        jargon: whether the pages' words are made up, or unexpected English ones.
        entities: pages of the world.
    """
    atlas = generate(world, entities=entities, jargon=jargon)
    retriever = Bm25Retriever.from_passages(atlas.passages, atlas.fingerprint)
    asked = hidden(atlas, retriever)[:questions]
    cast = Cast(atlas, asked)
    games = []
    for question in asked:
        game = Game(RULES, judge=ExactMatchJudge(), id=question.id)
        game.pose(Target(question.answers[0], question.hops or 1, question.answers[1:]))
        games.append(game)
    agents: dict[str, Agent] = {
        CHALLENGER: cast.challenger,
        SOLVER: cast.solver(NoMemory(), wits=0.0, slips=0.0, seed=0),
    }
    rounds = play(games, agents, retriever)
    lost = {failure.question: failure for failure in failures(rounds, {}, step=1)}
    cards = {text: card for text, (card,) in zip(lost, RuleDistiller().distill(list(lost.values())), strict=True)}
    seeds, encoder = load_seeds(), HashingEncoder()
    shelf = Shelf(seeds, encoder.encode_passages([seed.text for seed in seeds]))
    surroundings = Surroundings(shelf=shelf, tombstones={}, max_similarity=encoder.max_similarity)

    def finds(query: str, question: Question) -> bool:
        last = cast.ways[question.text][-1]
        return last.page in {passage.title for passage in retriever.search([fill(query, last.name)], RULES.top_k)[0]}

    rows = []
    for question in asked:
        if question.text not in cards:
            continue
        card, relation = cards[question.text], atlas.chain(question.id)[-1].relation
        written = card.category == CATEGORY
        kin = [q for q in asked if q.id != question.id and atlas.chain(q.id)[-1].relation == relation]
        rows.append(
            GapRow(
                world=world,
                question_id=question.id,
                relation=relation,
                written=written,
                right=written and card.queries[0].split()[-1] == atlas.relations[relation].gap_cue,
                triggered=written and is_about(card, question.text),
                admitted=written and refuse(Candidate(card, encoder, lost[question.text]), surroundings) is None,
                found=written and finds(card.queries[0], question),
                transfers=(written and finds(card.queries[0], kin[0])) if kin else None,
            )
        )
    return rows


def table(rows: Sequence[GapRow]) -> str:
    """Return how many of the questions came through each test, with 95 % intervals, as text."""
    lines = [f"{'card':<12} {'n':>4}  {'share':>5}  95 % interval"]
    for name in (*(field.name for field in fields(GapRow) if field.name in _TESTS), "useful"):
        outcomes = [outcome for row in rows if (outcome := getattr(row, name)) is not None]
        low, high = wilson(sum(outcomes), len(outcomes))
        share = sum(outcomes) / len(outcomes)
        lines.append(f"{name:<12} {len(outcomes):>4}  {share:5.3f}  [{low:.3f}, {high:.3f}]")
    return "\n".join(lines)


_TESTS = ("written", "right", "triggered", "admitted", "found", "transfers")


def main() -> None:
    """Print the table for the worlds asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--worlds", default="1,3", help="seeds, comma-separated")
    parser.add_argument("--questions", type=int, default=100, help="most questions of each world")
    parser.add_argument("--english", action="store_true", help="worlds whose pages use unexpected English words")
    given = parser.parse_args()
    if given.questions < 1:
        raise InvalidInput(f"questions must be at least 1, got {given.questions!r}")
    worlds = [int(world) for world in given.worlds.split(",")]
    rows = [row for world in worlds for row in measure(world, questions=given.questions, jargon=not given.english)]
    print(table(rows))


if __name__ == "__main__":
    main()
