"""Checks that a proposed question must pass before anybody tries to solve it.

Each check takes the proposal and the settings and returns "" when the proposal passes, else why it does not.  A chain
runs the checks that `GameSettings.validators` names, in order; the first that refuses decides, and every proposal that
came in is counted as passed or as refused by one of them.

    chain = ValidatorChain(settings.validators, checks=settings.checks)
    chain.check(proposal, settings)     # "" or the name of the validator that refused, such as "leak"
    chain.counts["leak"].refused        # 1
    chain.set_state(chain.get_state())  # what its members remember, as JSON data

A refused proposal leaves the game: it has no solve rate and is never repaired or replaced.  The checks below keep no
state; those that remember earlier rounds are in `sesa_env.novelty` and `sesa_env.verification`, those that read the
wording in `sesa_env.wording`.
Source: the filters of SSP, its section on question verification.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sesa_env.checks import CheckSettings, Means
from sesa_env.errors import CheckUnavailable, DuplicateName, InvalidInput, SettingsError
from sesa_env.judge import ExactMatchJudge, Judge
from sesa_env.registry import VALIDATORS
from sesa_env.text import contains_answer, split_words
from sesa_env.types import Target, Trajectory

if TYPE_CHECKING:
    from sesa_env.answerers import Answerer
    from sesa_env.game import GameSettings

log = logging.getLogger(__name__)

MIN_QUESTION_CHARS = 10
UNAVAILABLE = "_unavailable"
"""Ends the rejection of a round that nobody is to blame for: a check could not be made, or a search failed."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A question text with the target it was made for and all that its challenger did to make it."""

    target: Target
    trajectory: Trajectory
    text: str


Validator = Callable[[Proposal, "GameSettings"], str]
"""A check.

One that remembers is an object with `accept(proposal)` too, called when the whole chain has passed, and with
`get_state()` and `set_state(state)`.  One that asks a model has `prepare(proposals, settings)`, called before it is
called for any of them, so that it can ask about all at once.  A class whose checks depend on the run has
`from_settings(checks, means)`.
"""


@dataclass(slots=True)
class Count:
    """How many proposals came to one validator, and how many it kept from going on."""

    seen: int = 0
    refused: int = 0

    @property
    def passed(self) -> int:
        """How many went on to the next validator."""
        return self.seen - self.refused


class ValidatorChain:
    """Named checks in a row, with counts; one chain serves all rounds of a run, so that its members can remember.

    Args:
        validators: names in `VALIDATORS`, or checks: functions, called by their own name, or objects with a `name`.
            A name of a class is made `from_settings(checks, means)`, or without arguments where it has no such method.
        checks: what named checks are made with.
        judge: compares answers in the checks that ask for some; exact match unless given.
        solver: answers from given passages with the policy that is being trained; None where none is.

    Raises:
        UnknownName: no validator of that name is registered.
        DuplicateName: two have the same name.
        SettingsError: the check of that name cannot be made with these settings.
        CorpusError: a file of test questions cannot be read.
        InvalidInput: `validators` is a bare string.
    """

    def __init__(
        self,
        validators: Sequence[str | Validator],
        *,
        checks: CheckSettings | None = None,
        judge: Judge | None = None,
        solver: Answerer | None = None,
    ) -> None:
        if isinstance(validators, str):
            raise InvalidInput(f"validators must be a list of names or checks, got one bare string {validators!r}")
        checks, means = checks or CheckSettings(), Means(judge or ExactMatchJudge(), solver)
        self._checks: dict[str, Validator] = {}
        for validator in validators:
            name = validator if isinstance(validator, str) else _name_of(validator)
            if name in self._checks:
                raise DuplicateName(f"validator {name!r} is in the chain twice")
            self._checks[name] = _made(name, checks, means) if isinstance(validator, str) else validator
        self.counts = {name: Count() for name in self._checks}
        self.seen = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the checks, in the order in which they run."""
        return tuple(self._checks)

    @property
    def refused(self) -> dict[str, int]:
        """How many proposals each check kept from going on; those and `passed` add up to `seen`."""
        return {name: count.refused for name, count in self.counts.items()}

    @property
    def passed(self) -> int:
        """How many proposals passed every check."""
        return self.seen - sum(self.refused.values())

    @property
    def remembers(self) -> tuple[str, ...]:
        """The names of the checks that keep state over rounds."""
        return tuple(name for name, validator in self._checks.items() if hasattr(validator, "accept"))

    @property
    def numbers(self) -> dict[str, int]:
        """How many proposals came to each check and left it, and what a check counts itself: "rag/in", "rag/asked"."""
        numbers: dict[str, int] = {}
        for name, validator in self._checks.items():
            count = self.counts[name]
            numbers |= {f"{name}/in": count.seen, f"{name}/out": count.passed}
            numbers |= {f"{name}/{what}": number for what, number in getattr(validator, "numbers", {}).items()}
        return numbers

    def check(self, proposal: Proposal, settings: GameSettings) -> str:
        """Return the name of the first check that refuses, "" when all let the proposal pass; see `check_all`."""
        return self.check_all([proposal], settings)[0]

    def check_all(self, proposals: Sequence[Proposal], settings: GameSettings) -> list[str]:
        """Check proposals that were made at the same time, in order, and return a verdict for each.

        A check that could not be made refuses too, since nothing unverified goes on; its name then ends in
        `UNAVAILABLE`, and the round is void.
        """
        self._prepare(proposals, settings)
        return [self._check(proposal, settings) for proposal in proposals]

    def get_state(self) -> dict[str, Any]:
        """Return the counts, and what the checks remember, as JSON data.

        Raises:
            SettingsError: a check remembers, and has no `get_state` to say what.
        """
        silent = [name for name in self.remembers if not hasattr(self._checks[name], "get_state")]
        if silent:
            raise SettingsError(f"validators {silent} remember earlier rounds: they must have get_state and set_state")
        return {
            "seen": self.seen,
            "counts": {name: [count.seen, count.refused] for name, count in self.counts.items()},
            "checks": {name: check.get_state() for name, check in self._stateful()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned; after an error the chain is of no use any more.

        Raises:
            InvalidInput: it is no such state, or one of a chain of other checks.
        """
        try:
            self.seen = int(state["seen"])
            counts = {name: Count(*map(int, numbers)) for name, numbers in state["counts"].items()}
            memories = dict(state["checks"])
            if list(counts) != list(self._checks) or set(memories) != {name for name, _ in self._stateful()}:
                raise InvalidInput(f"state must be of the checks {list(self._checks)}, got one of {list(counts)}")
            self.counts = counts
            for name, check in self._stateful():
                check.set_state(memories[name])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"state must be what get_state returned, got a part that is not: {error}") from error

    def _stateful(self) -> Iterable[tuple[str, Any]]:
        return [(name, check) for name, check in self._checks.items() if hasattr(check, "get_state")]

    def _prepare(self, proposals: Sequence[Proposal], settings: GameSettings) -> None:
        """Tell each check that asks a model of all proposals, without those that a rule before it refuses anyway.

        Such a rule keeps no state, so that to ask it once more in `_check` changes nothing.
        """
        sound, passed = list(proposals), 0
        checks = list(self._checks.items())
        for asking in (place for place, (_, check) in enumerate(checks) if hasattr(check, "prepare")):
            rules = [(name, check) for name, check in checks[passed:asking] if not hasattr(check, "accept")]
            sound = [one for one in sound if not any(_verdict(*rule, one, settings) for rule in rules)]
            checks[asking][1].prepare(sound, settings)  # type: ignore[attr-defined]
            passed = asking

    def _check(self, proposal: Proposal, settings: GameSettings) -> str:
        self.seen += 1
        for name, validator in self._checks.items():
            self.counts[name].seen += 1
            refusal = _verdict(name, validator, proposal, settings)
            if refusal:
                self.counts[name].refused += 1
                return refusal
        for name in self.remembers:
            self._checks[name].accept(proposal)  # type: ignore[attr-defined]
        return ""


def stateless_chain(settings: GameSettings) -> ValidatorChain:
    """Return a chain for a single round.

    Raises:
        SettingsError: a validator of the settings would have to remember other rounds.
    """
    chain = ValidatorChain(settings.validators, checks=settings.checks)
    if chain.remembers:
        raise SettingsError(
            f"validators {list(chain.remembers)} remember earlier rounds: make one ValidatorChain for the run and give "
            "it to every Game (validators=...)"
        )
    return chain


def check(proposal: Proposal, settings: GameSettings) -> str:
    """Return the name of the first validator of the settings that refuses the proposal, "" when all let it pass.

    Raises:
        UnknownName: the settings name a validator that is not registered.
        SettingsError: one of them keeps state over rounds, which takes a `ValidatorChain`.
    """
    return stateless_chain(settings).check(proposal, settings)


def _verdict(name: str, validator: Validator, proposal: Proposal, settings: GameSettings) -> str:
    try:
        reason = validator(proposal, settings)
    except CheckUnavailable as error:
        log.warning("%s could not be checked: %s", name, error)
        return f"{name}{UNAVAILABLE}"
    if not isinstance(reason, str):
        raise InvalidInput(f'validator {name!r} must return a string, "" to let pass, got {reason!r}')
    if reason:
        log.debug("%s refused %r: %s", name, proposal.text, reason)
    return name if reason else ""


def _name_of(validator: Any) -> str:
    name = getattr(validator, "name", None) or getattr(validator, "__name__", None)
    if not callable(validator) or isinstance(validator, type) or not isinstance(name, str):
        raise InvalidInput(f"a validator must be a registered name, a function or an object, got {validator!r}")
    return name


def _made(name: str, checks: CheckSettings, means: Means) -> Validator:
    part = VALIDATORS.get(name)
    if not isinstance(part, type):
        return part
    try:
        made: Validator = part.from_settings(checks, means) if hasattr(part, "from_settings") else part()
    except TypeError as error:
        raise SettingsError(
            f"validator {name!r} cannot be made by its name alone ({error}): pass {part.__name__}(...) to the chain"
        ) from error
    return made


def require_satisfiable(settings: GameSettings) -> None:
    """Refuse rules that no proposal could pass.

    Raises:
        SettingsError: the challenger's turns do not suffice for its searches and the question, or the limits of a
            question's length leave nothing between them.
    """
    named = set(settings.validators)
    searches = max(settings.min_searches if "searches" in named else 0, int(bool(named & {"information", "rag"})))
    if settings.challenger_turns <= searches:
        raise SettingsError(
            f"challenger_turns must be at least {searches + 1}, {searches} for searches and one for the question, "
            f"got {settings.challenger_turns}"
        )
    if "length" not in named:
        return
    shortest = max(MIN_QUESTION_CHARS, settings.min_question_words)  # a Chinese word may have a single character
    if settings.max_question_chars < shortest:
        raise SettingsError(
            f"max_question_chars must be at least {shortest} to hold min_question_words="
            f"{settings.min_question_words}, got {settings.max_question_chars}"
        )
    if "tokens" in named and settings.max_question_words < settings.min_question_words:
        raise SettingsError(
            f"max_question_words must be at least min_question_words={settings.min_question_words}, "
            f"got {settings.max_question_words}"
        )


def has_format(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a proposal without a question."""
    return "" if proposal.text.strip() else "there is no question"


def has_length(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question of fewer than 10 or more than `max_question_chars` characters, or of too few words."""
    characters, words = len(proposal.text), len(split_words(proposal.text))
    if not MIN_QUESTION_CHARS <= characters <= settings.max_question_chars:
        return f"{characters} characters, not {MIN_QUESTION_CHARS} to {settings.max_question_chars}"
    if words < settings.min_question_words:
        return f"{words} words, fewer than {settings.min_question_words}"
    return ""


def has_no_leak(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question that has the answer, or one of its aliases, in it as whole words."""
    for answer in (proposal.target.answer, *proposal.target.aliases):
        if contains_answer(proposal.text, answer):
            return f"the question contains {answer!r}"
    return ""


def has_information(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question whose challenger saw no passage: nothing in the corpus supports it."""
    return "" if proposal.trajectory.passages else "no search found anything"


def has_searches(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question whose challenger searched fewer than `min_searches` times."""
    searches = len(proposal.trajectory.queries)
    return "" if searches >= settings.min_searches else f"{searches} searches, fewer than {settings.min_searches}"


def has_no_repeated_query(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question whose challenger sent the same query twice, up to case and spacing."""
    queries = [" ".join(query.casefold().split()) for query in proposal.trajectory.queries]
    repeated = sorted({query for query in queries if queries.count(query) > 1})
    return f"the query {repeated[0]!r} was repeated" if repeated else ""


def has_token_count(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question of more than `max_question_words` words; Chinese and Japanese count by character."""
    words = len(split_words(proposal.text))
    return f"{words} words, more than {settings.max_question_words}" if words > settings.max_question_words else ""


def has_no_query_leak(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question whose challenger searched for the answer itself, instead of for what leads to it."""
    for query in proposal.trajectory.queries:
        for answer in (proposal.target.answer, *proposal.target.aliases):
            if contains_answer(query, answer):
                return f"the query {query!r} contains {answer!r}"
    return ""
