"""What questions ask for, in words: relations between things, and kinds of question.

    read_relations("Who is the mother of the director of Polar Sky?")   # director, then mother
    read_kind("Which river is longer, the Orl or the Venna?")           # "comparison"

English only; a question in which nothing is recognised has no relations and the kind "what".
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation a question can ask for: its noun, the words that show it, a query for it, and its near misses."""

    noun: str
    pattern: re.Pattern[str]
    query: str
    confusion: str


def _row(noun: str, words: str, query: str, confusion: str) -> Relation:
    return Relation(noun, re.compile(rf"\b(?:{words})\b", re.IGNORECASE), query, confusion)


RELATIONS = (
    _row("director", r"direct(?:ed|or|ors|s)|film-?maker", "{film} director", "the producer or the writer"),
    _row("composer", r"compos(?:er|ed|es)|wrote(?= the music)", "{work} composer", "the lyricist or the performer"),
    _row("author", r"wrote|writer|written|author(?:ed|s)?|novelist", "{work} author", "an editor or a translator"),
    _row("performer", r"perform(?:er|ed|s)?|singer|sang|sung|recorded", "{song} performed by", "the songwriter"),
    _row("producer", r"produc(?:er|ed)", "{work} producer", "the director or the distributor"),
    _row("actor", r"star(?:red|ring)?|actor|actress|played|portray(?:ed|s)|cast", "{film} cast", "the role"),
    _row("spouse", r"spouse|wife|husband|married|widow", "{person} spouse", "a parent or a child"),
    _row("father", r"father", "{person} father", "the son or the grandfather"),
    _row("mother", r"mother", "{person} mother", "the wife or the daughter"),
    _row("child", r"child(?:ren)?|son|daughter", "{person} children", "a parent or a nephew"),
    _row("sibling", r"sibling|brother|sister", "{person} sibling", "a cousin or a spouse"),
    _row("grandparent", r"grand(?:father|mother|parent|son|daughter)", "{person} parents", "the parent"),
    _row("birthplace", r"birth ?place|place of birth|where .{0,60}born", "{person} born in", "the place of work"),
    _row("birth date", r"when .{0,60}born|born|birth ?da(?:te|y)|older|younger", "{person} born", "another date"),
    _row(
        "place of death",
        r"where .{0,60}(?:die|died|buried)|place of (?:death|burial)",
        "{person} died in",
        "the birthplace",
    ),
    _row("date of death", r"die|died|death|dies|outlived", "{person} died", "the date of birth"),
    _row("nationality", r"nationality|citizen(?:ship)?|from what country", "{person} nationality", "the birthplace"),
    _row("capital", r"capital", "{country} capital", "the largest city"),
    _row("country", r"countr(?:y|ies)|nation", "{place} country", "the region or the town"),
    _row("region", r"region|province|state|county|district|territor(?:y|ial)", "{place} region", "the country"),
    _row("location", r"located|location|situated|where is|lies|stands", "{place} located in", "a nearby town"),
    _row("mouth of the river", r"flows?|mouth|tributary|empties", "{river} flows into", "its source"),
    _row("source of the river", r"source of the|rises", "{river} source", "its mouth"),
    _row("population", r"population|inhabitants|people live", "{place} population", "an older count"),
    _row(
        "size",
        r"long(?:er|est)?(?!-)|length|tall(?:er|est)?|height|area|larg(?:er|est)",
        "{name} size",
        "another measure",
    ),
    _row(
        "founder",
        r"founder|founded(?= by)|who .{0,30}founded|creat(?:or|ed)|invent(?:or|ed)",
        "{name} founder",
        "the owner",
    ),
    _row("builder", r"builder|built(?= by)|architect|designed", "{name} builder", "the owner"),
    _row("founding year", r"founded|established|formed|open(?:ed)?|built|inception", "{name} founded", "a later year"),
    _row("headquarters", r"headquarter(?:s|ed)|head office|based", "{company} headquarters", "the place of founding"),
    _row("number of staff", r"how many .{0,60}employ|employees|workforce", "{company} employees", "another count"),
    _row("employer", r"employ(?:er|ed|s)|works? (?:for|at)|worked (?:for|at)", "{person} employer", "the customer"),
    _row("owner", r"own(?:er|ed|s)|parent company|belongs? to", "{name} owner", "the founder or the manager"),
    _row("maker", r"manufactur(?:er|ed|es)|maker|made by|develop(?:er|ed)", "{product} made by", "the seller"),
    _row("school", r"educated|studied|school|university|college|alma mater", "{person} studied at", "a workplace"),
    _row("occupation", r"occupation|profession|job|work as|living", "{person} occupation", "a hobby or a title"),
    _row("award", r"award|prize|medal|honou?r|won", "{name} award", "a nomination"),
    _row("member", r"members?|band|party|group|joined", "{name} members", "a guest or a former member"),
    _row("team", r"team|club|league|coach|sport|plays? for", "{person} team", "an earlier team"),
    _row("genre", r"genre|kind of music|type of (?:film|book|music)", "{name} genre", "the theme"),
    _row("language", r"language|spoken|speaks?", "{name} language", "the country"),
    _row("publisher", r"publish(?:er|ed|es)|label|distribut(?:or|ed)", "{work} publisher", "the author"),
    _row("release year", r"releas(?:ed|e)|came out|debut|premiered|aired", "{work} release year", "when it was made"),
    _row(
        "leader",
        r"president|king|queen|ruler|mayor|governor|minister|rector|chief executive|captain",
        "{place} leader",
        "a predecessor",
    ),
    _row("teacher", r"teacher|taught|pupil|student", "{person} teacher", "a pupil or a colleague"),
    _row("explorer", r"explor(?:er|ed)|discover(?:er|ed)", "{name} explorer", "a later visitor"),
    _row("dedication", r"dedicat(?:ed|ion)", "{work} dedicated to", "the author"),
    _row("setting", r"setting|set in|takes place|filmed|shot", "{work} set in", "where it was published"),
    _row("home city", r"home (?:city|town|port)", "{name} home city", "the birthplace"),
    _row("statue", r"statue|monument|memorial", "{person} statue", "the birthplace"),
    _row("river", r"runs past|on (?:which|what) river", "{town} river", "a river of the same region"),
    _row("namesake", r"named (?:after|for)|eponym", "{name} named after", "a place of the same name"),
)

_KINDS = (
    ("comparison", r"\b(?:which|who|what)\b.*\b(?:\w+er|more|most|first|later|same)\b.*\bor\b|\bcompared?\b"),
    ("yes_no", r"^(?:is|are|was|were|do|does|did|has|have|had|can)\b"),
    ("how_many", r"\bhow (?:many|much|long|tall|old|far|big)\b"),
    ("when", r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century)\b"),
    ("where", r"\bwhere\b|\b(?:what|which) (?:city|town|place|country|region|state|county|island)\b"),
    ("who", r"\bwho(?:m|se)?\b"),
    ("which", r"\bwhich\b"),
)
KINDS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)

_FINAL_VERB = re.compile(
    r"\b(?:born|die|died|buried|founded|established|formed|opened|open|built|located|situated|headquartered|based|lie"
    r"|released|published|employ|married|flow)\W*$",
    re.IGNORECASE,
)


def read_relations(question: str) -> tuple[Relation, ...]:
    """Return the relations a question names, in the order in which they must be found.

    English nests them the other way round: "the mother of the director of" needs the director first.  Only a verb at
    the very end ("when was the director of ... born?") is asked of all the rest, and so comes last.  Of several
    relations shown by the same word the one that stands first in RELATIONS counts ("where ... born" is a place).
    """
    found: dict[int, Relation] = {}
    for relation in RELATIONS:
        match = relation.pattern.search(question)
        if match:
            found.setdefault(match.end(), relation)
    ends = sorted(found, reverse=True)
    if _FINAL_VERB.search(question):
        ends = [*ends[1:], *ends[:1]]
    return tuple(found[end] for end in ends)


def read_kind(question: str) -> str:
    """Return what kind of answer the question wants: the first kind of KINDS it matches, else "what"."""
    return next((kind for kind, pattern in KINDS if pattern.search(question.strip())), "what")
