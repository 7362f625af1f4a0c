"""Draw the facts of a fictional world: who is born where, who directed what, and when.

Objects fit their subjects: an author is old enough to have written the book, a film comes after the book it is based
on, a capital lies in its country.  Popularity is skewed, so that some people and cities are named on many pages.

    world = draw_world(rng, Words(seed=0, rng=rng, reserved=frozenset()), entities=3000)
    world.entities, world.facts

Nothing here is real, and nothing here is worded: see `prose` for pages and `questions` for questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from sesa_env.corpora.atlas.names import Words
from sesa_env.corpora.atlas.relations import KINDS

SHARES = {
    "country": 0.012,
    "city": 0.14,
    "river": 0.05,
    "company": 0.08,
    "university": 0.035,
    "book": 0.12,
    "film": 0.13,
    "band": 0.045,
    "album": 0.05,
    "ship": 0.038,
}
"""Share of each kind among the entities; the rest, 30 %, are people."""

ALIAS_SHARE = 0.15
SHARED_NAME_SHARE = 0.08
REWORDED_SHARE = 0.35
"""Of the entities: those with a second name, those that share their name, those with pages in unexpected words."""

_WORKING_AGE = (22, 70)
# An object is entry `n * u ** _SKEW` of its list, u uniform: the first tenth is named as often as the last third.
_SKEW = 1.6
_TRIES = 60

_PATTERNS = {
    "publishing": ("{} Press", "{} House"),
    "shipbuilding": ("{} Shipyard", "{} Yards"),
    "recording": ("{} Sound", "{} Tapes"),
    "textile": ("{} Mills", "{} Weavers"),
    "brewing": ("{} Brewery", "{} Cellars"),
    "clock": ("{} Works", "{} Brothers"),
    "university": ("{} College", "{} Institute"),
    "book": ("{}", "The {} Letters", "The House of {}", "The Keeper of {}", "Winter in {}"),
    "film": ("{}", "The {} Affair", "Return to {}", "Night over {}", "The Last {}"),
    "band": ("{}", "The {} Four", "The {} Trio", "The {} Hounds"),
    "album": ("{}", "Songs for {}", "Live at {}", "The {} Sessions"),
    "ship": ("{}", "Spirit of {}", "Lady {}"),
}
"""How a work or firm gets its name from a word: by its sort where that is listed, else by its kind."""

_ROSTER = {
    "person": (
        *("film director", "actor", "composer", "novelist", "poet", "historian", "engineer", "merchant"),
        *("politician", "sea captain", "singer", "explorer", "scholar", "film director", "actor", "composer"),
        *("novelist", "merchant", "politician", "actor", "novelist", "politician", "film director", "poet"),
    ),
    "company": (
        *("publishing", "shipbuilding", "recording", "textile", "brewing", "clock"),
        *("publishing", "shipbuilding", "recording", "publishing"),
    ),
}
"""Kinds whose sorts are dealt in turn, because others depend on there being enough of each."""

_MODERN = ("film director", "actor", "composer", "singer")
"""Born late enough for films and sound recordings."""

_DATED = ("book", "film", "album", "ship")
_SHARERS = ("city", "river", "band", *_DATED)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is so in the fictional world, stated on the page of its subject and nowhere else.

    `subject` is the title of an entity; `object` a title too, or a year, a number or a word that has no page.
    """

    subject: str
    relation: str
    object: str


@dataclass(frozen=True, slots=True)
class Entity:
    """Someone or something fictional that has a page.

    `title` is unique; `name` is not when `qualifier` is set, and the title is then "name (qualifier)".  Aliases are
    unique.  `sort` narrows the kind (a "drama" film, a "poet").  `reworded` pages avoid the words of the questions.
    """

    title: str
    name: str
    kind: str
    sort: str
    qualifier: str = ""
    aliases: tuple[str, ...] = ()
    pronoun: str = "it"
    reworded: bool = False

    @property
    def full_name(self) -> str:
        """The name, and the qualifier that tells it from a namesake."""
        return f"{self.name} {self.qualifier}".rstrip()


@dataclass(frozen=True, slots=True)
class World:
    """All entities of a fictional world in random order, and all facts in the order of their subjects."""

    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]


@dataclass(eq=False, slots=True)
class _Draft:
    """An entity while it is drawn; facts point at drafts, because titles are settled last."""

    kind: str
    sort: str
    name: str = ""
    qualifier: str = ""
    aliases: tuple[str, ...] = ()
    year: int = 0
    reworded: bool = False
    pronoun: str = "it"
    facts: list[tuple[str, _Draft | str]] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.name} ({self.qualifier})" if self.qualifier else self.name

    def add(self, relation: str, target: _Draft | str | None) -> None:
        """State a fact; no fitting object, no fact."""
        if target is not None:
            self.facts.append((relation, target))

    def settled(self) -> Entity:
        return Entity(
            title=self.title,
            name=self.name,
            kind=self.kind,
            sort=self.sort,
            qualifier=self.qualifier,
            aliases=self.aliases,
            pronoun=self.pronoun,
            reworded=self.reworded,
        )


def draw_world(rng: np.random.Generator, words: Words, *, entities: int) -> World:
    """Draw a fictional world of that many entities; equal generators and words give equal worlds."""
    drafts = _Artist(rng, words).draw(entities)
    order = [drafts[i] for i in rng.permutation(len(drafts)).tolist()]
    return World(
        entities=tuple(draft.settled() for draft in order),
        facts=tuple(
            Fact(draft.title, relation, target.title if isinstance(target, _Draft) else target)
            for draft in order
            for relation, target in draft.facts
        ),
    )


class _Artist:
    """Draws kind by kind, in an order in which all that a fact needs is there before it is needed."""

    def __init__(self, rng: np.random.Generator, words: Words) -> None:
        self._rng = rng
        self._words = words
        self._of: dict[str, list[_Draft]] = {}

    def draw(self, entities: int) -> list[_Draft]:
        counts = {kind: max(2, round(share * entities)) for kind, share in SHARES.items()}
        counts["person"] = entities - sum(counts.values())
        self._of = {kind: [_Draft(kind, self._sort(kind, i)) for i in range(n)] for kind, n in counts.items()}
        for part in (self._lands, self._universities, self._people, self._companies, self._books, self._films):
            part()
        for part in (self._bands, self._albums, self._ships, self._offices):
            part()
        drafts = [draft for kind in counts for draft in self._of[kind]]
        self._share_names(drafts)
        self._finish(drafts)
        return drafts

    # Lands and learning.

    def _lands(self) -> None:
        countries, cities, rivers = self._of["country"], self._of["city"], self._of["river"]
        for place in (*countries, *cities, *rivers):
            place.name = self._words.fresh()
        within: list[list[_Draft]] = [[] for _ in countries]
        for i, city in enumerate(cities):
            home = i if i < len(countries) else self._below(len(countries))
            within[home].append(city)
            city.year = self._between(820, 1740)
            city.add("country", countries[home])
            city.add("city founding year", str(city.year))
            city.add("city population", self._amount(3_000, 900_000))
        for country, inside in zip(countries, within, strict=True):
            country.year = self._between(1810, 1950)
            country.add("capital", self._one(inside))
            country.add("language", self._words.fresh())
            country.add("currency", self._words.fresh())
            country.add("independence year", str(country.year))
            country.add("country population", self._amount(900_000, 40_000_000))
        self._run_rivers(cities, rivers)

    def _run_rivers(self, cities: list[_Draft], rivers: list[_Draft]) -> None:
        at_the_sea = dict(zip(self._rng.permutation(len(cities)).tolist(), rivers, strict=False))
        for i, city in enumerate(cities):
            river = at_the_sea.get(i)
            if river is not None:
                river.add("mouth", city)
                city.add("river", river)
            elif self._chance(0.6):
                city.add("river", self._one(rivers))
        for river in rivers:
            river.add("source", self._one(self._of["country"]))
            river.add("length", f"{self._between(40, 2400)} km")
            river.add("bridge year", str(self._between(1750, 1930)))

    def _universities(self) -> None:
        for university in self._of["university"]:
            self._name(university)
            university.year = self._between(1400, 1790)
            university.add("location", self._some(university, "city"))
            university.add("opening year", str(university.year))
            university.add("library", self._amount(20_000, 900_000))

    # People.

    def _people(self) -> None:
        people = self._of["person"]
        self._name_people(people)
        for person in people:
            person.pronoun = self._one(("he", "she"))
            person.year = self._between(1880, 1945) if person.sort in _MODERN else self._between(1785, 1925)
            person.add("birthplace", self._some(person, "city"))
            person.add("birth year", str(person.year))
            person.add("university", self._some(person, "university"))
            person.add("place of death", self._some(person, "city"))
        for person in people:
            if self._chance(0.6):
                person.add("teacher", self._some(person, "person", born=(person.year - 45, person.year - 12)))
        self._marry(people)

    def _name_people(self, people: list[_Draft]) -> None:
        surnames = [self._words.fresh() for _ in range(len(people) // 3 + 1)]
        taken = {""}
        for person in people:
            while person.name in taken:
                person.name = f"{self._one(self._words.given)} {self._one(surnames)}"
            taken.add(person.name)

    def _marry(self, people: list[_Draft]) -> None:
        willing = sorted((person for person in people if self._chance(0.7)), key=lambda person: person.year)
        for one, other in zip(willing[::2], willing[1::2], strict=False):
            one.add("spouse", other)
            other.add("spouse", one)

    # What people made.

    def _companies(self) -> None:
        for company in self._of["company"]:
            self._name(company)
            self._found(company, "founder", "merchant", "engineer")
            company.add("headquarters", self._some(company, "city"))
            company.add("company founding year", str(company.year))
            company.add("staff", self._amount(30, 60_000))

    def _books(self) -> None:
        for book in self._of["book"]:
            self._name(book)
            self._found(book, "author", "novelist", "poet", "historian")
            book.add("publication year", str(book.year))
            book.add("publisher", self._some(book, "company", "publishing", born=(0, book.year)))
            book.add("setting", self._some(book, "city"))
            book.add("dedication", self._some(book, "person", born=(book.year - 90, book.year - 5)))

    def _films(self) -> None:
        for film in self._of["film"]:
            self._name(film)
            self._found(film, "director", "film director")
            film.add("star", self._worker(film, "actor"))
            film.add("composer", self._worker(film, "composer"))
            film.add("film location", self._some(film, "city"))
            film.add("film release year", str(film.year))
            if self._chance(0.55):
                film.add("basis", self._some(film, "book", born=(0, film.year - 1)))

    def _bands(self) -> None:
        for band in self._of["band"]:
            self._name(band)
            self._found(band, "singer", "singer")
            band.add("origin", self._some(band, "city"))
            band.add("first concert", str(band.year))
            band.add("label", self._some(band, "company", "recording", born=(0, band.year)))
        for band in self._of["band"]:
            if self._chance(0.75):
                band.add("influence", self._some(band, "band", born=(0, band.year - 1)))

    def _albums(self) -> None:
        with_music = {""}
        for album in self._of["album"]:
            self._name(album)
            band = self._some(album, "band")
            album.add("performer", band)
            album.year = (band.year if band else 1950) + self._between(1, 12)
            album.add("album release year", str(album.year))
            album.add("producer", self._worker(album, "composer", "singer"))
            album.add("studio", self._some(album, "city"))
            film = self._some(album, "film", born=(album.year - 1, album.year)) if self._chance(0.5) else None
            if film is not None and film.name not in with_music:
                with_music.add(film.name)
                album.add("soundtrack", film)

    def _ships(self) -> None:
        for ship in self._of["ship"]:
            self._name(ship)
            self._found(ship, "builder", "shipbuilding", kind="company")
            ship.add("launch year", str(ship.year))
            ship.add("namesake", self._some(ship, "person", born=(0, ship.year - 30)))
            ship.add("captain", self._worker(ship, "sea captain"))
            ship.add("home port", self._some(ship, "city"))

    def _offices(self) -> None:
        for country in self._of["country"]:
            country.add("president", self._worker(country, "politician"))
        for city in self._of["city"]:
            city.add("mayor", self._some(city, "person", "politician", "merchant"))
            inland = all(relation != "river" for relation, _ in city.facts)
            if inland or self._chance(0.4):
                city.add("statue", self._some(city, "person"))
        for river in self._of["river"]:
            river.add("explorer", self._some(river, "person", "explorer"))
        for company in self._of["company"]:
            born = (company.year - 20, company.year + 40)
            company.add("chief executive", self._some(company, "person", "merchant", "engineer", born=born))
        for university in self._of["university"]:
            university.add("rector", self._some(university, "person", "scholar", "historian"))
            university.add("benefactor", self._some(university, "person", "merchant", "politician"))

    def _found(self, draft: _Draft, relation: str, *sorts: str, kind: str = "person") -> None:
        """Give a draft its maker, and a year in which the maker was at work."""
        maker = self._some(draft, kind, *sorts)
        draft.add(relation, maker)
        low, high = (24, 52) if kind == "person" else (2, 25)
        draft.year = (maker.year if maker else 1900) + self._between(low, high)

    def _worker(self, draft: _Draft, *sorts: str) -> _Draft | None:
        youngest, oldest = _WORKING_AGE
        return self._some(draft, "person", *sorts, born=(draft.year - oldest, draft.year - youngest))

    def _some(self, draft: _Draft, kind: str, *sorts: str, born: tuple[int, int] | None = None) -> _Draft | None:
        """Pick an entity not yet on the draft's page, of a sort and with a year in bounds; None when none is met."""
        pool = self._pool(kind, sorts)
        taken = [draft, *(target for _, target in draft.facts)]
        for _ in range(_TRIES):
            found = pool[int(len(pool) * self._rng.random() ** _SKEW)]
            if found not in taken and (born is None or born[0] <= found.year <= born[1]):
                return found
        return None

    # Names.

    def _sort(self, kind: str, i: int) -> str:
        roster = _ROSTER.get(kind)
        return roster[i % len(roster)] if roster else self._one(KINDS[kind].sorts)

    def _name(self, draft: _Draft) -> None:
        patterns = _PATTERNS.get(draft.sort) or _PATTERNS[draft.kind]
        draft.name = self._one(patterns).format(self._words.fresh())

    def _share_names(self, drafts: list[_Draft]) -> None:
        """Give pairs of drafts one name, told apart by kind, occupation or year."""
        shuffled = [drafts[i] for i in self._rng.permutation(len(drafts)).tolist()]
        people = [draft for draft in shuffled if draft.kind == "person"]
        things = [draft for draft in shuffled if draft.kind in _SHARERS]
        for pool in (people, things):
            pairs = list(zip(pool[::2], pool[1::2], strict=False))
            for one, other in pairs[: round(SHARED_NAME_SHARE * len(drafts) / 4)]:
                self._share_name(one, other)

    def _share_name(self, one: _Draft, other: _Draft) -> None:
        marks = [_mark(one, other), _mark(other, one)]
        if marks[0] == marks[1]:
            return
        name = one.name if one.kind == "person" else self._words.fresh()
        for draft, mark in zip((one, other), marks, strict=True):
            draft.name, draft.qualifier = name, mark

    def _finish(self, drafts: list[_Draft]) -> None:
        """Add second names, and choose the pages in unexpected words."""
        for draft in drafts:
            if self._chance(ALIAS_SHARE):
                draft.aliases = (self._words.fresh(),)
            # A shared name carries its plain noun in the title, which would give a reworded page away.
            draft.reworded = not draft.qualifier and self._chance(REWORDED_SHARE)

    # Chance.

    def _pool(self, kind: str, sorts: tuple[str, ...]) -> list[_Draft]:
        key = ",".join((kind, *sorts))
        if key not in self._of:
            self._of[key] = [draft for draft in self._of[kind] if draft.sort in sorts]
        return self._of[key]

    def _below(self, high: int) -> int:
        return int(self._rng.integers(high))

    def _between(self, low: int, high: int) -> int:
        return low + self._below(high - low + 1)

    def _chance(self, share: float) -> bool:
        return bool(self._rng.random() < share)

    def _one(self, items: Sequence[_T]) -> _T:
        return items[self._below(len(items))]

    def _amount(self, low: int, high: int) -> str:
        return f"{round(low * (high / low) ** self._rng.random()):,}"


def _mark(draft: _Draft, other: _Draft) -> str:
    """What tells a draft from its namesake: occupation, kind, or kind and year; the same for both when nothing does."""
    if draft.kind == "person":
        return draft.sort
    if draft.kind != other.kind:
        return draft.kind
    return f"{draft.year} {draft.kind}" if draft.kind in _DATED else ""
