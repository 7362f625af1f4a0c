"""SkillRL's bank: what is shown for which question, and when and how it grows."""

import pytest

from skill_memory import MemorySettings, Use
from skill_memory.skillrl import GENERAL, MISTAKE, SkillRLMemory, kind_of


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When was the bridge built?", "entity_attribute_lookup"),
        ("How many islands are in the lake?", "entity_attribute_lookup"),
        ("Which film is older, Polar Sky or Glass Heron?", "comparison"),
        ("Are both rivers in the same country?", "comparison"),
        ("Who is the mother of the director of Polar Sky?", "multi_hop_reasoning"),
        ("Whose brother wrote the book?", "multi_hop_reasoning"),
        ("Who wrote The Glass Heron?", "direct_retrieval"),
        ("", "direct_retrieval"),
    ],
)
def test_a_question_has_a_kind(question, kind):
    assert kind_of(question) == kind


@pytest.fixture
def open_skillrl(tmp_path):
    opened = []

    def open_(distiller=None, **settings):
        defaults = {"kind": "skillrl", "k": 6, "lookup": "keyword", "distil_every": 5, "frontier_only": False}
        memory = SkillRLMemory(MemorySettings(**(defaults | settings)), tmp_path / "bank.sqlite", distiller=distiller)
        opened.append(memory)
        return memory

    yield open_
    for memory in opened:
        if not memory.closed:
            assert memory.check() == []
            memory.close()


def sections(skills):
    return [skill.category for skill in skills]


def test_principles_come_first_then_the_kind_then_mistakes(open_skillrl):
    memory = open_skillrl()
    kinds = set(sections(memory))
    assert kinds == {GENERAL, MISTAKE, "multi_hop_reasoning", "comparison", "entity_attribute_lookup"}
    for question in ("When was it built?", "Is A or B older, or are both the same?"):
        found = sections(memory.retrieve([question])[0])
        assert found == [GENERAL] * 6 + [kind_of(question)] * 2 + [MISTAKE] * 5
    assert sections(memory.retrieve(["Who wrote it?"])[0]) == [GENERAL] * 6 + [MISTAKE] * 5


def test_by_cosine_the_k_nearest_of_any_kind_are_shown(open_skillrl):
    memory = open_skillrl(lookup="embedding", k=3)
    question = "Who is the mother of the director of Polar Sky?"
    found = memory.retrieve([question])[0]
    own = [skill for skill in found if skill.category not in (GENERAL, MISTAKE)]
    assert len(own) == 3
    assert own[0].id == "seed-family"
    assert sections(found) == [GENERAL] * 6 + sections(own) + [MISTAKE] * 5


def lost(number, question, make_failure, *, step):
    return make_failure(f"q{number}", question, step=step, solve_rate=0.0)


def play(memory, make_failure, question, rate, *, step, count):
    """Play `count` questions of one kind with a success rate, and lose one attempt at each."""
    for number in range(count):
        use = Use(f"{question}{step}{number}", (), rate, step=step, question=question)
        memory.credit([use])
        memory.offer(lost(f"{question}{step}{number}", question, make_failure, step=step))


WHEN, WHO = "When was the bridge built?", "Who wrote The Glass Heron?"


def test_it_grows_only_where_success_is_low_and_by_three_at_most(open_skillrl, recorded, make_failure, make_skill):
    numbers = iter(range(1000))
    distiller = recorded(lambda failure: [make_skill(next(numbers)), make_skill(next(numbers))])
    memory = open_skillrl(distiller)
    size = len(memory)
    play(memory, make_failure, WHEN, 0.2, step=3, count=12)
    play(memory, make_failure, WHO, 0.6, step=4, count=12)
    assert memory.consolidate(step=4) is None
    done = memory.consolidate(step=5)
    (asked,) = distiller.asked
    assert {failure.question for failure in asked} == {WHEN}
    assert len(asked) == 10
    assert len(done.admitted) == 3
    assert len(memory) == size + 3
    assert done.evicted == ()
    assert memory.waiting == 0
    new = [skill for skill in memory if skill.id in done.admitted]
    assert {skill.category for skill in new} == {"entity_attribute_lookup"}
    found = [skill.id for skill in memory.retrieve([WHEN])[0]]
    assert found[6:9] == list(reversed(done.admitted))  # the newest first
    assert not set(done.admitted) & {skill.id for skill in memory.retrieve([WHO])[0]}


def test_success_is_measured_since_the_last_time(open_skillrl, recorded, make_failure, make_skill):
    numbers = iter(range(1000))
    memory = open_skillrl(recorded(lambda failure: [make_skill(next(numbers))]))
    play(memory, make_failure, WHEN, 0.0, step=1, count=4)
    assert memory.consolidate(step=5).admitted
    play(memory, make_failure, WHEN, 0.5, step=6, count=2)
    assert memory.consolidate(step=10).admitted == ()
    play(memory, make_failure, WHEN, 0.39, step=11, count=2)
    memory.close()  # what was measured is in the file
    again = open_skillrl(recorded(lambda failure: [make_skill(next(numbers))]))
    assert again.consolidate(step=15).admitted


def test_an_outage_of_the_teacher_costs_no_failure(open_skillrl, recorded, make_failure, make_skill):
    memory = open_skillrl(recorded(lambda failure: None))
    play(memory, make_failure, WHEN, 0.0, step=1, count=3)
    done = memory.consolidate(step=5)
    assert (done.postponed, done.drained, memory.waiting) == (3, 0, 3)


def test_near_copies_come_in_and_harmful_skills_stay(open_skillrl, recorded, make_failure, make_skill):
    texts = iter(["Reread the page for a date.", "Reread the page for a date again.", "reread the page for  A date."])
    memory = open_skillrl(recorded(lambda failure: [make_skill(1, description=next(texts))]))
    play(memory, make_failure, WHEN, 0.0, step=1, count=3)
    done = memory.consolidate(step=5)
    assert len(done.admitted) == 2
    assert done.refused == {"novel": 1}
    memory.credit([Use(f"r{n}", done.admitted, 0.0, step=6, question=WHO) for n in range(9)])
    assert memory.consolidate(step=10).evicted == ()
