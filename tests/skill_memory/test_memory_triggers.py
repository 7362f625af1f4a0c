"""A skill is about a question that has its trigger, in whatever form; a memory can show only such skills."""

import pytest

from skill_memory import MemorySettings, Skill, SkillBank
from skill_memory.triggers import akin, is_about


def skill(*triggers):
    return Skill("", f"Look for {triggers[0]} in the title.", triggers, "", ("{name}",))


@pytest.mark.parametrize(
    ("trigger", "question", "about"),
    [
        ("who directed", "Who directed Polar Sky?", True),
        ("who directed", "Who was the director of Polar Sky?", True),  # another form of the word
        ("who directed", "Which film did Jon Falk direct?", False),  # asked the other way round
        ("where born", "When was Jon Falk born?", False),  # what is asked for is another thing
        ("city home port", "Which city is the home port of Orwen?", True),
        ("city home port", "Which city is a port?", False),
        ("when", "When was it built?", False),  # no more than a question word
    ],
)
def test_all_words_of_a_trigger_must_stand_in_the_question(trigger, question, about):
    assert is_about(skill(trigger), question) == about


def test_one_trigger_of_several_is_enough():
    assert is_about(skill("who", "birth date"), "What is the birth date?")
    assert not is_about(skill("who", "which of two"), "Who of the two directed it?")


def test_words_are_akin_by_their_first_letters():
    assert akin("directed", "director")
    assert akin("was", "was")
    assert not akin("where", "when")
    assert not akin("of", "often")


def test_a_memory_can_show_only_what_is_about_the_question(tmp_path):
    questions = ["Who was the director of Polar Sky?", "In which country does Talby lie?", ""]
    shown = {}
    for triggered in (False, True):
        settings = MemorySettings(priming=False, k=2, triggered=triggered)
        bank = SkillBank(settings, tmp_path / f"{triggered}.sqlite")
        for triggers in (("city born",), ("who directed",), ("film", "who wrote"), ("who", "director")):
            assert not bank.admit(skill(*triggers)).gate
        shown[triggered] = [[one.triggers for one in skills] for skills in bank.retrieve(questions)]
        shown[triggered, "id"] = bank.snapshot_id
        bank.close()
    assert [len(skills) for skills in shown[False]] == [2, 2, 2]
    assert [set(skills) for skills in shown[True]] == [{("who directed",), ("who", "director")}, set(), set()]
    assert shown[False, "id"] != shown[True, "id"]
