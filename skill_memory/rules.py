"""A distiller without a model: it diagnoses a failed attempt and fills the card of that fault.

The card speaks of relations and kinds of question, never of the episode.  Its words come from tables, but for one card:
where a page says in other words what the question asks (`skill_memory.wording`), that word is what there is to learn.

    cards = RuleDistiller().distill(failures)    # one list of candidates per failure
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skill_memory.base import Failure
from skill_memory.diagnose import Diagnosis, diagnose
from skill_memory.relations import Relation
from skill_memory.skill import Skill
from skill_memory.wording import find_gap, translate


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to do after one fault, and what not to do.

    Slots: {asked} what the question wants, {steps} all its steps in order, {first} the first of them, {word} the plain
    search word, {confusion} what is easily taken for {asked}.
    """

    do: str
    avoid: str


LESSONS = {
    "format": Lesson(
        "Write one search or one answer per turn and close its tag; for {asked}, open with a search for {first}.",
        "prose without a search or an answer",
    ),
    "no_search": Lesson("Look up {steps} before answering, even if {asked} seems known.", "{asked} from memory"),
    "evidence_ignored": Lesson(
        "Reread the passages for {asked} and copy the phrase that states it.", "answering with {confusion}"
    ),
    "no_hit": Lesson(
        "When a search for {asked} finds nothing, keep only the bare name and {word}.",
        "adding words to a query that found nothing",
    ),
    "repeated_query": Lesson(
        "If a search did not give {asked}, change its words: name plus {word}, or the name alone.",
        "sending the same query again",
    ),
    "query_too_long": Lesson(
        "Ask for {asked} with two to five words: the name and {word}.", "the whole question as a query"
    ),
    "ambiguous_name": Lesson(
        "Several pages share the name: add what kind of thing it is, then read off {asked}.",
        "{asked} of a namesake",
    ),
    "alias": Lesson(
        "If a page gives the name as an alias, go on to {asked} under that page's own title.",
        "staying with the alias",
    ),
    "turn_limit": Lesson(
        "Plan one search each for {steps}, and answer as soon as {asked} is read.",
        "one more search after the fact is read",
    ),
    "stopped_early": Lesson(
        "Find {steps}, one search each, using the name just found in the next one.", "answering with {first}"
    ),
    "wrong_page": Lesson(
        "Check that the passage giving {asked} is about the very thing in question.",
        "{confusion}, or {asked} of another",
    ),
    "unsupported": Lesson(
        "Give {asked} only when a passage states it; until then search once more with {word}.", "a guess"
    ),
}

_ANSWER_TYPES = {
    "comparison": "the value compared",
    "yes_no": "the property asked about",
    "how_many": "the number",
    "when": "the date",
    "where": "the place",
    "who": "the person",
    "which": "the one meant",
    "what": "the fact",
}
_TRIGGERS = {
    "comparison": "which of two",
    "yes_no": "is it; are both",
    "how_many": "how many",
    "when": "when",
    "where": "where",
    "who": "who",
    "which": "which",
    "what": "what",
}
_SIDES = {"comparison": "Do this for each side, then compare.", "yes_no": "Do this for each thing named."}
_MOST_STEPS = 3


class RuleDistiller:
    """Writes one card per failure: about a page's wording where it is another than the question's, else by table."""

    def distill(self, failures: Sequence[Failure]) -> list[list[Skill]]:
        """Return one candidate for each failure, in order."""
        return [[_write(failure)] for failure in failures]


def _write(failure: Failure) -> Skill:
    gap = find_gap(failure)
    return translate(gap) if gap else write_card(diagnose(failure))


def write_card(diagnosis: Diagnosis) -> Skill:
    """Return the card for a diagnosis; equal diagnoses give equal cards."""
    relations = diagnosis.relations[-_MOST_STEPS:]
    slots = _slots(diagnosis.kind, relations)
    lesson = LESSONS[diagnosis.fault]
    description = " ".join([lesson.do.format(**slots), _SIDES.get(diagnosis.kind, "")]).strip()
    return Skill(
        id="",
        description=description,
        triggers=(_TRIGGERS[diagnosis.kind], *(relation.noun for relation in relations)),
        avoid=lesson.avoid.format(**slots),
        queries=tuple(relation.query for relation in relations) or ("{name} {what is asked}",),
        category=diagnosis.fault,
    )


def _slots(kind: str, relations: tuple[Relation, ...]) -> dict[str, str]:
    nouns = [f"the {relation.noun}" for relation in relations] or [_ANSWER_TYPES[kind]]
    steps = nouns if len(nouns) > 1 else ["the name in the question", *nouns]
    return {
        "asked": nouns[-1],
        "first": steps[0],
        "steps": ", then ".join(steps),
        "word": relations[-1].noun if relations else "what is asked",
        "confusion": relations[-1].confusion if relations else "a fact about something else",
    }
