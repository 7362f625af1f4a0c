"""Checks that a proposed question must pass before anybody tries to solve it.

Each check takes the proposal and the settings and returns "" when the proposal passes, else why it does not.  A chain
runs the checks that `GameSettings.validators` names, in order; the first that refuses decides, and every proposal that
came in is counted as passed or as refused by one of them.

    chain = ValidatorChain(["format", "leak", "near_duplicate"])
    chain.check(proposal, settings)     # "" or the name of the validator that refused, such as "leak"
    chain.counts["leak"].refused        # 1

A refused proposal leaves the game: it has no solve rate and is never repaired or replaced.  The checks below keep no
state; those that remember earlier rounds are in `sesa_env.novelty` and `sesa_env.verification`.  Whatever reads words
here (choices, clauses, orders to a judge) knows English only, and lets other languages pass.
Source: the filters of SSP, its section on question verification.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sesa_env.errors import CheckUnavailable, DuplicateName, InvalidInput, SettingsError
from sesa_env.registry import VALIDATORS
from sesa_env.text import contains_answer, neutralise, split_words
from sesa_env.types import Target, Trajectory

if TYPE_CHECKING:
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
"""A check; one that remembers is an object with `accept(proposal)` too, called when the whole chain has passed."""


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
            A name of a class is made without arguments; to give it some, make it yourself and pass the object.

    Raises:
        UnknownName: no validator of that name is registered.
        DuplicateName: two have the same name.
        SettingsError: the class of that name cannot be made without arguments.
        InvalidInput: `validators` is a bare string.
    """

    def __init__(self, validators: Sequence[str | Validator]) -> None:
        if isinstance(validators, str):
            raise InvalidInput(f"validators must be a list of names or checks, got one bare string {validators!r}")
        self._checks: dict[str, Validator] = {}
        for validator in validators:
            name = validator if isinstance(validator, str) else _name_of(validator)
            if name in self._checks:
                raise DuplicateName(f"validator {name!r} is in the chain twice")
            self._checks[name] = _made(name) if isinstance(validator, str) else validator
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

    def check(self, proposal: Proposal, settings: GameSettings) -> str:
        """Return the name of the first check that refuses, "" when all let the proposal pass.

        A check that could not be made refuses too, since nothing unverified goes on; its name then ends in
        `UNAVAILABLE`, and the round is void.
        """
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


def stateless_chain(names: Sequence[str]) -> ValidatorChain:
    """Return a chain for a single round.

    Raises:
        SettingsError: a check of these names would have to remember other rounds.
    """
    chain = ValidatorChain(names)
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
    return stateless_chain(settings.validators).check(proposal, settings)


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


def _made(name: str) -> Validator:
    part = VALIDATORS.get(name)
    if not isinstance(part, type):
        return part
    try:
        made: Validator = part()
    except TypeError as error:
        raise SettingsError(
            f"validator {name!r} cannot be made by its name alone ({error}): pass {part.__name__}(...) to the chain"
        ) from error
    return made


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


_OPEN = re.compile(
    r"\b(?:name|give|list|mention|identify|state|cite)\s+(?:me\s+|us\s+)?(?:at least\s+)?"
    r"(?:an?|any|some|one|two|three|four|five|several|all|every|\d+)\b"
    r"|\b(?:what|who|which)\s+(?:is|are|was|were)\s+(?:an example|examples|one|some) of\b"
    r"|\b(?:which|what|who)\s+(?:are|were)\s+(?:some|several|all)\b"
    r"|\bone of the possible\b|\bany one of\b",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"\bor\b", re.IGNORECASE)


def has_single_answer(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question that by its wording has several right answers, or that offers its answer as a choice.

    It reads the question alone.  Whether the corpus has a second right answer is not found out here; the verification
    "rag" finds some of those, since noise passages may bring up the other answer.
    """
    open_ended = _OPEN.search(_folded(proposal.text))
    if open_ended:
        return f"{open_ended[0]!r} has many answers"
    answers = (proposal.target.answer, *proposal.target.aliases)
    if _CHOICE.search(proposal.text) and any(contains_answer(proposal.text, answer) for answer in answers):
        return "the answer is one of the choices offered"
    return ""


_CLAUSE = re.compile(
    r"\b(?:who|whom|whose|which|that|where|when|while|whereas|although|though|because|since|unless|until|after|before"
    r"|if|whether|wherein|whereby)\b|[;()]|\s[-–—]\s",
    re.IGNORECASE,
)


def has_few_clauses(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question with more than `max_clauses_per_hop` subordinate clauses for each hop of its target.

    Clauses are counted by the words and marks that open them, the question word among them: a rough count that finds
    contrived questions, no parser.
    """
    clauses = len(_CLAUSE.findall(_folded(proposal.text)))
    allowed = settings.max_clauses_per_hop * proposal.target.hops
    return f"{clauses} clauses, more than {allowed} for {proposal.target.hops} hops" if clauses > allowed else ""


_BAIT = {
    "an order": re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}"
        r"\b(?:instructions?|prompts?|rules|criteria|rubric|system|above|previous|accepted answers?)\b"
        r"|\byou are now\b|\byou are\b.{0,30}\b(?:judge|grader|examiner|evaluator|assistant)\b"
        r"|\bsystem prompt\b|\bnew instructions\b|\bpretend (?:to be|that you)\b",
        re.IGNORECASE | re.DOTALL,
    ),
    "a verdict": re.compile(
        r"\b(?:mark|grade|score|accept|treat|count|judge|rate|consider)\b.{0,40}\bas\s+(?:correct|right|true|accepted)\b"
        r"|\b(?:output|print|write|reply|respond|answer|say|return)\s+(?:with\s+|only\s+){0,2}"
        r"[\"'“‘]?(?:correct|wrong|yes|no|true|false)\b"
        r"|\b(?:any|every|each|whatever)\s+(?:answer|reply|response)\b"
        r"|\bfull (?:marks|credit|score)\b",
        re.IGNORECASE | re.DOTALL,
    ),
    "an address to a model": re.compile(
        r"\b(?:dear|hello|hi|hey|attention|note (?:to|for)(?: the)?)[\s,:]+(?:the\s+)?"
        r"(?:judge|grader|evaluator|examiner|verifier|assistant|model|solver)\b"
        r"|\b(?:judge|grader|evaluator|verifier|assistant|system|solver)\s*:"
        r"|\b(?:as|being) an? (?:ai|language model|grader)\b",
        re.IGNORECASE,
    ),
}


def has_no_judge_bait(proposal: Proposal, settings: GameSettings) -> str:
    """Refuse a question that speaks to a judge or a model, gives orders, or holds control tags.

    What is hidden between letters (zero-width and other format characters) does not hide anything here.
    """
    if neutralise(proposal.text) != proposal.text:
        return "a control tag"
    folded = _folded(proposal.text)
    return next((what for what, pattern in _BAIT.items() if pattern.search(folded)), "")


def _folded(text: str) -> str:
    """Return compatibility forms, without invisible characters, in one line."""
    visible = (sign for sign in unicodedata.normalize("NFKC", text) if unicodedata.category(sign) != "Cf")
    return " ".join("".join(visible).split())
