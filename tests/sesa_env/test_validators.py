import pytest

from sesa_env.errors import UnknownName
from sesa_env.game import GameSettings
from sesa_env.registry import VALIDATORS
from sesa_env.types import Action, Passage, Target, Trajectory, Turn
from sesa_env.validators import Proposal, check

GOOD = "Which river floods the fields of Upper Egypt?"
FOUND = (Passage("1", "Egypt", "A country by a river."),)


def proposal(text=GOOD, *, answer="Nile", aliases=(), queries=("floods Egypt",), passages=FOUND):
    turns = tuple(Turn(f"<search>{q}</search>", Action("search", q), "seen", passages) for q in queries)
    trajectory = Trajectory("r/challenger_0", "challenger_0", turns, "posed", output=text)
    return Proposal(Target(answer, hops=1, aliases=aliases), trajectory, text)


def refusal(proposed, **settings):
    return check(proposed, GameSettings(**settings))


def test_a_sound_proposal_passes():
    assert refusal(proposal()) == ""


@pytest.mark.parametrize(
    ("proposed", "name"),
    [
        (proposal(" "), "format"),
        (proposal("a b c d e"), "length"),
        (proposal("w " * 501), "length"),
        (proposal("Incomprehensibilities everywhere?"), "length"),
        (proposal("Which river, the Nile, floods the fields?"), "leak"),
        (proposal("What is the Nile's longest tributary called?"), "leak"),
        (proposal("Which river do the ABYDOS priests call holy?", aliases=("Abydos",)), "leak"),
        (proposal(passages=()), "information"),
        (proposal(queries=()), "information"),
        (proposal(queries=("Egypt river", "egypt  RIVER")), "repeated_query"),
    ],
)
def test_each_fault_is_named(proposed, name):
    assert refusal(proposed) == name


def test_an_answer_inside_another_word_is_no_leak():
    assert refusal(proposal("Which opera was first staged in Cairo?", answer="Ra")) == ""


def test_a_question_of_a_script_without_spaces_counts_its_characters_as_words():
    assert refusal(proposal("日本でいちばん高い山の名前は？", answer="富士山")) == ""


def test_limits_come_from_the_settings():
    assert refusal(proposal(), min_searches=2) == "searches"
    assert refusal(proposal(queries=("a", "b")), min_searches=2) == ""
    assert refusal(proposal(), min_question_words=9) == "length"
    assert refusal(proposal(), max_question_chars=20) == "length"


def test_a_search_that_was_not_executed_does_not_count():
    late = Turn("<search>b</search>", Action("search", "b", reason="turn_limit"))
    sound = proposal()
    trajectory = Trajectory("r/challenger_0", "challenger_0", (*sound.trajectory.turns, late), "posed", output=GOOD)
    assert refusal(Proposal(sound.target, trajectory, GOOD), min_searches=2) == "searches"


def test_the_first_validator_of_the_settings_decides():
    faulty = proposal("Which river, the Nile, floods?", passages=())
    assert refusal(faulty, validators=("leak", "information")) == "leak"
    assert refusal(faulty, validators=("information", "leak")) == "information"
    assert refusal(faulty, validators=()) == ""


def test_every_refusal_says_why():
    for name in GameSettings().validators:
        assert VALIDATORS.get(name)(proposal(), GameSettings()) == ""
    assert "'Nile'" in VALIDATORS.get("leak")(proposal("Where is the Nile?"), GameSettings())
    assert "1 searches, fewer than 3" in VALIDATORS.get("searches")(proposal(), GameSettings(min_searches=3))


def test_an_unknown_validator_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match=r"no validator named 'grammar'; known: .*leak"):
        GameSettings(validators=("grammar",))
