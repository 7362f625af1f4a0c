"""Checks on how a question is worded: whether it has one answer, is plain, and speaks to nobody but the solver.

    has_single_answer(proposal, settings)     # "" or why not: "'name one' has many answers"

None is on unless `GameSettings.validators` names it.  They read words (choices, clauses, orders to a judge) of English
only, and let other languages pass.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from sesa_env.text import contains_answer, neutralise

if TYPE_CHECKING:
    from sesa_env.game import GameSettings
    from sesa_env.validators import Proposal

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
