"""A challenger's lessons: from the answer backwards, page by page, to the name that the question begins with.

At every turn the player writes the chain as far as it has come, in the order in which a solver takes it and in the
words of the pages, and searches for a page that mentions its beginning.  It cannot know which pages there are: it tries
a relation that is common, and takes whatever mention the search brings up; none, and it tries again.

    Answer: Vulvubu   Searches needed: 2
    <think> Vulvubu</think><search> Vulvubu</search>                                      (its own page)
    <think> Vulvubu</think><search> Vulvubu born</search>                                 (the page of Dapur, after all)
    <think> Dapur; capital</think><search> Dapur nation town</search>                     (the page of Rehi)
    <think> Rehi; nation; capital</think><question> What is the capital of the country of Rehi?</question>

    lessons = draw_walks(classroom, 500, rng=rng)

In a world without jargon the player knows what reworded pages say, as whoever sets an examination does: it searches for
"helmed", and asks who directed.

A step that the page of its own target states ("named after ...") is read off that page without a search, at times, and
always where no page could mention the target or the searches are used up.  It is taught where it leads to one target
alone; a player cannot see that in the page, so relations of which it is seldom true are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from agents.base import Message
from agents.mini.lessons import PASSAGE_CHARS, Classroom, Lesson
from sesa_env.corpora.atlas.prose import qualified
from sesa_env.corpora.atlas.questions import Hop, word_chain
from sesa_env.corpora.atlas.relations import KINDS, RELATIONS
from sesa_env.corpora.atlas.world import Entity, Fact
from sesa_env.text import contains_answer, render_passages

MOST_HOPS, SEARCHES = 4, 4
"""Hops asked for at most, and as many searches as a game allows before the question."""
SURE_SHARE = 0.7
"""Share of searches for a mention that there is; the others are for one that is common with that kind of thing."""
BACK_SHARE, ALIAS_SHARE, KIND_SHARE = 0.25, 0.2, 0.5
"""Shares of steps read off the target's own page, of questions that begin with a second name, and of those that say
what kind of thing the first name is."""
STOP_SHARE = 0.3
"""In drills, the share of chains that end after each hop."""
ONE_WAY_SHARE = 0.5
"""A relation is asked from its object where at least this share of its facts is the only one about its object."""


def draw_walks(classroom: Classroom, count: int, *, rng: np.random.Generator) -> list[Lesson]:
    """Return up to so many lessons; a walk that does not come to a question is none.

    Args:
        classroom: the world.
        count: how many walks are tried.
        rng: decides the answers, the searches and the wording.
    """
    # A target's name is that of one entity alone, as those of a run over an Atlas are.
    targets = [entity for entity in classroom.atlas.entities if not entity.qualifier]
    walker = _Walker(classroom, rng)
    drawn = (targets[int(rng.integers(len(targets)))] for _ in range(count))
    return [lesson for target in drawn if (lesson := walker.walk(target)) is not None]


def draw_chains(classroom: Classroom, count: int, *, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return so many chains as a challenger writes them, each with the question that it then poses."""
    walker = _Walker(classroom, rng)
    targets = [title for title in classroom.entities if classroom.mentions[title]]
    return [walker.leap(classroom.entities[targets[int(rng.integers(len(targets)))]]) for _ in range(count)]


class _Walker:
    def __init__(self, classroom: Classroom, rng: np.random.Generator) -> None:
        self._classroom = classroom
        self._rng = rng
        self._one_way = _one_way(classroom.atlas.facts)
        self._common = defaultdict[str, list[Fact]](list)
        for title, entity in classroom.entities.items():
            self._common[entity.kind] += classroom.mentions[title]

    def walk(self, target: Entity) -> Lesson | None:
        """Return the walk from one answer as a conversation; None when it finds nothing, or the question says it."""
        asked, shown = int(self._rng.integers(1, MOST_HOPS + 1)), self._classroom.draw_shown()
        messages = [Message("user", f"Answer: {target.name}\nSearches needed: {asked}")]
        chain: list[Hop] = []
        known, queries, written, read = target, [target.name], target.name, set[str]()
        while True:
            found = self._classroom.search(queries[-1:])[queries[-1]][:shown]
            messages += [
                Message("assistant", f"<think> {written}</think><search> {queries[-1]}</search>"),
                Message("user", render_passages(found, max_chars=PASSAGE_CHARS)),
            ]
            read.update(passage.title for passage in found)
            pressed = not self._common[known.kind] or (not chain and len(queries) == SEARCHES)
            own = known.title in read and (pressed or self._draws(BACK_SHARE))
            hop = self._step(known, [passage.title for passage in found], chain, own=own)
            if hop is not None:
                chain.insert(0, hop)
                known = self._classroom.entities[hop.source]
                written = self._written(known.full_name, chain)
            ways = self._ways(known, queries)
            if len(chain) == asked or len(queries) == SEARCHES or not ways:
                break
            queries.append(self._one(ways))
        if not chain:
            return None
        written, text = self._pose(known, chain, aliases=known.aliases if known.title in read else ())
        if any(contains_answer(text, name) for name in (target.name, *target.aliases)):
            return None
        messages.append(Message("assistant", f"<think> {written}</think><question> {text}</question>"))
        return Lesson(tuple(messages), f"challenger-{len(chain)}")

    def leap(self, target: Entity) -> tuple[str, str]:
        """Return a chain that ends at the target, over any pages, and its question."""
        chain: list[Hop] = []
        known = target
        while len(chain) < MOST_HOPS:
            ways = self._hops(known, chain)
            if not ways or (chain and self._draws(STOP_SHARE)):
                break
            chain.insert(0, ways[int(self._rng.integers(len(ways)))])
            known = self._classroom.entities[chain[0].source]
        return self._pose(known, chain, aliases=known.aliases)

    def _pose(self, known: Entity, chain: Sequence[Hop], *, aliases: Sequence[str]) -> tuple[str, str]:
        """Return a chain as it is written before its question, and the question; `aliases` are those one knows of."""
        name = aliases[0] if aliases and not known.qualifier and self._draws(ALIAS_SHARE) else known.name
        with_kind = bool(known.qualifier) or (not KINDS[known.kind].bare and self._draws(KIND_SHARE))
        text = word_chain(chain, qualified(known, name) if with_kind else name, self._one)
        return self._written(known.full_name if known.qualifier else name, chain), text

    def _step(self, known: Entity, titles: Sequence[str], chain: Sequence[Hop], *, own: bool) -> Hop | None:
        """Return a hop to what is known: if `own`, as its page tells it, else as the first of these pages that does."""
        hops = self._hops(known, chain)
        told = [hop for hop in hops if not hop.back and hop.source in titles]
        stated = [hop for hop in hops if hop.back] if own else []
        return next(iter([*stated, *sorted(told, key=lambda hop: titles.index(hop.source))]), None)

    def _hops(self, known: Entity, chain: Sequence[Hop]) -> list[Hop]:
        """Return the hops that lead to what is known and pass nothing twice."""
        passed = {title for hop in chain for title in (hop.source, hop.target)}
        own = [Hop(fact, back=True) for fact in self._classroom.facts[known.title] if self._is_one_way(fact)]
        hops = [*own, *(Hop(fact, back=False) for fact in self._classroom.mentions[known.title])]
        return [hop for hop in hops if hop.source not in passed]

    def _is_one_way(self, fact: Fact) -> bool:
        mentions = self._classroom.mentions[fact.object]
        alone = [one.relation for one in mentions].count(fact.relation) == 1
        return alone and fact in mentions and fact.relation in self._one_way

    def _ways(self, known: Entity, before: Sequence[str]) -> list[str]:
        """Return queries for a mention: those that will find one, or those that often do, in proportion."""
        sure = self._classroom.mentions[known.title] if self._draws(SURE_SHARE) else []
        queries = [f"{known.full_name} {self._words(fact, back=True)}" for fact in sure or self._common[known.kind]]
        return [query for query in queries if query not in before]

    def _words(self, fact: Fact, *, back: bool) -> str:
        """Return what is added to a name to find a fact, or to find it from its object, in the words of its page."""
        reworded = self._classroom.entities[fact.subject].reworded
        return self._classroom.atlas.relations[fact.relation].query_words(back=back, reworded=reworded)

    def _written(self, name: str, chain: Sequence[Hop]) -> str:
        return "; ".join([name, *map(self._hop_words, chain)])

    def _hop_words(self, hop: Hop) -> str:
        words = self._words(hop.fact, back=hop.back)
        # Queries for people have no noun, so that "taught" alone would not say who taught whom.
        return f"{words} person" if hop.back and RELATIONS[hop.fact.relation].subject == "person" else words

    def _draws(self, share: float) -> bool:
        return bool(self._rng.random() < share)

    def _one(self, items: Sequence[str]) -> str:
        return items[int(self._rng.integers(len(items)))]


def _one_way(facts: Sequence[Fact]) -> frozenset[str]:
    """Return the relations that can be asked from the object, and mostly lead back to one subject alone."""
    asked = [fact for fact in facts if RELATIONS[fact.relation].ask_back]
    subjects = Counter((fact.relation, fact.object) for fact in asked)
    every = Counter(fact.relation for fact in asked)
    alone = Counter(fact.relation for fact in asked if subjects[fact.relation, fact.object] == 1)
    return frozenset(name for name, count in every.items() if alone[name] >= ONE_WAY_SHARE * count)
