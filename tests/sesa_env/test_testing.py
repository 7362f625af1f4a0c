import pytest

from sesa_env.errors import InvalidInput
from sesa_env.registry import RETRIEVERS
from sesa_env.testing import check_retriever
from sesa_env.types import Passage

PAGES = [Passage("1", "Nile", "a river in Egypt"), Passage("2", "Rhine", "a river in Europe")]


class Sound:
    """Counts the words that a query shares with a page."""

    fingerprint = "f1"

    def search(self, queries, k):
        if isinstance(queries, str) or k < 1:
            raise InvalidInput("no")
        return [self.one(set(query.lower().split()), k) for query in queries]

    def one(self, words, k):
        found = [Passage(p.id, p.title, p.text, len(words & {*p.text.lower().split(), p.title.lower()})) for p in PAGES]
        return sorted((p for p in found if p.score), key=lambda p: -p.score)[:k]

    def close(self):
        pass


class NoClose:
    fingerprint = "f1"

    def search(self, queries, k):
        return []


class NoFingerprint(Sound):
    fingerprint = ""


class WorstFirst(Sound):
    def one(self, words, k):
        return super().one(words, k)[::-1]


class TooMany(Sound):
    def one(self, words, k):
        return super().one(words, 9)


class Twice(Sound):
    def one(self, words, k):
        return (super().one(words, k)[:1] * 2)[:k]


class Shuffled(Sound):
    def search(self, queries, k):
        return super().search(queries, k)[::-1] if len(queries) < 3 else super().search(sorted(queries), k)


class Shared(Sound):
    kept = {}  # noqa: RUF012

    def one(self, words, k):
        return self.kept.setdefault((frozenset(words), k), super().one(words, k))


class AlwaysFinds(Sound):
    def one(self, words, k):
        return super().one(words, k) or PAGES[:k]


class TakesBareStrings(Sound):
    def search(self, queries, k):
        return super().search([queries] if isinstance(queries, str) else queries, k)


class TakesAnyK(Sound):
    def search(self, queries, k):
        return super().search(queries, max(k, 1))


class Fragile(Sound):
    def search(self, queries, k):
        if any(len(query) > 10_000 for query in queries):
            return [[] for _ in queries] * 2
        return super().search(queries, k)


def test_a_sound_retriever_passes():
    check_retriever(Sound(), finds="nile river", other="rhine")


def test_the_built_in_one_passes(world):
    check_retriever(RETRIEVERS.make("bm25", corpus=world["corpus"]), finds="river Egypt", other="Limmat")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (NoClose, "lacks a part of the protocol"),
        (NoFingerprint, "fingerprint must be text"),
        (WorstFirst, "best passage must come first"),
        (TooMany, "k=1 must give the first"),
        (Twice, "no passage may come twice"),
        (Shuffled, "each query what it gives alone"),
        (Shared, "changing a result"),
        (AlwaysFinds, "no searchable term"),
        (TakesBareStrings, "bare string"),
        (TakesAnyK, "k=0 must be refused"),
        (Fragile, "a list of one list"),
    ],
)
def test_each_broken_promise_is_found(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_retriever(broken(), finds="nile river", other="rhine")
