"""Shelves rank as a plain comparison does, share their rows without ever changing each other, and can be large."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_env.errors import MissingDependency
from skill_memory import Skill, rows, shelf
from skill_memory.rows import Rows
from skill_memory.shelf import Shelf

DIMENSION = 16


def vectors(count, *, seed):
    drawn = np.random.default_rng(seed).standard_normal((count, DIMENSION), dtype=np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def skill(number, source=""):
    return Skill(f"s{number}", f"text {number}", ("t",), "", ("q",), source=source)


def expected(pairs, vector_D, *, k, floor, source):
    """What `best` promises, written as plainly as possible; pairs are oldest first."""
    ranked = [(round(float(np.clip(v @ vector_D, -1, 1)), 4), age, s) for age, (s, v) in enumerate(pairs)]
    fit = [one for one in ranked if one[0] >= floor and not (source and one[2].source == source)]
    return [s.id for _, _, s in sorted(fit, key=lambda one: (-one[0], one[1]))[:k]]


# Vectors of a coarse grid: cosines tie exactly, or differ by more than any rounding.
AXES = np.eye(DIMENSION, dtype=np.float32)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("plus"), st.integers(0, DIMENSION - 1), st.sampled_from(["", "q1", "q2"])),
        st.tuples(st.just("minus"), st.integers(0, 40)),
        st.tuples(st.just("counted"), st.integers(0, 40)),
        st.tuples(st.just("back"), st.integers(0, 40)),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(ACTS, st.integers(0, 4), st.sampled_from([-1.0, 0.5]), st.sampled_from(["", "q1"]))
def test_any_history_ranks_as_a_plain_list_does(acts, k, floor, source):
    history = [(Shelf((), AXES[:0]), [])]
    number = 0
    for act in acts:
        now, pairs = history[-1]
        if act[0] == "plus":
            new, vector_D = skill(number := number + 1, act[2]), AXES[act[1]]
            history.append((now.plus(new, vector_D), [*pairs, (new, vector_D)]))
        elif act[0] == "back":  # what was added since is forgotten, as after a transaction that failed
            history.append(history[act[1] % len(history)])
        elif pairs:
            gone = pairs[act[1] % len(pairs)][0].id
            if act[0] == "minus":
                history.append((now.minus({gone}), [pair for pair in pairs if pair[0].id != gone]))
            else:
                used = [(s.used(helped=1) if s.id == gone else s, v) for s, v in pairs]
                history.append((now.counted({gone}, helped=True), used))
    for now, pairs in history:  # the old ones too: nothing that came later has changed them
        assert now.skills == tuple(s for s, _ in pairs)
        assert np.array_equal(now.vector_KD, np.array([v for _, v in pairs]).reshape(-1, DIMENSION))
        assert [now.twin(replace(s, id="")) for s, _ in pairs] == [s.id for s, _ in pairs]
        assert now.twin(skill(-1)) == ""
        for axis in (0, 1):
            found = now.best(AXES[axis : axis + 1], k=k, floor=floor, exclude_source=[source])[0]
            assert [s.id for s in found] == expected(pairs, AXES[axis], k=k, floor=floor, source=source)
        assert np.array_equal(now.cosines(AXES[:2]), AXES[:2] @ now.vector_KD.T)


def test_a_ranking_does_not_depend_on_the_batch():
    large = Shelf([skill(number) for number in range(500)], vectors(500, seed=0))
    questions = vectors(40, seed=1)
    together = large.best(questions, k=5, floor=-1.0)
    assert together == [large.best(one[None, :], k=5, floor=-1.0)[0] for one in questions]
    assert np.array_equal(large.cosines(questions)[7], large.cosines(questions[7:8])[0])


def test_a_hash_of_texts_outlives_counting_and_nothing_else():
    first = Shelf([skill(0), skill(1)], vectors(2, seed=0))
    assert first.counted({"s0"}, helped=True).texts_hash == first.texts_hash
    assert first.minus({"s0"}).texts_hash != first.texts_hash
    assert first.plus(skill(2), vectors(1, seed=1)[0]).texts_hash != first.texts_hash


# --- many skills -----------------------------------------------------------------------------------------------------


@pytest.fixture
def approximate(monkeypatch):
    """Make every shelf a large one."""
    pytest.importorskip("faiss")
    monkeypatch.setattr(shelf, "EXACT_UP_TO", 0)


SIZE = 3000


def large_shelf(*, source=lambda number: ""):
    return Shelf([skill(number, source(number)) for number in range(SIZE)], vectors(SIZE, seed=0))


def ids(found):
    return [[s.id for s in skills] for skills in found]


def test_most_of_the_nearest_are_found_and_in_their_order(approximate, monkeypatch):
    questions, large = vectors(100, seed=1), large_shelf()
    found = ids(large.best(questions, k=3, floor=-1.0))
    monkeypatch.setattr(shelf, "EXACT_UP_TO", SIZE)
    exact = ids(large.best(questions, k=3, floor=-1.0))
    shared = [len(set(one) & set(other)) for one, other in zip(found, exact, strict=True)]
    assert sum(shared) >= 0.9 * 3 * len(questions)  # 40 of 64 lists are looked into, and near lists first
    assert all(one == other for one, other, same in zip(found, exact, shared, strict=True) if same == 3)


def test_a_skill_that_came_later_is_found_and_one_that_left_is_not(approximate):
    large, new = large_shelf(), vectors(1, seed=2)[0]
    large.best(new[None, :], k=3, floor=-1.0)  # makes the index
    longer = large.plus(skill(SIZE), new)
    assert longer.best(new[None, :], k=1, floor=-1.0)[0][0].id == f"s{SIZE}"
    assert f"s{SIZE}" not in ids(large.best(new[None, :], k=3, floor=-1.0))[0]
    second = ids(longer.best(new[None, :], k=2, floor=-1.0))[0][1]
    assert ids(longer.minus({f"s{SIZE}"}).best(new[None, :], k=1, floor=-1.0))[0] == [second]


def test_no_skill_stands_in_for_those_that_left(approximate):
    large = large_shelf()
    less = large.minus({f"s{number}" for number in range(1000)})
    for found in ids(less.best(large.vector_KD[::50], k=3, floor=-1.0)) + ids(
        less.best(less.vector_KD[-3:], k=3, floor=-1)
    ):
        assert len(set(found)) == 3
        assert all(int(id[1:]) >= 1000 for id in found)


def test_rows_that_came_late_enter_the_index_once_they_are_many(approximate, monkeypatch):
    monkeypatch.setattr(rows, "_LATE", 10)
    now, new = large_shelf(), vectors(40, seed=2)
    for number, vector_D in enumerate(new):
        now = now.plus(skill(SIZE + number), vector_D)
        assert now.best(vector_D[None, :], k=1, floor=-1.0)[0][0].id == f"s{SIZE + number}"
    assert now._rows._table._index.ntotal > SIZE + 20


def test_an_index_of_rows_that_were_taken_back_is_not_used_for_others(approximate, monkeypatch):
    monkeypatch.setattr(rows, "_LATE", 0)
    first, (one, other) = large_shelf(), vectors(2, seed=2)
    before = first.best(one[None, :], k=3, floor=-1.0)
    undone = first.plus(skill(SIZE), one)
    assert undone.best(one[None, :], k=1, floor=-1.0)[0][0].id == f"s{SIZE}"
    assert first.best(one[None, :], k=3, floor=-1.0) == before
    done = first.plus(skill(SIZE + 1), other)
    assert done.best(other[None, :], k=1, floor=-1.0)[0][0].id == f"s{SIZE + 1}"
    assert undone.best(one[None, :], k=1, floor=-1.0)[0][0].id == f"s{SIZE}"


def test_a_large_shelf_keeps_floor_and_sources(approximate):
    large = large_shelf(source=lambda number: f"q{number}")
    own = large.vector_KD[:20]
    assert ids(large.best(own, k=1, floor=0.9)) == [[f"s{number}"] for number in range(20)]
    excluded = large.best(own, k=1, floor=-1.0, exclude_source=[f"q{number}" for number in range(20)])
    assert all(found[0].id != f"s{number}" for number, found in enumerate(excluded))
    assert large.best(own, k=1, floor=0.99999, exclude_source=[f"q{number}" for number in range(20)]) == [[]] * 20


def test_threads_may_search_while_rows_are_added(approximate, monkeypatch):
    monkeypatch.setattr(rows, "_LATE", 5)
    shelves, problems = [large_shelf()], []
    stop = threading.Event()

    def search():
        while not stop.is_set():
            now = shelves[-1]
            newest = now._rows.at(np.array([len(now._rows) - 1]))
            found = now.best(newest, k=1, floor=-1.0)[0][0].id
            if found != now.skills[-1].id:
                problems.append((found, now.skills[-1].id))

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number, vector_D in enumerate(vectors(200, seed=3)):
        shelves.append(shelves[-1].plus(skill(SIZE + number), vector_D))
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []


def test_many_skills_without_faiss_are_refused(monkeypatch):
    monkeypatch.setattr(shelf, "EXACT_UP_TO", 2)
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    three = Shelf([skill(number) for number in range(3)], vectors(3, seed=0))
    with pytest.raises(MissingDependency, match=r"sesa-env\[dense\]"):
        three.best(vectors(1, seed=1), k=1, floor=-1.0)


def test_rows_grow_mostly_without_a_copy():
    now = Rows(vectors(100, seed=0))
    tables = set()
    for vector_D in vectors(1000, seed=1):
        now = now.plus(vector_D)
        tables.add(id(now._table))
    assert len(now) == 1100
    assert len(tables) < 15
    assert np.array_equal(now.at(np.arange(100, 1100)), vectors(1000, seed=1))
