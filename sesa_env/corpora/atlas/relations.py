"""What Atlas can say and ask: the kinds of entity, and one row of wording for each relation.

A page states its facts in plain words ("directed by") or, on about a third of the pages, in other words than a
question would use ("helmed by"); the row holds both.  In every sentence the cue comes before the name, so that a
small causal model can tell what the name is for.

    RELATIONS["director"].cue, RELATIONS["director"].gap_cue        # "directed", "helmed"

A relation is stated on its subject's page and nowhere else.  Only rows with `ask_back` can be asked from the object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

YEAR, NUMBER, WORD = "year", "number", "word"
"""Kinds of object that are no entity and have no page."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of entity: how plain pages and questions call it, how reworded pages do, and its sorts."""

    name: str
    gap_noun: str
    sorts: tuple[str, ...]
    """Words before the noun ("a *drama* film"); for people, the occupation in place of the noun."""
    bare: bool = False
    """Whether other pages name it without the noun."""

    def noun(self, *, reworded: bool) -> str:
        """Return the word that a page of this kind is called by."""
        return self.gap_noun if reworded else self.name


KINDS = {
    kind.name: kind
    for kind in (
        Kind("country", "nation", ("island", "mountain", "coastal", "inland"), bare=True),
        Kind("city", "town", ("harbour", "market", "hillside", "mining", "walled"), bare=True),
        Kind("river", "waterway", ("broad", "swift", "winding", "navigable")),
        Kind(
            "person",
            "",
            (
                *("film director", "actor", "composer", "novelist", "poet", "historian", "engineer", "merchant"),
                *("politician", "sea captain", "singer", "explorer", "scholar"),
            ),
            bare=True,
        ),
        Kind("company", "firm", ("publishing", "shipbuilding", "recording", "textile", "brewing", "clock"), bare=True),
        Kind("university", "academy", ("public", "private", "technical", "medical"), bare=True),
        Kind("book", "volume", ("adventure", "history", "poetry", "mystery", "travel")),
        Kind("film", "picture", ("drama", "comedy", "crime", "war", "silent")),
        Kind("band", "group", ("folk", "jazz", "rock", "dance")),
        Kind("album", "disc", ("folk", "jazz", "rock", "dance")),
        Kind("ship", "vessel", ("cargo", "passenger", "sailing", "research")),
    )
}


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation and all its wording.

    `{o}` stands for the object in a sentence, `{He}` and `{His}` for a person's pronouns; `{}` in a question for what
    it is asked about, which is the subject in `ask` and `noun`, the object in `ask_back` and `noun_back`.
    """

    name: str
    subject: str
    object: str
    cue: str
    """The word that every plain sentence of this relation contains."""
    says: tuple[str, ...]
    ask: tuple[str, ...]
    noun: str = ""
    """The object as a phrase, for longer chains; only objects with a page have one."""
    ask_back: tuple[str, ...] = ()
    noun_back: str = ""
    gap_cue: str = ""
    """The word that reworded pages use in place of the cue; "" when they use the cue too."""
    gap_says: tuple[str, ...] = ()

    def query_words(self, *, back: bool, reworded: bool) -> str:
        """Return what a query adds to a name: the page's cue and, for a step back, the kind of page that is sought."""
        cue = self.gap_cue if reworded and self.gap_cue else self.cue
        noun = KINDS[self.subject].noun(reworded=reworded) if back and self.subject != "person" else ""
        return f"{cue} {noun}".rstrip()


_COUNTRY = (
    Relation(
        "capital",
        "country",
        "city",
        cue="capital",
        says=("Its capital is {o}.", "The capital is {o}.", "The capital city is {o}."),
        gap_cue="government",
        gap_says=("The seat of government is {o}.", "Its government sits in {o}."),
        ask=("What is the capital of {}?", "Which city is the capital of {}?"),
        noun="the capital of {}",
    ),
    Relation(
        "president",
        "country",
        "person",
        cue="president",
        says=("Its first president was {o}.", "The first president was {o}.", "It elected as its first president {o}."),
        gap_cue="state",
        gap_says=("The first head of state was {o}.", "Its first head of state was {o}."),
        ask=("Who was the first president of {}?",),
        noun="the first president of {}",
        ask_back=("Which country had {} as its first president?", "Of which country was {} the first president?"),
        noun_back="the country whose first president was {}",
    ),
    Relation(
        "language",
        "country",
        WORD,
        cue="language",
        says=("The official language is {o}.", "Its main language is {o}.", "The language of the courts is {o}."),
        ask=("What is the official language of {}?", "Which language is official in {}?"),
    ),
    Relation(
        "currency",
        "country",
        WORD,
        cue="currency",
        says=("The currency is the {o}.", "Its currency is the {o}.", "The common currency is the {o}."),
        ask=("What is the currency of {}?", "Which currency is used in {}?"),
    ),
    Relation(
        "independence year",
        "country",
        YEAR,
        cue="independence",
        says=("It gained independence in {o}.", "Its independence dates from {o}.", "Independence came in {o}."),
        ask=("In what year did {} gain independence?", "When did {} gain independence?"),
    ),
    Relation(
        "country population",
        "country",
        NUMBER,
        cue="population",
        says=("Its population is {o}.", "The population is {o}.", "At the last count its population was {o}."),
        ask=("What is the population of {}?", "How large is the population of {}?"),
    ),
)

_CITY = (
    Relation(
        "country",
        "city",
        "country",
        cue="country",
        says=("It lies in the country of {o}.", "Its country is {o}.", "It belongs to the country of {o}."),
        gap_cue="nation",
        gap_says=("It lies in the nation of {o}.", "It is part of the nation of {o}."),
        ask=("In which country is {}?", "Which country is {} in?"),
        noun="the country of {}",
    ),
    Relation(
        "river",
        "city",
        "river",
        cue="stands",
        says=("It stands on {o}.", "The old quarter stands on {o}.", "It stands on the banks of {o}."),
        ask=("On which river does {} stand?", "Which river does {} stand on?"),
        noun="the river that runs past {}",
    ),
    Relation(
        "city founding year",
        "city",
        YEAR,
        cue="founded",
        says=("It was founded in {o}.", "Founded in {o}, it grew quickly.", "Traders founded it in {o}."),
        gap_cue="settled",
        gap_says=("It was first settled in {o}.", "It was settled by traders in {o}."),
        ask=("In what year was {} founded?", "When was {} founded?"),
    ),
    Relation(
        "city population",
        "city",
        NUMBER,
        cue="population",
        says=("Its population is {o}.", "The population is {o}.", "It has a population of {o}."),
        ask=("What is the population of {}?", "How large is the population of {}?"),
    ),
    Relation(
        "mayor",
        "city",
        "person",
        cue="mayor",
        says=("Its longest-serving mayor was {o}.", "The post of mayor was held longest by {o}."),
        gap_cue="burgomaster",
        gap_says=("Its longest-serving burgomaster was {o}.", "The post of burgomaster was held longest by {o}."),
        ask=("Who was the longest-serving mayor of {}?",),
        noun="the longest-serving mayor of {}",
        ask_back=("Which city had {} as its longest-serving mayor?",),
        noun_back="the city whose longest-serving mayor was {}",
    ),
    Relation(
        "statue",
        "city",
        "person",
        cue="statue",
        says=(
            "The main square has a statue of {o}.",
            "It is known for its statue of {o}.",
            "It put up a statue of {o}.",
        ),
        gap_cue="monument",
        gap_says=("The main square has a monument to {o}.", "It is known for its monument to {o}."),
        ask=("Whose statue stands in {}?", "Who is shown by the statue in {}?"),
        noun="the person whose statue is in {}",
        ask_back=("Which city has a statue of {}?", "In which city is there a statue of {}?"),
        noun_back="the city with a statue of {}",
    ),
)

_RIVER = (
    Relation(
        "source",
        "river",
        "country",
        cue="rises",
        says=("It rises in {o}.", "It rises in the hills of {o}.", "It rises from springs in {o}."),
        gap_cue="headwaters",
        gap_says=("Its headwaters are in {o}.", "The headwaters lie in {o}."),
        ask=("In which country does {} rise?",),
        noun="the country of origin of {}",
        ask_back=("Which river rises in {}?",),
        noun_back="the river that rises in {}",
    ),
    Relation(
        "mouth",
        "river",
        "city",
        cue="mouth",
        says=("Its mouth is at {o}.", "The mouth is at {o}.", "At its mouth lies {o}."),
        gap_cue="empties",
        gap_says=("It empties into the sea at {o}.", "It empties into the bay at {o}."),
        ask=("Which city lies at the mouth of {}?",),
        noun="the city at the mouth of {}",
    ),
    Relation(
        "length",
        "river",
        NUMBER,
        cue="length",
        says=("Its length is {o}.", "It has a length of {o}.", "Its full length is {o}."),
        ask=("How long is {}?", "What is the length of {}?"),
    ),
    Relation(
        "explorer",
        "river",
        "person",
        cue="explored",
        says=("It was first explored by {o}.", "First explored by {o}.", "Its upper course was explored by {o}."),
        gap_cue="charted",
        gap_says=("It was first charted by {o}.", "Its upper course was charted by {o}."),
        ask=("Who explored {}?", "By whom was {} explored?"),
        noun="the explorer of {}",
        ask_back=("Which river was explored by {}?", "Which river did {} explore?"),
        noun_back="the river explored by {}",
    ),
    Relation(
        "bridge year",
        "river",
        YEAR,
        cue="bridge",
        says=("The first bridge over it was finished in {o}.", "Its oldest bridge dates from {o}."),
        ask=("In what year was the first bridge over {} finished?", "From what year is the oldest bridge over {}?"),
    ),
)

_PERSON = (
    Relation(
        "birthplace",
        "person",
        "city",
        cue="born",
        says=(
            "{He} was born in {o}.",
            "Born in {o}, {he} came from a large family.",
            "{He} was born and raised in {o}.",
        ),
        gap_cue="hailed",
        gap_says=("Like both parents, {he} hailed from {o}.", "{His} family hailed from {o}, as {he} did."),
        ask=("Where was {} born?", "In which city was {} born?"),
        noun="the birthplace of {}",
        ask_back=("Who was born in {}?", "Which person was born in {}?"),
        noun_back="the person born in {}",
    ),
    Relation(
        "birth year",
        "person",
        YEAR,
        cue="birth",
        says=("{His} year of birth was {o}.", "The year of {his} birth was {o}.", "{His} birth is dated to {o}."),
        ask=("In what year was {} born?", "When was {} born?"),
    ),
    Relation(
        "spouse",
        "person",
        "person",
        cue="married",
        says=("{He} was married to {o}.", "{He} married {o}.", "{He} later married {o}."),
        gap_cue="wed",
        gap_says=("{He} wed {o}.", "In middle age {he} wed {o}."),
        ask=("Who was {} married to?", "To whom was {} married?"),
        noun="the spouse of {}",
    ),
    Relation(
        "university",
        "person",
        "university",
        cue="studied",
        says=("{He} studied at {o}.", "For a time {he} studied at {o}.", "{He} studied law at {o}."),
        gap_cue="schooled",
        gap_says=("{He} was schooled at {o}.", "Schooled at {o}, {he} took up the work early."),
        ask=("Where did {} study?", "At which university did {} study?"),
        noun="the university attended by {}",
        ask_back=("Who studied at {}?", "Which person studied at {}?"),
        noun_back="the person who studied at {}",
    ),
    Relation(
        "teacher",
        "person",
        "person",
        cue="taught",
        says=("{He} was taught by {o}.", "{He} was first taught by {o}.", "{He} was patiently taught by {o}."),
        gap_cue="apprenticed",
        gap_says=("{He} was apprenticed to {o}.", "As a child {he} was apprenticed to {o}."),
        ask=("Who taught {}?", "By whom was {} taught?"),
        noun="the teacher of {}",
        ask_back=("Who was taught by {}?", "Which person was taught by {}?"),
        noun_back="the pupil of {}",
    ),
    Relation(
        "place of death",
        "person",
        "city",
        cue="died",
        says=("{He} died peacefully in {o}.", "{He} died at home in {o}.", "{He} died after an illness in {o}."),
        gap_cue="buried",
        gap_says=("{He} was buried with honours in {o}.", "{He} was buried at night in {o}."),
        ask=("Where did {} die?", "In which city did {} die?"),
        noun="the place of death of {}",
        ask_back=("Who died in {}?", "Which person died in {}?"),
        noun_back="the person who died in {}",
    ),
)

_COMPANY = (
    Relation(
        "founder",
        "company",
        "person",
        cue="founded",
        says=(
            "It was founded by {o}.",
            "Founded by {o}, it is still independent.",
            "It was founded on borrowed money by {o}.",
        ),
        gap_cue="established",
        gap_says=("It was established by {o}.", "Established by {o}, it is still independent."),
        ask=("Who founded {}?", "Who was the founder of {}?"),
        noun="the founder of {}",
        ask_back=("Which company was founded by {}?", "Which company did {} found?"),
        noun_back="the company founded by {}",
    ),
    Relation(
        "headquarters",
        "company",
        "city",
        cue="headquarters",
        says=("Its headquarters are in {o}.", "It has its headquarters in {o}.", "It moved its headquarters to {o}."),
        gap_cue="based",
        gap_says=("It is based in {o}.", "It has always been based in {o}."),
        ask=("In which city are the headquarters of {}?", "Where are the headquarters of {}?"),
        noun="the city with the headquarters of {}",
        ask_back=("Which company has its headquarters in {}?",),
        noun_back="the company with headquarters in {}",
    ),
    Relation(
        "company founding year",
        "company",
        YEAR,
        cue="founding",
        says=("The year of its founding was {o}.", "Its founding dates from {o}.", "The founding papers are from {o}."),
        ask=("In what year was {} founded?", "When was {} founded?"),
    ),
    Relation(
        "chief executive",
        "company",
        "person",
        cue="executive",
        says=("Its first chief executive was {o}.", "It took as its first chief executive {o}."),
        gap_cue="managed",
        gap_says=("It was at first managed by {o}.", "In its early years it was managed by {o}."),
        ask=("Who was the first chief executive of {}?",),
        noun="the first chief executive of {}",
        ask_back=("Which company had {} as its first chief executive?",),
        noun_back="the company whose first chief executive was {}",
    ),
    Relation(
        "staff",
        "company",
        NUMBER,
        cue="employs",
        says=("It employs {o} people.", "Today it employs {o} people.", "With its branches it employs {o} people."),
        ask=("How many people does {} employ?",),
    ),
)

_UNIVERSITY = (
    Relation(
        "location",
        "university",
        "city",
        cue="located",
        says=("It is located in {o}.", "The main building is located in {o}.", "It is located near the centre of {o}."),
        gap_cue="campus",
        gap_says=("Its campus lies in {o}.", "The campus is in {o}."),
        ask=("In which city is {} located?", "Where is {} located?"),
        noun="the home city of {}",
        ask_back=("Which university is located in {}?",),
        noun_back="the university located in {}",
    ),
    Relation(
        "opening year",
        "university",
        YEAR,
        cue="opened",
        says=("It opened in {o}.", "It opened its gates in {o}.", "It opened to students in {o}."),
        ask=("In what year did {} open?", "When did {} open?"),
    ),
    Relation(
        "rector",
        "university",
        "person",
        cue="rector",
        says=("Its longest-serving rector was {o}.", "The post of rector was held longest by {o}."),
        gap_cue="provost",
        gap_says=("Its longest-serving provost was {o}.", "The post of provost was held longest by {o}."),
        ask=("Who was the longest-serving rector of {}?",),
        noun="the longest-serving rector of {}",
        ask_back=("Which university had {} as its longest-serving rector?",),
        noun_back="the university whose longest-serving rector was {}",
    ),
    Relation(
        "library",
        "university",
        NUMBER,
        cue="library",
        says=("Its library holds {o} items.", "The library has {o} items.", "In its library there are {o} items."),
        ask=("How many items does the library of {} hold?",),
    ),
    Relation(
        "benefactor",
        "university",
        "person",
        cue="funded",
        says=("It was funded by {o}.", "It was first funded by {o}.", "The great hall was funded by {o}."),
        gap_cue="endowed",
        gap_says=("It was endowed by {o}.", "The great hall was endowed by {o}."),
        ask=("Who funded {}?", "By whom was {} funded?"),
        noun="the person who funded {}",
        ask_back=("Which university was funded by {}?", "Which university did {} fund?"),
        noun_back="the university funded by {}",
    ),
)

_BOOK = (
    Relation(
        "author",
        "book",
        "person",
        cue="written",
        says=("It was written by {o}.", "Written by {o}, it sold slowly at first.", "It was written in exile by {o}."),
        gap_cue="penned",
        gap_says=("It was penned by {o}.", "Penned by {o}, it sold slowly at first."),
        ask=("Who wrote {}?", "Who is the author of {}?"),
        noun="the author of {}",
        ask_back=("Which book was written by {}?", "Which book did {} write?"),
        noun_back="the book written by {}",
    ),
    Relation(
        "publication year",
        "book",
        YEAR,
        cue="published",
        says=("It was published in {o}.", "It was first published in {o}.", "It was published without notice in {o}."),
        gap_cue="print",
        gap_says=("It first saw print in {o}.", "It went into print in {o}."),
        ask=("In what year was {} published?", "When was {} published?"),
    ),
    Relation(
        "publisher",
        "book",
        "company",
        cue="publisher",
        says=("Its publisher is {o}.", "The publisher is {o}.", "Its first publisher was {o}."),
        gap_cue="issued",
        gap_says=("It was issued by {o}.", "A first edition was issued by {o}."),
        ask=("Which company is the publisher of {}?", "Who is the publisher of {}?"),
        noun="the publisher of {}",
        ask_back=("Which book has {} as its publisher?",),
        noun_back="the book whose publisher is {}",
    ),
    Relation(
        "setting",
        "book",
        "city",
        cue="set",
        says=("It is set in {o}.", "Most of it is set in {o}.", "It is set in and around {o}."),
        gap_cue="unfolds",
        gap_says=("The plot unfolds in {o}.", "Most of it unfolds in {o}."),
        ask=("In which city is {} set?", "Where is {} set?"),
        noun="the setting of {}",
        ask_back=("Which book is set in {}?",),
        noun_back="the book set in {}",
    ),
    Relation(
        "dedication",
        "book",
        "person",
        cue="dedicated",
        says=("It is dedicated to {o}.", "The first edition is dedicated to {o}.", "It was dedicated in verse to {o}."),
        gap_cue="tribute",
        gap_says=("It opens with a tribute to {o}.", "The preface is a tribute to {o}."),
        ask=("To whom is {} dedicated?", "Who is {} dedicated to?"),
        noun="the person honoured in the dedication of {}",
        ask_back=("Which book is dedicated to {}?",),
        noun_back="the book dedicated to {}",
    ),
)

_FILM = (
    Relation(
        "director",
        "film",
        "person",
        cue="directed",
        says=("It was directed by {o}.", "Directed by {o}, it took two years.", "It was directed and edited by {o}."),
        gap_cue="helmed",
        gap_says=("It was helmed by {o}.", "Helmed by {o}, it took two years."),
        ask=("Who directed {}?", "Who was the director of {}?"),
        noun="the director of {}",
        ask_back=("Which film was directed by {}?", "Which film did {} direct?"),
        noun_back="the film directed by {}",
    ),
    Relation(
        "star",
        "film",
        "person",
        cue="stars",
        says=("It stars {o}.", "Once again it stars {o}.", "In the lead it stars {o}."),
        gap_cue="headlined",
        gap_says=("It was headlined by {o}.", "The cast was headlined by {o}."),
        ask=("Who starred in {}?", "Who was the star of {}?"),
        noun="the star of {}",
        ask_back=("Which film stars {}?", "Which film did {} star in?"),
        noun_back="the film starring {}",
    ),
    Relation(
        "composer",
        "film",
        "person",
        cue="music",
        says=("The music is by {o}.", "It has music by {o}.", "It was given its music by {o}."),
        gap_cue="scored",
        gap_says=("It was scored by {o}.", "It was scored in one month by {o}."),
        ask=("Who wrote the music of {}?", "Who composed the music for {}?"),
        noun="the composer of the music of {}",
        ask_back=("Which film has music by {}?",),
        noun_back="the film with music by {}",
    ),
    Relation(
        "basis",
        "film",
        "book",
        cue="based",
        says=("It is based on {o}.", "The script is based on {o}.", "It is loosely based on {o}."),
        gap_cue="adapted",
        gap_says=("It was adapted from {o}.", "The script was adapted from {o}."),
        ask=("Which book is {} based on?", "On which book is {} based?"),
        noun="the book behind {}",
        ask_back=("Which film is based on {}?",),
        noun_back="the film based on {}",
    ),
    Relation(
        "film location",
        "film",
        "city",
        cue="filmed",
        says=("It was filmed in {o}.", "Most scenes were filmed in {o}.", "It was filmed on the streets of {o}."),
        gap_cue="shot",
        gap_says=("It was shot in {o}.", "Most scenes were shot in {o}."),
        ask=("In which city was {} filmed?", "Where was {} filmed?"),
        noun="the filming location of {}",
        ask_back=("Which film was filmed in {}?",),
        noun_back="the film that was filmed in {}",
    ),
    Relation(
        "film release year",
        "film",
        YEAR,
        cue="released",
        says=(
            "It was released in {o}.",
            "It was released in the spring of {o}.",
            "After delays it was released in {o}.",
        ),
        gap_cue="premiered",
        gap_says=("It premiered in {o}.", "After delays it premiered in {o}."),
        ask=("In what year was {} released?", "When was {} released?"),
    ),
)

_BAND = (
    Relation(
        "origin",
        "band",
        "city",
        cue="formed",
        says=("It was formed in {o}.", "Friends formed it in {o}.", "It was formed at a school in {o}."),
        gap_cue="originated",
        gap_says=("It originated in {o}.", "It originated at a school in {o}."),
        ask=("In which city was {} formed?", "Where was {} formed?"),
        noun="the home city of {}",
        ask_back=("Which band was formed in {}?",),
        noun_back="the band formed in {}",
    ),
    Relation(
        "first concert",
        "band",
        YEAR,
        cue="concert",
        says=(
            "Its first concert was in {o}.",
            "It gave its first concert in {o}.",
            "The first concert took place in {o}.",
        ),
        ask=("In what year was the first concert of {}?", "When did {} give its first concert?"),
    ),
    Relation(
        "singer",
        "band",
        "person",
        cue="sung",
        says=("Its songs were sung by {o}.", "Most songs were sung by {o}.", "All its hits were sung by {o}."),
        gap_cue="fronted",
        gap_says=("It was fronted by {o}.", "On stage it was fronted by {o}."),
        ask=("Who sang the songs of {}?", "By whom were the songs of {} sung?"),
        noun="the lead voice of {}",
        ask_back=("Which band had its songs sung by {}?",),
        noun_back="the band with songs sung by {}",
    ),
    Relation(
        "label",
        "band",
        "company",
        cue="signed",
        says=("It was signed to {o}.", "It was soon signed to {o}.", "After two years it was signed to {o}."),
        gap_cue="contract",
        gap_says=("It was under contract to {o}.", "It had a contract with {o}."),
        ask=("Which company was {} signed to?", "To which company was {} signed?"),
        noun="the label of {}",
        ask_back=("Which band was signed to {}?",),
        noun_back="the band signed to {}",
    ),
    Relation(
        "influence",
        "band",
        "band",
        cue="inspired",
        says=("It was inspired by {o}.", "Its sound was inspired by {o}.", "Early songs were inspired by {o}."),
        gap_cue="modelled",
        gap_says=("It was modelled on {o}.", "Its sound was modelled on {o}."),
        ask=("Which band inspired {}?", "By which band was {} inspired?"),
        noun="the band that inspired {}",
        ask_back=("Which band was inspired by {}?", "Which band did {} inspire?"),
        noun_back="the band inspired by {}",
    ),
)

_ALBUM = (
    Relation(
        "performer",
        "album",
        "band",
        cue="recorded",
        says=("It was recorded by {o}.", "Recorded by {o}, it has nine tracks.", "It was recorded in one week by {o}."),
        gap_cue="performed",
        gap_says=("It was performed by {o}.", "Performed by {o}, it has nine tracks."),
        ask=("Which band recorded {}?", "By which band was {} recorded?"),
        noun="the band that recorded {}",
        ask_back=("Which album was recorded by {}?", "Which album did {} record?"),
        noun_back="the album recorded by {}",
    ),
    Relation(
        "album release year",
        "album",
        YEAR,
        cue="released",
        says=(
            "It was released in {o}.",
            "It was released in the autumn of {o}.",
            "After delays it was released in {o}.",
        ),
        gap_cue="shops",
        gap_says=("It reached the shops in {o}.", "It came to the shops in {o}."),
        ask=("In what year was {} released?", "When was {} released?"),
    ),
    Relation(
        "producer",
        "album",
        "person",
        cue="produced",
        says=("It was produced by {o}.", "It was produced and mixed by {o}.", "It was produced at night by {o}."),
        gap_cue="overseen",
        gap_says=("The sessions were overseen by {o}.", "The mixing was overseen by {o}."),
        ask=("Who produced {}?", "Who was the producer of {}?"),
        noun="the producer of {}",
        ask_back=("Which album was produced by {}?", "Which album did {} produce?"),
        noun_back="the album produced by {}",
    ),
    Relation(
        "soundtrack",
        "album",
        "film",
        cue="soundtrack",
        says=("It is the soundtrack of {o}.", "It was made as the soundtrack of {o}."),
        gap_cue="accompany",
        gap_says=("It was made to accompany {o}.", "Its songs accompany {o}."),
        ask=("Of which film is {} the soundtrack?", "For which film is {} the soundtrack?"),
        noun="the film with the soundtrack {}",
        ask_back=("Which album is the soundtrack of {}?",),
        noun_back="the soundtrack of {}",
    ),
    Relation(
        "studio",
        "album",
        "city",
        cue="studio",
        says=("It was made in a studio in {o}.", "The studio was in {o}.", "The band used a small studio in {o}."),
        gap_cue="taped",
        gap_says=("It was taped in {o}.", "Most songs were taped in {o}."),
        ask=("In which city was the studio where {} was made?", "In which city is the studio of {}?"),
        noun="the city with the studio of {}",
        ask_back=("Which album was made in a studio in {}?",),
        noun_back="the album made in a studio in {}",
    ),
)

_SHIP = (
    Relation(
        "builder",
        "ship",
        "company",
        cue="built",
        says=("It was built by {o}.", "Built by {o}, it has a steel hull.", "It was built in eight months by {o}."),
        gap_cue="constructed",
        gap_says=("It was constructed by {o}.", "Constructed by {o}, it has a steel hull."),
        ask=("Which company built {}?", "By which company was {} built?"),
        noun="the builder of {}",
        ask_back=("Which ship was built by {}?", "Which ship did {} build?"),
        noun_back="the ship built by {}",
    ),
    Relation(
        "launch year",
        "ship",
        YEAR,
        cue="launched",
        says=(
            "It was launched in {o}.",
            "It was launched in heavy rain in {o}.",
            "It was launched before a crowd in {o}.",
        ),
        ask=("In what year was {} launched?", "When was {} launched?"),
    ),
    Relation(
        "namesake",
        "ship",
        "person",
        cue="named",
        says=("It is named after {o}.", "It was named after {o}.", "The owners named it after {o}."),
        gap_cue="commemorates",
        gap_says=("It commemorates {o}.", "A plaque on deck commemorates {o}."),
        ask=("After whom is {} named?", "Who is {} named after?"),
        noun="the namesake of {}",
        ask_back=("Which ship is named after {}?",),
        noun_back="the ship named after {}",
    ),
    Relation(
        "captain",
        "ship",
        "person",
        cue="captain",
        says=("Its first captain was {o}.", "The first captain was {o}.", "It had as its first captain {o}."),
        gap_cue="skipper",
        gap_says=("Its first skipper was {o}.", "The first skipper was {o}."),
        ask=("Who was the first captain of {}?",),
        noun="the first captain of {}",
        ask_back=("Which ship had {} as its first captain?", "Of which ship was {} the first captain?"),
        noun_back="the ship whose first captain was {}",
    ),
    Relation(
        "home port",
        "ship",
        "city",
        cue="port",
        says=("Its home port is {o}.", "The home port is {o}.", "It sails from its home port of {o}."),
        gap_cue="berth",
        gap_says=("Its usual berth is at {o}.", "It has a berth at {o}."),
        ask=("What is the home port of {}?", "Which city is the home port of {}?"),
        noun="the home port of {}",
        ask_back=("Which ship has {} as its home port?", "Which ship has its home port in {}?"),
        noun_back="the ship with its home port in {}",
    ),
)

RELATIONS = {
    relation.name: relation
    for group in (*(_COUNTRY, _CITY, _RIVER, _PERSON, _COMPANY, _UNIVERSITY, _BOOK, _FILM, _BAND, _ALBUM, _SHIP),)
    for relation in group
}
"""Every relation by name, in the order in which the kinds are listed."""


def english() -> frozenset[str]:
    """Return every lower-case word that the wording itself uses, which no name may be."""
    rows = [kind.name + " " + kind.gap_noun + " " + " ".join(kind.sorts) for kind in KINDS.values()]
    for relation in RELATIONS.values():
        rows += [*relation.says, *relation.gap_says, *relation.ask, *relation.ask_back, relation.noun]
        rows += [relation.noun_back]
    return frozenset(re.findall(r"[a-z]+", " ".join(rows).lower()))


def with_jargon(coin: Callable[[], str], *, seed: int | None = None) -> dict[str, Relation]:
    """Return the relations with another word wherever reworded pages would use an unexpected one ("helmed").

    What such a page means cannot be known beforehand, only read from a skill that says it.

    Args:
        coin: returns a new word at each call; it is put into lower case.
        seed: None to coin all words; else it decides which half of them are coined, and which of the unexpected words
            of all relations the others get.
    """
    if seed is None:
        return {name: _reworded(relation, coin) for name, relation in RELATIONS.items()}
    rng = np.random.default_rng([seed, 1])
    cues = [relation.gap_cue for relation in RELATIONS.values() if relation.gap_cue]
    others = iter(rng.permutation(cues).tolist())
    return {
        name: _reworded(relation, coin if rng.random() < 0.5 else others.__next__)
        for name, relation in RELATIONS.items()
    }


def _reworded(relation: Relation, coin: Callable[[], str]) -> Relation:
    cue = re.compile(rf"\b{re.escape(relation.gap_cue)}\b")
    says = [template for template in relation.gap_says if cue.search(template)]
    if not relation.gap_cue or not says:
        return replace(relation, gap_cue="", gap_says=())
    word = coin().lower()
    return replace(relation, gap_cue=word, gap_says=tuple(cue.sub(word, template) for template in says))
