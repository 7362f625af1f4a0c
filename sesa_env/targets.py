"""Where challenges come from: targets made of a corpus, of a file of answers, or of SSP's rows.

    open_targets("corpus", corpus="atlas:3")              # entities of a corpus
    open_targets("answers:answers.jsonl", corpus=...)     # {"answer": "Nile", "hops": 2, "aliases": ["Iteru"]}
    open_targets("ssp:random_hop.jsonl", corpus=...)      # SSP's fields, example questions included
    chosen = hop_balanced(targets, 300, rng=np.random.default_rng(0))
    clean, dropped = without_test_answers(chosen, test_questions)

`TARGETS` names the three sources.  Source of the third: SSP, section on training data; its rows hold the answer as a
list of one string, which is made a string here, before any check can stumble over it.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from sesa_env.corpora import ATLAS_SIZE, is_atlas, load_atlas, load_passages
from sesa_env.corpora.jsonl import Row, read_rows
from sesa_env.corpora.questions import load_questions
from sesa_env.errors import CorpusError, InvalidInput, SettingsError
from sesa_env.registry import TARGETS
from sesa_env.text import normalise_answer
from sesa_env.types import Question, Target

CORPUS = "corpus"
"""The source of targets that is there without a file of its own."""

Task: TypeAlias = Target | Question
"""What a round begins with: a target for a challenger, or a question that is given."""

_T = TypeVar("_T", bound=Task)


@lru_cache(maxsize=8)
def open_targets(targets: str, *, corpus: str, test_questions: tuple[str, ...] = ()) -> tuple[Target, ...]:
    """Return the targets that a setting names, without the answers of test questions.

    Args:
        targets: "corpus", or "NAME:SOURCE" with a name in `TARGETS` and what it reads.
        corpus: the source of "corpus" when none is given.
        test_questions: question files, or "atlas:SEED".

    Raises:
        UnknownName: no source of targets has that name.
        SettingsError: the source is missing, or every target is an answer of a test question.
        CorpusError: a file cannot be read.
    """
    name, _, source = targets.partition(":")
    read = TARGETS.get(name)
    if not source and name != CORPUS:
        raise SettingsError(f"targets must be written {name}:SOURCE, such as {name}:FILE.jsonl, got {targets!r}")
    found: Sequence[Target] = read(source or corpus)
    questions = [question for path in test_questions for question in load_questions(path)]
    clean, _ = without_test_answers(found, questions)
    if not clean:
        raise SettingsError(f"targets {targets!r} must hold some that no test question has as its answer, got none")
    return tuple(clean)


@lru_cache(maxsize=8)
def load_targets(corpus: str) -> tuple[Target, ...]:
    """Return the targets that a challenger can be given over a corpus.

    An Atlas knows answers and the number of hops to them; of any other corpus the titles are targets, one hop away.

    Raises:
        InvalidInput: the seed of the Atlas is not a whole number.
        CorpusError: the corpus cannot be read, or has no titles.
    """
    if is_atlas(corpus):
        atlas = load_atlas(corpus)
        return tuple(atlas.targets(ATLAS_SIZE, seed=atlas.seed))
    titles = dict.fromkeys(passage.title.strip() for passage in load_passages(corpus)[0])
    targets = tuple(_named_by(title) for title in titles if title)
    if not targets:
        raise CorpusError(f"corpus {corpus!r} has no titles to make targets of")
    return targets


def _named_by(title: str) -> Target:
    """Return the target an article is about: "Kestrel (film)" is called Kestrel, its full title being an alias."""
    name = re.sub(r"\s*\([^()]*\)$", "", title) or title
    return Target(name, hops=1, aliases=(title,) if name != title else ())


def read_answers(path: str | Path) -> tuple[Target, ...]:
    """Return the targets of a JSON-lines file, plain or gzipped, in its order.

    A line has `answer`, and may have `hops` (1 without it), `aliases` and `examples`.

    Raises:
        CorpusError: the file is missing or empty, or a line is malformed; the message has its number.
    """
    return tuple(_from_row(row, where) for where, row in _rows(path))


def read_ssp(path: str | Path) -> tuple[Target, ...]:
    """Return the targets of a JSON-lines file with SSP's fields, in its order.

    A line has `ground_truth` (a string, or a list of one), `search_turns`, and may have `sys_question_example` (a
    string, or a list of them).

    Raises:
        CorpusError: the file is missing or empty, or a line is malformed; the message has its number.
    """
    return tuple(_from_ssp(row, where) for where, row in _rows(path))


def hop_balanced(targets: Sequence[_T], number: int, *, rng: np.random.Generator) -> list[_T]:
    """Draw targets or questions, as many of each number of hops as of any other, give or take one.

    None is drawn twice unless more are asked for than there are in all; then those of a number of hops come in turn.

    Args:
        targets: to draw from; which numbers of hops there are is read off them, a question without one counting as 1.
        number: how many to draw; when it does not divide evenly, chance decides who gets one more.
        rng: decides everything; equal states give equal draws.

    Returns:
        The drawn targets, in random order.

    Raises:
        InvalidInput: `number` is below 1, or there are enough targets in all but too few of some number of hops.
    """
    if number < 1:
        raise InvalidInput(f"number must be at least 1, got {number!r}")
    by_hops: dict[int, list[_T]] = defaultdict(list)
    for target in targets:
        by_hops[target.hops or 1].append(target)
    if not by_hops:
        raise InvalidInput("targets must not be empty")
    repeat = number > len(targets)
    share, rest = divmod(number, len(by_hops))
    favoured = set(rng.permutation(sorted(by_hops))[:rest].tolist())
    drawn = [
        target
        for hops in sorted(by_hops)
        for target in _drawn(by_hops[hops], share + (hops in favoured), rng, repeat=repeat)
    ]
    return [drawn[index] for index in rng.permutation(len(drawn))]


def _drawn(targets: Sequence[_T], number: int, rng: np.random.Generator, *, repeat: bool) -> list[_T]:
    if number > len(targets) and not repeat:
        raise InvalidInput(f"targets must hold {number} of {targets[0].hops or 1} hops, got {len(targets)}")
    turns = [rng.permutation(len(targets)) for _ in range(0, max(number, 1), len(targets))]
    return [targets[index] for index in np.concatenate(turns)[:number]]


def targets_fingerprint(targets: Iterable[Task]) -> str:
    """Return 16 hexadecimal digits that are equal for equal targets, or questions, in equal order."""
    digest = hashlib.sha256()
    for target in targets:
        digest.update(repr(target).encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def without_test_answers(targets: Iterable[Target], questions: Iterable[Question]) -> tuple[list[Target], list[Target]]:
    """Split targets by whether one of their names is, after normalisation, an answer of a test question.

    Returns:
        The targets to train on, and those that were left out, both in order.
    """
    answers = {normalise_answer(answer) for question in questions for answer in question.answers}
    clean: list[Target] = []
    dropped: list[Target] = []
    for target in targets:
        names = {normalise_answer(name) for name in (target.answer, *target.aliases)}
        (dropped if names & answers else clean).append(target)
    return clean, dropped


def _rows(path: str | Path) -> list[tuple[str, Row]]:
    return [(f"{path}, line {number}", row) for number, row in read_rows(Path(path))]


def _from_row(row: Row, where: str) -> Target:
    unknown = sorted(set(row) - {"answer", "hops", "aliases", "examples"})
    if unknown:
        raise CorpusError(f"{where}: unknown fields {unknown}; known: answer, hops, aliases, examples")
    aliases, examples = _texts(row, "aliases", where), _texts(row, "examples", where)
    return _target(row.get("answer"), row.get("hops", 1), where, aliases=aliases, examples=examples)


def _from_ssp(row: Row, where: str) -> Target:
    answer = row.get("ground_truth")
    if isinstance(answer, list):
        if len(answer) != 1:
            raise CorpusError(f"{where}: `ground_truth` must be one answer, got {answer!r}")
        answer = answer[0]
    return _target(answer, row.get("search_turns"), where, examples=_texts(row, "sys_question_example", where))


def _target(
    answer: Any, hops: Any, where: str, *, aliases: tuple[str, ...] = (), examples: tuple[str, ...] = ()
) -> Target:
    if isinstance(hops, bool) or not isinstance(hops, int):
        raise CorpusError(f"{where}: the number of hops must be a whole number from 1 up, got {hops!r}")
    try:
        return Target(answer, hops=hops, aliases=aliases, examples=examples)
    except InvalidInput as error:
        raise CorpusError(f"{where}: {error}") from error


def _texts(row: Row, field: str, where: str) -> tuple[str, ...]:
    value = row.get(field, [])
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) and item.strip() for item in listed):
        raise CorpusError(f"{where}: `{field}` must be a list of non-blank strings, got {value!r}")
    return tuple(listed)
