"""The embedded fictional encyclopedia: what it says is so, what it asks has one answer, and search finds it."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_env.corpora.atlas import FAMILIES, RELATIONS, TEST_SEED, TRAIN_SEED, WORLDS, Atlas, Entity, Fact, generate
from sesa_env.corpora.atlas.names import Words
from sesa_env.corpora.atlas.relations import KINDS, english
from sesa_env.errors import InvalidInput, SesaError, UnknownName
from sesa_env.types import Question

WORLD_SEEDS = (TRAIN_SEED, TEST_SEED)
LEAST_WORDS, MOST_WORDS = 25, 60


@pytest.fixture(scope="module", params=WORLD_SEEDS)
def atlas(request: pytest.FixtureRequest) -> Atlas:
    return generate(request.param)


def all_of(atlas: Atlas, family: str) -> list[Question]:
    return [question for question in atlas.all_questions if question.family == family]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def names(text: str, name: str) -> bool:
    """Whether the name occurs in the text as a run of whole words."""
    run, within = words(name), words(text)
    return any(within[i : i + len(run)] == run for i in range(len(within) - len(run) + 1))


# The answers, walked again from the table of facts alone.


class Walker:
    """Answers by sets: every entity that a step can lead to is kept, so a second right answer would show."""

    def __init__(self, facts: tuple[Fact, ...], entities: tuple[Entity, ...]) -> None:
        self.objects: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self.subjects: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for fact in facts:
            self.objects[fact.relation, fact.subject].add(fact.object)
            self.subjects[fact.relation, fact.object].add(fact.subject)
        self.called: defaultdict[tuple[str, ...], list[Entity]] = defaultdict(list)
        for entity in entities:
            for name in (entity.name, *entity.aliases):
                self.called[tuple(words(name))].append(entity)

    def named(self, text: str) -> set[str]:
        """The titles of all entities that a text may mean: a shared name counts with its qualifier before it."""
        tokens = words(text)
        spans = {tuple(tokens[i:j]) for i in range(len(tokens)) for j in range(i + 1, len(tokens) + 1)}
        found = [(entity, " ".join(span)) for span in spans for entity in self.called.get(span, ())]
        return {entity.title for entity, name in found if name in map(str.lower, entity.aliases) or told(entity, text)}

    def follow(self, starts: set[str], chain: tuple[Fact, ...]) -> set[str]:
        """Where the relations of a chain lead, read forward or back as the chain's own ends say."""
        here, known = starts, next(iter(starts))
        for fact in chain:
            forward = fact.subject == known
            table = self.objects if forward else self.subjects
            here = {end for start in here for end in table[fact.relation, start]}
            known = fact.object if forward else fact.subject
        return here


def told(entity: Entity, text: str) -> bool:
    """Whether a text that has an entity's name tells it from its namesake, if it has one."""
    phrases = (f"{entity.qualifier} {entity.name}", f"{entity.qualifier} of {entity.name}")
    return not entity.qualifier or any(names(text, phrase) for phrase in phrases)


def base(title: str) -> str:
    return title.partition(" (")[0]


def test_every_question_has_exactly_one_answer_in_the_table_of_facts(atlas: Atlas) -> None:
    walker = Walker(atlas.facts, atlas.entities)
    for question in atlas.all_questions:
        if question.family == "comparison":
            continue
        starts = walker.named(question.text)
        assert len(starts) == 1, question
        ends = walker.follow(starts, atlas.chain(question.id))
        assert len(ends) == 1, question
        assert base(ends.pop()) == question.answers[0], question


def test_a_second_right_answer_would_be_seen(atlas: Atlas) -> None:
    question = atlas.questions(1, hops=1, families=["wording-gap"])[0]
    (fact,) = atlas.chain(question.id)
    rival = Fact("Somebody Else", fact.relation, fact.object)
    walker = Walker((*atlas.facts, rival), atlas.entities)
    assert len(walker.follow(walker.named(question.text), (fact,))) == 2


def test_comparisons_name_both_and_the_answer_is_the_earlier_by_the_facts(atlas: Atlas) -> None:
    walker = Walker(atlas.facts, atlas.entities)
    for question in all_of(atlas, "comparison"):
        one, other = atlas.chain(question.id)
        assert walker.named(question.text) == {one.subject, other.subject} == set(question.supporting_titles)
        years = {
            title: int(year) for title in (one.subject, other.subject) for year in walker.objects[one.relation, title]
        }
        assert len(set(years.values())) == 2
        assert question.answers[0] == min(years, key=years.__getitem__)


def test_chains_are_rows_of_the_table_and_join_end_to_end(atlas: Atlas) -> None:
    table = set(atlas.facts)
    for question in atlas.all_questions:
        chain = atlas.chain(question.id)
        assert set(chain) <= table
        assert len(chain) == question.hops == len(atlas.gold_queries(question.id))
        assert question.supporting_titles == tuple(fact.subject for fact in chain)
        assert len(set(question.supporting_titles)) == question.hops, "two hops on one page need one search only"
        if question.family != "comparison":
            assert all({a.subject, a.object} & {b.subject, b.object} for a, b in pairwise(chain))


def test_relations_are_functional_and_many(atlas: Atlas) -> None:
    asked = Counter((fact.subject, fact.relation) for fact in atlas.facts)
    assert set(asked.values()) == {1}
    assert len({fact.relation for fact in atlas.facts}) == len(RELATIONS) >= 20
    kinds = {entity.title: entity.kind for entity in atlas.entities}
    for fact in atlas.facts:
        relation = RELATIONS[fact.relation]
        assert kinds[fact.subject] == relation.subject
        assert kinds.get(fact.object, "none") == (relation.object if relation.object in KINDS else "none")


# The pages.


def test_every_fact_is_stated_in_one_sentence_of_its_page_with_its_cue(atlas: Atlas) -> None:
    entities = {entity.title: entity for entity in atlas.entities}
    for fact in atlas.facts:
        relation, subject = RELATIONS[fact.relation], entities[fact.subject]
        cue = relation.gap_cue if subject.reworded and relation.gap_cue else relation.cue
        sentences = atlas.page(fact.subject).text.split(". ")
        target = entities.get(fact.object)
        stated = [s for s in sentences if cue in words(s) and names(s, base(fact.object))]
        assert len(stated) == 1, fact
        if target is not None and target.qualifier:
            assert names(stated[0], target.qualifier), f"{fact} leaves open which one is meant"


def test_reworded_pages_avoid_the_words_of_the_question(atlas: Atlas) -> None:
    entities = {entity.title: entity for entity in atlas.entities}
    pages_naming = Counter(fact.object for fact in atlas.facts)
    for question in all_of(atlas, "wording-gap"):
        last = atlas.chain(question.id)[-1]
        assert pages_naming[last.object] >= 5, "too few pages to hide among"
        relation, page = RELATIONS[last.relation], atlas.page(last.subject)
        assert entities[last.subject].reworded
        assert relation.gap_cue in words(page.text)
        assert relation.cue not in words(page.text)
        assert not {relation.gap_cue, KINDS[relation.subject].gap_noun} & set(words(question.text))
        assert atlas.gold_queries(question.id)[-1] != atlas.natural_queries(question.id)[-1]


@given(seed=st.integers(0, WORLDS - 1), entities=st.integers(200, 600))
@settings(max_examples=15, deadline=None)
def test_pages_are_short_passages_with_unique_ids_and_titles(seed: int, entities: int) -> None:
    atlas = generate(seed, entities=entities)
    assert len(atlas.entities) == len(atlas.passages) == entities
    assert [passage.title for passage in atlas.passages] == [entity.title for entity in atlas.entities]
    assert len({passage.title for passage in atlas.passages}) == entities
    assert len({passage.id for passage in atlas.passages}) == entities
    lengths = [len(passage.text.split()) for passage in atlas.passages]
    assert min(lengths) >= LEAST_WORDS
    assert max(lengths) <= MOST_WORDS
    assert all("{" not in passage.text and passage.text.startswith(base(passage.title)) for passage in atlas.passages)


def test_every_relation_is_told_in_several_ways_with_the_cue_before_the_name() -> None:
    for relation in RELATIONS.values():
        assert len(relation.says) >= 2
        for cue, sentences in ((relation.cue, relation.says), (relation.gap_cue, relation.gap_says)):
            for sentence in sentences:
                assert cue in words(sentence.partition("{o}")[0]), sentence
        assert bool(relation.gap_cue) == bool(relation.gap_says)
        assert bool(relation.ask_back) == bool(relation.noun_back)
        assert bool(relation.noun) == (relation.object in KINDS)


def test_a_wording_gap_is_one_and_there_are_enough_of_them_to_learn_from() -> None:
    gaps = [relation for relation in RELATIONS.values() if relation.gap_cue]
    assert len(gaps) >= 20
    for relation in gaps:
        asked = words(" ".join((*relation.ask, *relation.ask_back, relation.noun, relation.noun_back, *relation.says)))
        assert relation.gap_cue not in asked
        assert relation.cue not in words(" ".join(relation.gap_says))


def test_shared_names_and_aliases_are_as_frequent_as_said(atlas: Atlas) -> None:
    n = len(atlas.entities)
    shared = sum(bool(entity.qualifier) for entity in atlas.entities)
    assert 0.06 * n <= shared <= 0.08 * n  # pairs that nothing would tell apart are left alone
    bearers = Counter(entity.name for entity in atlas.entities if entity.qualifier)
    assert set(bearers.values()) == {2}
    for share, count, of in (
        (0.15, sum(bool(entity.aliases) for entity in atlas.entities), n),
        (0.35, sum(entity.reworded for entity in atlas.entities), n - shared),
    ):
        # Four standard errors of a share of `of` independent draws.
        assert abs(count / of - share) < 4 * math.sqrt(share * (1 - share) / of)
    aliases = [alias for entity in atlas.entities for alias in entity.aliases]
    assert len(set(aliases)) == len(aliases)
    for entity in atlas.entities:
        assert all(names(atlas.page(entity.title).text, alias) for alias in entity.aliases)


# The questions.


def test_no_question_gives_its_answer_away(atlas: Atlas) -> None:
    for question in atlas.all_questions:
        leaks = [answer for answer in question.answers if names(question.text, answer)]
        if question.family == "comparison":
            assert leaks  # both are named, so that neither is given away
        else:
            assert not leaks, question


def test_the_answer_stands_on_the_last_page_needed(atlas: Atlas) -> None:
    for question in atlas.all_questions:
        pages = [atlas.page(title).text for title in question.supporting_titles]
        if question.family == "comparison":
            assert any(names(page, question.answers[0]) for page in pages)
        else:
            assert names(pages[-1], question.answers[0]), question


def test_families_are_what_they_say(atlas: Atlas) -> None:
    entities = {entity.title: entity for entity in atlas.entities}
    walker = Walker(atlas.facts, atlas.entities)
    for question in atlas.all_questions:
        start = entities[next(iter(walker.named(question.text)))]
        if question.family == "alias":
            assert names(question.text, start.aliases[0])
            assert not names(question.text, start.name)
        elif question.family == "ambiguous":
            assert names(question.text, start.name)
            assert len(walker.called[tuple(words(start.name))]) == 2
            assert names(question.text, start.qualifier)
        else:
            assert not start.qualifier
        if question.family not in ("wording-gap", "comparison"):
            assert atlas.gold_queries(question.id) == atlas.natural_queries(question.id) or any(
                entities[title].reworded for title in question.supporting_titles
            )


def test_there_are_thousands_of_questions_all_different(atlas: Atlas) -> None:
    questions = atlas.all_questions
    assert len(questions) == 6000
    assert len({question.id for question in questions}) == len({question.text for question in questions}) == 6000
    assert Counter(question.hops for question in questions) == dict.fromkeys((1, 2, 3, 4), 1500)
    assert {question.family for question in questions} == set(FAMILIES)


def test_no_answer_can_be_guessed_from_the_others(atlas: Atlas) -> None:
    questions = atlas.all_questions
    (_, most), *_ = Counter(question.answers[0] for question in questions).most_common(1)
    assert most < 0.01 * len(questions)
    pairs = all_of(atlas, "comparison")
    first = sum(atlas.page(question.supporting_titles[0]).title == question.answers[0] for question in pairs)
    # A fair coin's share over n draws has the standard error 0.5 / sqrt(n); four of them are allowed.
    assert abs(first / len(pairs) - 0.5) < 4 * 0.5 / math.sqrt(len(pairs))


@given(n=st.integers(1, 600), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_draws_are_balanced_distinct_and_repeatable(n: int, seed: int) -> None:
    atlas = generate(TRAIN_SEED, entities=400)
    questions = atlas.questions(n, seed=seed)
    assert questions == atlas.questions(n, seed=seed) == atlas.questions(min(n + 4, 800), seed=seed)[:n]
    assert len({question.id for question in questions}) == n
    counts = Counter(question.hops for question in questions)
    assert max(counts.values()) - min(counts[hops] for hops in (1, 2, 3, 4)) <= 1
    if n > 8:
        assert questions != atlas.questions(n, seed=seed + 1)


def test_draws_can_be_narrowed(atlas: Atlas) -> None:
    assert {question.hops for question in atlas.questions(50, hops=3)} == {3}
    assert {question.family for question in atlas.questions(50, families=["alias", "comparison"])} == {
        "alias",
        "comparison",
    }


def test_targets_are_names_of_one_entity_that_can_be_asked_about_in_so_many_hops(atlas: Atlas) -> None:
    targets = atlas.targets(400, seed=3)
    assert targets == atlas.targets(400, seed=3) != atlas.targets(400, seed=4)
    assert Counter(target.hops for target in targets) == dict.fromkeys((1, 2, 3, 4), 100)
    assert len({target.answer for target in targets}) == 400
    askable = {(question.answers[0], question.hops) for question in atlas.all_questions}
    alone = Counter(entity.name for entity in atlas.entities)
    for target in targets:
        assert (target.answer, target.hops) in askable
        assert alone[target.answer] == 1


# Search.


class Search:
    """BM25 over title and text, as bm25s comes: no stemming."""

    def __init__(self, atlas: Atlas) -> None:
        self.titles = [passage.title for passage in atlas.passages]
        texts = [f"{passage.title}\n{passage.text}" for passage in atlas.passages]
        self.index = bm25s.BM25()
        self.index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def ranks(self, queries: list[str], titles: list[str]) -> np.ndarray:
        """The rank of each title for its query, 1 being best; 99 below the tenth."""
        found, _ = self.index.retrieve(bm25s.tokenize(queries, show_progress=False), k=10, show_progress=False)
        rows = [[self.titles[i] for i in row] for row in found]
        return np.array([row.index(t) + 1 if t in row else 99 for row, t in zip(rows, titles, strict=True)])


@pytest.fixture(scope="module")
def search(atlas: Atlas) -> Search:
    return Search(atlas)


def test_each_gold_query_finds_its_page(atlas: Atlas, search: Search) -> None:
    questions = atlas.all_questions
    queries = [query for question in questions for query in atlas.gold_queries(question.id)]
    titles = [title for question in questions for title in question.supporting_titles]
    ranks = search.ranks(queries, titles)
    assert np.mean(ranks <= 3) >= 0.99
    assert np.mean(ranks <= 10) == 1.0


def test_the_questions_own_words_miss_the_page_behind_a_wording_gap(atlas: Atlas, search: Search) -> None:
    questions = all_of(atlas, "wording-gap")
    pages = [question.supporting_titles[-1] for question in questions]
    gold = search.ranks([atlas.gold_queries(question.id)[-1] for question in questions], pages)
    natural = search.ranks([atlas.natural_queries(question.id)[-1] for question in questions], pages)
    assert np.mean(gold <= 3) >= 0.97
    assert np.mean(natural <= 3) <= 0.25


# Seeds.


def test_equal_seeds_are_equal_in_every_process() -> None:
    code = "from sesa_env.corpora.atlas import generate; print(generate(5, entities=400).fingerprint)"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for salt in ("0", "1", "4242")
    ]
    assert set(runs) == {generate(5, entities=400).fingerprint}


def test_the_fingerprint_tells_worlds_and_sizes_apart() -> None:
    fingerprints = {generate(seed, entities=n).fingerprint for seed in (0, 1, 2) for n in (200, 201)}
    assert len(fingerprints) == 6
    assert all(re.fullmatch(r"[0-9a-f]{64}", fingerprint) for fingerprint in fingerprints)


def test_no_two_of_all_worlds_share_a_word() -> None:
    taken: set[str] = set()
    for seed in range(WORLDS):
        supply = Words(seed, rng=np.random.default_rng(seed), reserved=english())
        mine = {*supply.given, *(supply.fresh() for _ in range(200))}
        assert len(mine) == 270
        assert not mine & taken
        taken |= mine


def test_no_two_worlds_share_a_name() -> None:
    owner: dict[str, int] = {}
    for seed in (0, 1, 2, 3, 7, 42, 100, 254, 255, 507, 508):
        for entity in generate(seed, entities=500).entities:
            for name in (entity.name, *entity.aliases):
                assert owner.setdefault(name, seed) == seed


def test_names_are_short_words_that_english_does_not_use(atlas: Atlas) -> None:
    people = [entity.name for entity in atlas.entities if entity.kind == "person"]
    assert all(re.fullmatch(r"[A-Z][a-z]{3,5} [A-Z][a-z]{3,8}", name) for name in people)
    assert not {word for name in people for word in words(name)} & english()


def test_the_default_world_is_made_in_seconds() -> None:
    start = time.process_time()
    generate(TRAIN_SEED)
    assert time.process_time() - start < 3


# Bad input.


@pytest.mark.parametrize("seed", [-1, WORLDS, 1.5, "0", float("nan")])
def test_there_is_no_world_outside_the_range_of_seeds(seed: object) -> None:
    with pytest.raises(InvalidInput, match="seed must be a whole number"):
        generate(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("entities", [0, 199, 10_001, 300.5])
def test_a_world_is_neither_too_small_nor_too_large(entities: object) -> None:
    with pytest.raises(InvalidInput, match="entities must be a whole number"):
        generate(0, entities=entities)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [{"n": 0}, {"n": 10**6}, {"n": 4, "hops": 5}, {"n": 4, "families": ["riddle"]}, {"n": 4, "families": "alias"}],
)
def test_a_draw_outside_what_there_is_raises(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        generate(0, entities=200).questions(**arguments)  # type: ignore[arg-type]


def test_unknown_titles_and_ids_raise() -> None:
    atlas = generate(0, entities=200)
    for ask in (atlas.page, atlas.chain, atlas.gold_queries, atlas.natural_queries):
        with pytest.raises(UnknownName, match="nowhere") as caught:
            ask("nowhere")
        assert isinstance(caught.value, SesaError)


def test_it_is_labelled_fictional() -> None:
    assert "fictional" in repr(generate(0, entities=200))
    assert all("fictional" in (part.__doc__ or "") for part in (Atlas, generate, Fact, Entity))


def test_reworded_pages_use_unexpected_words_coined_ones_or_half_of_each() -> None:
    known = {relation.gap_cue for relation in RELATIONS.values()} - {""}
    shares = {}
    for jargon in (False, True, "mixed"):
        world = generate(2, entities=400, jargon=jargon)
        cues = [relation.gap_cue for relation in world.relations.values() if relation.gap_cue]
        assert len(cues) == len(set(cues)) == len(known)
        shares[jargon] = sum(cue in known for cue in cues) / len(cues)
        said = set(words(" ".join(passage.text for passage in world.passages)))
        assert sum(cue in said for cue in cues) > 0.9 * len(cues)
    assert shares[False] == 1.0
    assert shares[True] == 0.0
    assert 0.2 < shares["mixed"] < 0.8
    kept = sum(one.gap_cue == RELATIONS[name].gap_cue != "" for name, one in world.relations.items())
    assert kept < 0.1 * len(known)
