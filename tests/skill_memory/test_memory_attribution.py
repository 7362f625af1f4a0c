"""Whose fault a failure was, decided by searches in a real index; and that only a gap teaches."""

import json

import pytest

from sesa_env.errors import SettingsError
from sesa_env.registry import RETRIEVERS
from sesa_env.types import Passage
from skill_memory.attribution import CAUSES, Case, attribute, fits_template
from skill_memory.batch import Lab
from skill_memory.skill import Skill

TEXTS = {
    "Polar Sky": "Polar Sky is a film directed by Jon Falk.",
    "Jon Falk": "Jon Falk is a director. His mother is Anna Berg.",
    # Its title's words are so common here that a search for the title finds the others first.
    "Sky": "The surname of a painter. Her teacher was Ida Moe.",
    **{f"Sky {number}": "Sky sky sky sky sky sky." for number in range(8)},
}
CARD = Skill("skill-000001", "Find the director.", ("director",), "", ("{film} director",))


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    pytest.importorskip("bm25s")
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rows = [{"id": t, "title": t, "contents": f'"{t}"\n{text}'} for t, text in TEXTS.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return RETRIEVERS.make("bm25", corpus=str(path), index=None).search


@pytest.fixture
def cause(make_failure, search):
    def cause(*, shown=(), top_k=3, **fields):
        return attribute(Case(make_failure(**fields), shown=shown, search=search, top_k=top_k))

    return cause


def test_the_order_of_the_causes_is_the_documented_one():
    assert list(CAUSES) == ["unanswerable", "retriever_limit", "not_followed"]


def test_an_answer_that_no_passage_states_cannot_be_found(cause):
    assert cause(answers=("Bo Lind",)) == ("unanswerable", "no passage states 'Bo Lind'")
    assert cause(answers=("Bo Lind", "Anna Berg"))[0] == "gap"  # one accepted answer is enough


def test_an_answer_that_stands_in_any_passage_is_not_looked_for(cause):
    assert cause(question="Are both films by Jon Falk?", answers=("yes",), output="no")[0] == "gap"


def test_a_page_that_its_own_title_does_not_find_is_the_search_tools_fault(cause):
    question = "Who taught the sky?"
    name, detail = cause(question=question, answers=("Ida Moe",), top_k=3)
    assert (name, detail) == ("retriever_limit", "'Sky' states it and is not found by its title")
    assert cause(question=question, answers=("Ida Moe",), top_k=20)[0] == "gap"
    # An attempt that was shown the page was within reach of it.
    seen = (Passage("x", "Sky", TEXTS["Sky"]),)
    assert cause(question=question, answers=("Ida Moe",), top_k=3, passages=seen)[0] == "gap"


def test_a_skill_that_was_shown_and_not_used_needs_no_new_skill(cause):
    question = "Who is the mother of the director of Polar Sky?"
    assert cause(shown=(CARD,), question=question, queries=("Polar Sky",)) == (
        "not_followed",
        "no query has the form of skill-000001",
    )
    assert cause(shown=(CARD,), question=question, queries=("Polar Sky", "polar sky DIRECTOR"))[0] == "gap"
    assert cause(shown=(CARD,), question="Who is the mother of Jon Falk?", queries=("Polar Sky",))[0] == "gap"
    assert cause(question=question, queries=("Polar Sky",))[0] == "gap"


@pytest.mark.parametrize(
    ("query", "template", "fits"),
    [
        ("Polar Sky director", "{film} director", True),
        ("director", "{film} director", False),
        ("Polar Sky", "{film} director", False),
        ("Polar Sky", "{name}", True),
        ("Polar Sky director cast", "{film} director", True),
        ("polar sky", "polar sky", True),
        ("", "{name}", False),
    ],
)
def test_queries_are_compared_with_templates(query, template, fits):
    assert fits_template(query, template) is fits


# --- in a bank


def lab_with(search):
    return Lab(search=search, top_k=3, trial=lambda skill, questions: [], past=lambda: [])


def test_only_a_gap_teaches_and_every_cause_is_counted(open_bank, make_failure, search, recorded):
    distiller = recorded(lambda failure: [])
    bank = open_bank(distiller=distiller, attribution=True, max_cards=1)
    bank.equip(lab_with(search))
    bank.offer(make_failure("q1", answers=("Bo Lind",)))
    bank.offer(make_failure("q2"))
    bank.offer(make_failure("q3"))
    done = bank.consolidate(step=1)
    assert [[failure.question_id for failure in asked] for asked in distiller.asked] == [["q2"]]
    assert (done.drained, done.causes) == (2, {"unanswerable": 1, "gap": 1})
    assert done.numbers["memory/cause/unanswerable"] == 1
    assert bank.waiting == 1  # q3 was not looked at: one failure is all that this consolidation distils
    verdicts = {
        e.data["question_id"]: (e.cause, e.data["detail"]) for e in bank._store.events() if e.kind == "attribute"
    }
    assert verdicts == {"q1": ("unanswerable", "no passage states 'Bo Lind'"), "q2": ("gap", "")}


def test_skills_that_were_shown_are_known_even_after_they_left(open_bank, make_failure, make_skill, search):
    bank = open_bank(attribution=True, distil="none")
    bank.equip(lab_with(search))
    id = bank.admit(make_skill(1, triggers=("mother",), queries=("{person} mother",))).skill_id
    bank.offer(make_failure("q1", queries=("Polar Sky",), skill_ids=(id,)))
    with bank._revising() as revision:
        revision._remove(next(iter(bank)), cause="harmful")
    assert bank.consolidate(step=1).causes == {"not_followed": 1}


def test_nothing_is_asked_unless_it_is_switched_on(open_bank, make_failure):
    def search(queries, k):
        raise AssertionError("no search was wanted")

    bank = open_bank(distil="none")
    bank.equip(lab_with(search))
    bank.offer(make_failure("q1"))
    assert bank.consolidate(step=1).causes == {}


@pytest.mark.parametrize("name", ["attribution", "executed"])
def test_without_the_means_the_settings_are_refused(open_bank, make_failure, name):
    bank = open_bank(**{name: True})
    bank.offer(make_failure("q1"))
    with pytest.raises(SettingsError, match=f"memory.{name} needs"):
        bank.consolidate(step=1)
    assert bank.waiting == 1
