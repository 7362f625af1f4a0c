import gzip
import json
import shutil
import signal
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from sesa_env.corpora.jsonl import corpus_fingerprint
from sesa_env.errors import CorpusError, IndexMismatch, InvalidInput
from sesa_env.registry import RETRIEVERS
from sesa_env.retrieval import bm25, lucene
from sesa_env.retrieval.index import MANIFEST, SCHEMA, build_index, open_index, read_manifest
from sesa_env.types import Passage

LUCENE = pytest.param("lucene", marks=pytest.mark.skipif(not find_spec("pyserini"), reason="no Pyserini"))
ROWS = [
    {"id": f"p{number}", "title": title, "contents": f'"{title}"\n{text}'}
    for number, (title, text) in enumerate(
        [
            ("Lake Ona", "A deep lake in the hills of Varn, known for its silver trout."),
            ("Varn", "A market town. Its blue gate was painted by Ilse Roth."),
            ("Ilse Roth", "Painter, born beside the river Melk, in house Ⅻ."),
        ]
    )
]
QUERIES = ["silver trout", "blue gate", "river", "XII", "nothing of the kind"]


@pytest.fixture
def corpus(tmp_path):
    return write(tmp_path / "corpus.jsonl", ROWS)


@pytest.fixture(params=["bm25", LUCENE])
def backend(request):
    return request.param


@pytest.fixture
def built(tmp_path, corpus, backend):
    build_index(corpus, tmp_path / "index", backend=backend)
    return tmp_path / "index"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SESA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "indexes"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def change_manifest(path, **fields):
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**manifest, **fields}))


def refusal(path, **options):
    with pytest.raises(IndexMismatch) as caught:
        open_index(path, **options)
    assert str(path) in str(caught.value)
    assert "sesa index --corpus" in str(caught.value)
    return str(caught.value)


def test_what_was_built_is_found_again(tmp_path, corpus, backend):
    done = []
    manifest = build_index(corpus, tmp_path / "deep" / "down" / "index", backend=backend, progress=done.append)
    retriever = open_index(tmp_path / "deep" / "down" / "index", corpus=corpus)
    found = retriever.search(QUERIES, 1)
    assert [[hit.title for hit in hits] for hits in found] == [["Lake Ona"], ["Varn"], ["Ilse Roth"], ["Ilse Roth"], []]
    assert found[2][0] == Passage("p2", "Ilse Roth", ROWS[2]["contents"].partition("\n")[2], found[2][0].score)
    assert done[-1] == manifest.passages == len(ROWS)
    assert [path.name for path in (tmp_path / "deep" / "down").iterdir()] == ["index"]


def test_the_manifest_says_from_what_and_by_what(built, corpus, backend):
    manifest = read_manifest(built)
    assert manifest.schema == SCHEMA
    assert manifest.backend == backend
    assert manifest.corpus == corpus_fingerprint(corpus)
    assert manifest.settings["k1"] == 0.9
    assert manifest.libraries == {"bm25": bm25, "lucene": lucene}[backend].libraries()


def test_an_index_on_disk_equals_one_in_memory(built, corpus, backend, tmp_path, cache):
    named = RETRIEVERS.make(backend, corpus=str(corpus))
    opened = open_index(built)
    assert named.fingerprint == opened.fingerprint
    assert named.search(QUERIES, 3) == opened.search(QUERIES, 3)


def test_an_empty_folder_is_filled_and_another_is_left_alone(tmp_path, corpus, backend):
    (tmp_path / "empty").mkdir()
    build_index(corpus, tmp_path / "empty", backend=backend)
    assert open_index(tmp_path / "empty").search(["trout"], 1)[0][0].id == "p0"
    for used in (tmp_path / "empty", corpus):
        with pytest.raises(InvalidInput, match="out must be a new or an empty folder"):
            build_index(corpus, used, backend=backend)
    assert open_index(tmp_path / "empty").search(["trout"], 1)[0][0].id == "p0"


def test_an_unknown_back_end_is_refused(tmp_path, corpus):
    with pytest.raises(InvalidInput, match="bm25, dense, lucene"):
        build_index(corpus, tmp_path / "index", backend="faiss")
    assert not (tmp_path / "index").exists()


# All or nothing


@pytest.mark.parametrize(
    "broken", ['{"id": "p9", "contents": "cut', '{"id": "p0", "contents": "again"}', '{"id": "p9"}']
)
def test_a_broken_line_leaves_nothing_behind(tmp_path, corpus, backend, broken):
    corpus.write_text(corpus.read_text() + broken)
    with pytest.raises(CorpusError, match="line 4"):
        build_index(corpus, tmp_path / "index", backend=backend)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


@pytest.mark.parametrize("content", [None, ""])
def test_no_corpus_no_index(tmp_path, backend, content):
    if content is not None:
        (tmp_path / "corpus.jsonl").write_text(content)
    with pytest.raises(CorpusError):
        build_index(tmp_path / "corpus.jsonl", tmp_path / "index", backend=backend)
    assert not (tmp_path / "index").exists()


def test_an_interrupted_build_leaves_nothing_behind(tmp_path, corpus, backend):
    def interrupt(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, tmp_path / "index", backend=backend, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_a_killed_build_leaves_no_index_that_opens(tmp_path, corpus, backend):
    script = """
    import os, signal, sys
    from pathlib import Path
    from sesa_env.retrieval.index import build_index
    die = lambda count: os.kill(os.getpid(), signal.SIGKILL)
    build_index(Path(sys.argv[1]), Path(sys.argv[2]), backend=sys.argv[3], progress=die)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), corpus, tmp_path / "index", backend]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    assert "no finished index" in refusal(tmp_path / "index")
    (draft,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert "no finished index" in refusal(draft)
    build_index(corpus, tmp_path / "index", backend=backend)  # and the next one is not in its way
    assert open_index(tmp_path / "index", corpus=corpus).search(["trout"], 1)[0][0].id == "p0"


def test_whoever_takes_the_place_in_the_meantime_keeps_it(tmp_path, corpus, backend):
    def occupy(count):
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "precious").write_text("kept")

    with pytest.raises(InvalidInput, match="out must be"):
        build_index(corpus, tmp_path / "index", backend=backend, progress=occupy)
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["precious"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "index"]


# The wrong index


def test_an_unfinished_index_tells_how_to_build_it(tmp_path, built, corpus):
    (built / MANIFEST).unlink()
    assert f"sesa index --corpus {corpus} --out {built}" in refusal(built, corpus=corpus)
    assert "no finished index" in refusal(tmp_path / "absent")


def test_an_index_of_another_corpus_names_both(tmp_path, built, corpus):
    other = write(tmp_path / "other.jsonl", ROWS[:2])
    message = refusal(built, corpus=other)
    assert corpus_fingerprint(corpus) in message
    assert corpus_fingerprint(other) in message


def test_a_packed_copy_of_the_corpus_is_the_same_corpus(tmp_path, built, corpus):
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    assert open_index(built, corpus=tmp_path / "packed.jsonl.gz").search(["trout"], 1)[0]


@pytest.mark.parametrize(
    ("backend", "library", "built_by", "here"),
    [
        ("bm25", "bm25s", "0.2.14", "0.3.16"),
        ("bm25", "bm25s", "1.0.0", "0.3.16"),
        pytest.param("lucene", "anserini", "0.38.0", "1.7.1", marks=LUCENE.marks),
        pytest.param("lucene", "pyserini", "0.44.0", "1.6.0", marks=LUCENE.marks),
    ],
)
def test_an_index_by_another_major_version_names_both(built, monkeypatch, backend, library, built_by, here):
    part = {"bm25": bm25, "lucene": lucene}[backend]
    monkeypatch.setattr(part, "libraries", lambda: {library: here})
    change_manifest(built, libraries={library: built_by})
    message = refusal(built)
    assert f"{library} {built_by}" in message
    assert here in message


def test_a_minor_version_is_no_reason(built, backend, monkeypatch):
    part = {"bm25": bm25, "lucene": lucene}[backend]
    monkeypatch.setattr(part, "libraries", lambda: {"first": "0.3.99", "second": "1.99"})
    change_manifest(built, libraries={"first": "0.3.0", "second": "1.0"})
    assert open_index(built).search(["trout"], 1)[0]


def test_other_settings_are_refused(built):
    change_manifest(built, settings={"k1": 1.2})
    assert "'k1': 1.2" in refusal(built)


@pytest.mark.parametrize("fields", [{"schema": SCHEMA + 1}, {"schema": None}, {"backend": "faiss"}, {"extra": 1}])
def test_a_manifest_of_another_kind_is_refused(built, fields):
    change_manifest(built, **fields)
    refusal(built)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "\x00"])
def test_a_damaged_manifest_is_refused(built, text):
    (built / MANIFEST).write_text(text)
    refusal(built)


@pytest.mark.parametrize("name", ["vocab.index.json", "params.index.json", "data.csc.index.npy", "passages.jsonl"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-40])])
def test_a_damaged_bm25_index_is_refused(tmp_path, corpus, name, damage):
    build_index(corpus, tmp_path / "index", backend="bm25")
    damage(tmp_path / "index" / "bm25" / name)
    with pytest.raises(IndexMismatch, match="build it again"):
        open_index(tmp_path / "index")


def test_passages_that_do_not_belong_to_a_bm25_index_are_refused(tmp_path, corpus):
    build_index(corpus, tmp_path / "index", backend="bm25")
    write(tmp_path / "index" / "bm25" / "passages.jsonl", ROWS[:2])
    with pytest.raises(IndexMismatch, match="over 3 passages and has 2"):
        open_index(tmp_path / "index")


@LUCENE.marks[0]
def test_a_damaged_lucene_index_is_refused(tmp_path, corpus):
    build_index(corpus, tmp_path / "index", backend="lucene")
    for file in (tmp_path / "index" / "lucene").glob("segments_*"):
        file.unlink()
    with pytest.raises(IndexMismatch, match="build it again"):
        open_index(tmp_path / "index").search(["trout"], 1)


# By name


def test_a_named_retriever_opens_the_index_it_is_given(built, corpus, backend):
    named = RETRIEVERS.make(backend, corpus=str(corpus), index=str(built))
    assert named.search(QUERIES, 3) == open_index(built).search(QUERIES, 3)
    write(corpus, ROWS[:2])
    with pytest.raises(IndexMismatch, match="another corpus"):
        RETRIEVERS.make(backend, corpus=str(corpus), index=str(built))


def test_a_named_retriever_refuses_the_index_of_another(built, corpus, backend):
    other = {"bm25": "lucene", "lucene": "bm25"}[backend]
    with pytest.raises(IndexMismatch, match=f"--backend {other}"):
        RETRIEVERS.make(other, corpus=str(corpus), index=str(built))


@LUCENE.marks[0]
def test_the_cached_index_is_built_once_for_each_corpus(corpus, cache):
    RETRIEVERS.make("lucene", corpus=str(corpus))
    (folder,) = cache.iterdir()
    made = (folder / MANIFEST).stat().st_mtime_ns
    RETRIEVERS.make("lucene", corpus=str(corpus))
    assert (folder / MANIFEST).stat().st_mtime_ns == made
    write(corpus, ROWS[:2])
    assert RETRIEVERS.make("lucene", corpus=str(corpus)).search(["river"], 1) == [[]]
    assert len(list(cache.iterdir())) == 2


@LUCENE.marks[0]
def test_two_processes_may_build_the_cached_index_at_once(corpus, cache, monkeypatch):
    RETRIEVERS.make("lucene", corpus=str(corpus))
    (folder,) = cache.iterdir()
    faster = folder.rename(folder.with_name("faster"))
    write_index = lucene.write_index

    def slow(passages, target, progress=None):
        shutil.copytree(faster, folder)
        return write_index(passages, target, progress)

    monkeypatch.setattr(lucene, "write_index", slow)
    assert RETRIEVERS.make("lucene", corpus=str(corpus)).search(["trout"], 1)[0][0].id == "p0"
    assert sorted(path.name for path in cache.iterdir()) == sorted([folder.name, "faster"])


def test_an_embedded_corpus_has_an_index_too(backend, cache):
    atlas = pytest.importorskip("sesa_env.corpora.atlas")
    if not hasattr(atlas, "generate"):
        pytest.skip("the embedded corpus is not there yet")
    passage = atlas.generate(seed=0).passages[0]
    found = RETRIEVERS.make(backend, corpus="atlas").search([f"{passage.title} {passage.text}"], 3)[0]
    assert passage.id in [hit.id for hit in found]
