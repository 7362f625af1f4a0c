"""Is a proposed question answered by what its challenger found?  Ask somebody who has read nothing else.

An answerer gets the question and the challenger's own passages, mixed with passages of other rounds.  When it does not
come to the target's answer, the question is unanswerable, ambiguous or wrong, and is refused.

    chain = ValidatorChain([*settings.validators, RagVerification(ChatAnswerer(model), noise=4)])
    chain = ValidatorChain(["rag"], checks=CheckSettings(answerer="title"))           # by name; see `ANSWERERS`

Questions that were posed at the same time are asked about in one call, each with the others' passages as noise.
It fails closed: a question that could not be verified never goes on.  An empty reply refuses it; an answerer that
cannot be reached voids the round (`CheckUnavailable`), so that no challenger is fined for an outage.
Source: SSP, section on RAG verification, which fails open in its code.  Known hole, as there: a question with several
right answers passes when the passages favour one.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from sesa_env.answerers import SOLVER, Answerer, Reading
from sesa_env.errors import BackendUnavailable, CheckUnavailable, InvalidInput
from sesa_env.judge import ExactMatchJudge, Judge
from sesa_env.registry import ANSWERERS
from sesa_env.state import plain
from sesa_env.text import neutralise, normalise_answer, render_passages
from sesa_env.types import Passage, Question

if TYPE_CHECKING:
    from sesa_env.checks import CheckSettings, Means
    from sesa_env.game import GameSettings
    from sesa_env.validators import Proposal


class _Block(NamedTuple):
    """What one round's challenger was shown, and for which target."""

    target: str
    passages: tuple[Passage, ...]


class _Case(NamedTuple):
    """A proposal that is being verified: what is to be read, and the noise in it by itself."""

    proposal: Proposal
    reading: Reading
    noise: Reading


class RagVerification:
    """Refuses a question that an answerer does not answer right from the challenger's passages among noise.

    Args:
        answerer: who reads; it may also keep the challenger honest by being another model than the solver.
        judge: compares its answer with the target's.
        noise: blocks of other rounds' passages that are mixed in; fewer while fewer rounds are known, and as many as
            the answerer can read.
        remembered: how many rounds' passages are kept to draw noise from.
        closed_book: also refuse a question that is answered right from the noise alone: it needs no evidence.
        patience: failures of the answerer in a row, after which the run stops instead of voiding round after round.
        seed: of the drawing and mixing, which depend on nothing else than the question and the rounds known.

    Attributes:
        numbers: how often the answerer was asked, how many blocks of noise it was given, and what it counts itself.

    Raises:
        InvalidInput: a number is out of range.
    """

    name: ClassVar[str] = "rag"

    def __init__(
        self,
        answerer: Answerer,
        *,
        judge: Judge | None = None,
        noise: int = 4,
        remembered: int = 64,
        closed_book: bool = False,
        patience: int = 10,
        seed: int = 0,
    ) -> None:
        for name, value, least in [("noise", noise, 0), ("remembered", remembered, 1), ("patience", patience, 1)]:
            if value < least:
                raise InvalidInput(f"{name} must be at least {least}, got {value!r}")
        self._answerer = answerer
        self._judge = judge or ExactMatchJudge()
        self._noise = noise
        self._closed_book = closed_book
        self._patience = patience
        self._seed = seed
        self._failures = 0
        self._blocks: deque[_Block] = deque(maxlen=remembered)
        self._verdicts: dict[Proposal, str | CheckUnavailable] = {}
        self._counter: Counter[str] = Counter(asked=0, noise_blocks=0)

    @classmethod
    def from_settings(cls, checks: CheckSettings, means: Means) -> RagVerification:
        """Return the check that the settings describe.

        Raises:
            SettingsError: the answerer is a training run's solver, and there is none; or its endpoint is not named.
        """
        trained = means.solver if checks.answerer == SOLVER else None
        answerer: Answerer = trained or ANSWERERS.make(checks.answerer, checks)
        return cls(answerer, judge=means.judge, noise=checks.noise, closed_book=checks.closed_book)

    @property
    def numbers(self) -> dict[str, int]:
        """What was asked so far."""
        return {**self._counter, **getattr(self._answerer, "numbers", {})}

    def prepare(self, proposals: Sequence[Proposal], settings: GameSettings) -> None:
        """Ask about all of these at once; they are checked one by one afterwards.

        Raises:
            BackendUnavailable: the answerer failed `patience` times in a row.
        """
        self._verdicts = dict.fromkeys(proposals, "there are no passages to answer from")
        cases = []
        for proposal in self._verdicts:
            if proposal.trajectory.passages:
                case = self._case(proposal, proposals, settings)
                self._verdicts[proposal] = "" if case else "its passages are more than the answerer can read"
                cases += [case] if case else []
        for case, reply in zip(cases, self._asked([case.reading for case in cases]), strict=True):
            self._verdicts[case.proposal] = self._verdict(case.proposal, reply)
        if self._closed_book:
            cases = [case for case in cases if self._verdicts[case.proposal] == ""]
            for case, reply in zip(cases, self._asked([case.noise for case in cases]), strict=True):
                self._verdicts[case.proposal] = self._closed_book_verdict(case.proposal, reply)

    def __call__(self, proposal: Proposal, settings: GameSettings) -> str:
        """Refuse a question whose answer does not follow from its challenger's passages.

        Raises:
            CheckUnavailable: the answerer or the judge could not be asked.
            BackendUnavailable: that has happened `patience` times in a row.
        """
        if proposal not in self._verdicts:
            self.prepare([proposal], settings)
        verdict = self._verdicts.pop(proposal)
        if isinstance(verdict, CheckUnavailable):
            raise verdict
        return verdict

    def accept(self, proposal: Proposal) -> None:
        """Keep the passages as noise for later rounds."""
        self._blocks.append(_block(proposal))

    def get_state(self) -> dict[str, Any]:
        """Return the passages that are remembered, and how often in a row the answerer has failed."""
        return {"failures": self._failures, "blocks": [plain(block._asdict()) for block in self._blocks]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        blocks = [
            _Block(str(block["target"]), tuple(Passage(**passage) for passage in block["passages"]))
            for block in state["blocks"]
        ]
        self._failures = int(state["failures"])
        self._blocks.clear()
        self._blocks.extend(blocks)

    def _case(self, proposal: Proposal, together: Sequence[Proposal], settings: GameSettings) -> _Case | None:
        """Return what is to be read about a proposal, with as much noise as fits; None when not even its own does."""
        rng = np.random.default_rng([self._seed, zlib.crc32(proposal.text.encode("utf-8", "replace"))])
        own = {passage.id: passage for passage in proposal.trajectory.passages}
        blocks = self._drawn(proposal, together, rng)
        known = own | {passage.id: passage for block in blocks for passage in block if passage.id not in own}
        shuffled = [list(known)[index] for index in rng.permutation(len(known))]
        for number in range(len(blocks), -1, -1):
            noise = {passage.id for block in blocks[:number] for passage in block} - own.keys()
            reading, alone = (
                Reading(
                    neutralise(proposal.text),
                    render_passages([known[id] for id in shuffled if id in ids], max_chars=settings.passage_chars),
                )
                for ids in (own.keys() | noise, noise)
            )
            if self._answerer.fits(reading):
                self._counter["noise_blocks"] += number
                return _Case(proposal, reading, alone)
        return None

    def _drawn(
        self, proposal: Proposal, together: Sequence[Proposal], rng: np.random.Generator
    ) -> list[tuple[Passage, ...]]:
        """Return the passages of some other rounds with another target."""
        target = normalise_answer(proposal.target.answer)
        known = [*self._blocks, *map(_block, together)]
        others = [block.passages for block in known if block.target != target and block.passages]
        return [others[index] for index in rng.permutation(len(others))[: self._noise]]

    def _asked(self, readings: Sequence[Reading]) -> list[str | CheckUnavailable]:
        if not readings:
            return []
        self._counter["asked"] += len(readings)
        try:
            replies = list(self._answerer.answer(readings))
            if len(replies) != len(readings):
                raise InvalidInput(f"the answerer must return one answer for each of {len(readings)} questions")
        except BackendUnavailable:
            raise
        except Exception as error:  # whatever a third party's answerer raises must not let the question through
            failure = self._failed(f"the answerer failed ({type(error).__name__}: {error})")
            return [failure] * len(readings)
        return [self._heard(reply) for reply in replies]

    def _heard(self, reply: str | None) -> str | CheckUnavailable:
        if reply is None:
            return self._failed("the answerer could not be reached")
        self._failures = 0
        return reply

    def _verdict(self, proposal: Proposal, reply: str | CheckUnavailable) -> str | CheckUnavailable:
        if isinstance(reply, CheckUnavailable):
            return reply
        if not reply.strip():
            return "the answerer found no answer"
        right = self._right(proposal, reply)
        if isinstance(right, CheckUnavailable):
            return right
        return "" if right else f"the passages say {reply!r}"

    def _closed_book_verdict(self, proposal: Proposal, reply: str | CheckUnavailable) -> str | CheckUnavailable:
        right = self._right(proposal, reply)
        if isinstance(right, CheckUnavailable):
            return right
        return "it is answered without its passages" if right else ""

    def _right(self, proposal: Proposal, reply: str | CheckUnavailable) -> bool | CheckUnavailable:
        if isinstance(reply, CheckUnavailable):
            return reply
        target = proposal.target
        question = Question("verification", proposal.text, (target.answer, *target.aliases))
        score = self._judge.judge(question, reply)
        return self._failed("the judge could not be reached") if score is None else score > 0

    def _failed(self, what: str) -> CheckUnavailable:
        self._failures += 1
        if self._failures >= self._patience:
            raise BackendUnavailable(f"{what}, {self._failures} times in a row")
        return CheckUnavailable(what)


def _block(proposal: Proposal) -> _Block:
    passages = {passage.id: passage for passage in proposal.trajectory.passages}
    return _Block(normalise_answer(proposal.target.answer), tuple(passages.values()))
