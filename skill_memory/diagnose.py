"""What went wrong in a failed attempt, read off its trajectory without a model.

The first fault of FAULTS that fits is the diagnosis, so the table goes from the plainest to the most general.

    diagnosis = diagnose(failure)
    diagnosis.fault                        # "stopped_early"
    [r.noun for r in diagnosis.relations]  # ["director", "mother"]

A diagnosis says what happened, not what to do: the lesson is the distiller's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from sesa_env.text import answer_tokens, contains_answer
from skill_memory.abstraction import is_generic
from skill_memory.base import Failure
from skill_memory.relations import Relation, read_kind, read_relations

_LONG_QUERY = 8
"""Words from which a query can be too long."""
_QUESTION_SHARE = 0.8
"""Share of the question's words from which a query is the question itself."""
_OTHER_NAME = re.compile(
    r"\b(?:known as|(?:also|formerly|previously|sometimes|originally) (?:called|named|titled)|nicknamed) "
    r"[\"'“‘]?((?:[^\W\d_a-z][\w'’.-]*|of|the|de|von)(?: (?:[^\W\d_a-z][\w'’.-]*|of|the|de|von))*)"
)
"""How an encyclopedia says that a thing has another name, and that name."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What went wrong, at what kind of question, about which relations (in the order they must be found)."""

    fault: str
    kind: str
    relations: tuple[Relation, ...]


def diagnose(failure: Failure) -> Diagnosis:
    """Name the first fault of FAULTS that fits the failed attempt."""
    fault = next(name for name, fits in FAULTS.items() if fits(failure))
    return Diagnosis(fault, read_kind(failure.question), read_relations(failure.question))


def searches_needed(question: str) -> int:
    """Estimate how many different searches a question takes: one per relation, two for a comparison."""
    both_sides = read_kind(question) in ("comparison", "yes_no")
    return max(len(read_relations(question)), 2 if both_sides else 1)


def _no_valid_action(failure: Failure) -> bool:
    """Ended without any answer because what it wrote was no action."""
    ended = failure.trajectory.end_reason in ("invalid_actions", "policy_stopped")
    return failure.trajectory.output is None and (ended or not failure.trajectory.queries)


def _no_search(failure: Failure) -> bool:
    """Answered without searching."""
    return not failure.trajectory.queries


def _evidence_ignored(failure: Failure) -> bool:
    """Answered something else although a passage held the answer."""
    return failure.trajectory.output is not None and _was_read(failure, failure.answers)


def _no_hit(failure: Failure) -> bool:
    """No search found anything."""
    return not failure.trajectory.passages


def _repeated_query(failure: Failure) -> bool:
    """Sent the same words twice."""
    queries = [tuple(answer_tokens(query)) for query in failure.trajectory.queries]
    return len(set(queries)) < len(queries)


def _query_too_long(failure: Failure) -> bool:
    """Used the question as a query."""
    asked = set(answer_tokens(failure.question))
    queries = [answer_tokens(query) for query in failure.trajectory.queries]
    return any(
        len(words) >= _LONG_QUERY and len(asked & set(words)) >= _QUESTION_SHARE * len(asked) for words in queries
    )


def _ambiguous_name(failure: Failure) -> bool:
    """Found several pages that share a name of the question, told apart by their qualifiers."""
    pages: defaultdict[str, set[str]] = defaultdict(set)
    for passage in failure.trajectory.passages:
        pages[passage.title.partition(" (")[0]].add(passage.title)
    shared = [name for name, titles in pages.items() if len(titles) > 1]
    return any(contains_answer(failure.question, name) for name in shared)


def _alias(failure: Failure) -> bool:
    """Stayed with a name of the question although a page told that it is another name of what the page is about."""
    searched = " ; ".join(failure.trajectory.queries)
    for passage in failure.trajectory.passages:
        page = passage.title.partition(" (")[0]
        names = [match[1] for match in _OTHER_NAME.finditer(passage.text)]
        known = any(contains_answer(failure.question, name) for name in names if not contains_answer(page, name))
        if known and not contains_answer(searched, page):
            return True
    return False


def _turn_limit(failure: Failure) -> bool:
    """Searched until the turns were gone."""
    return failure.trajectory.end_reason == "turn_limit"


def _stopped_early(failure: Failure) -> bool:
    """Answered after fewer different searches than the question has steps."""
    return len(set(failure.trajectory.queries)) < searches_needed(failure.question)


def _wrong_page(failure: Failure) -> bool:
    """Took an answer that a passage did give, about something else."""
    return _was_read(failure, [failure.trajectory.output or ""])


def _unsupported(failure: Failure) -> bool:
    """Gave an answer that no passage states; also whatever fits nothing else."""
    return True


def _was_read(failure: Failure, answers: tuple[str, ...] | list[str]) -> bool:
    named = [answer for answer in answers if not is_generic(answer)]
    return any(contains_answer(passage.text, answer) for passage in failure.trajectory.passages for answer in named)


FAULTS: dict[str, Callable[[Failure], bool]] = {
    "format": _no_valid_action,
    "no_search": _no_search,
    "evidence_ignored": _evidence_ignored,
    "no_hit": _no_hit,
    "repeated_query": _repeated_query,
    "query_too_long": _query_too_long,
    "ambiguous_name": _ambiguous_name,
    "alias": _alias,
    "turn_limit": _turn_limit,
    "stopped_early": _stopped_early,
    "wrong_page": _wrong_page,
    "unsupported": _unsupported,
}
