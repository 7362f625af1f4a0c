"""A language model on this machine as a distiller, with a real, tiny, untrained model."""

import json

import pytest

import agents.seats  # noqa: F401  registers the distiller "local"
from agents.base import Completion
from agents.distiller import PolicyTeacher
from sesa_env.errors import SettingsError, UnknownName
from sesa_env.types import Action, Passage, Trajectory, Turn
from skill_memory.base import Failure
from skill_memory.card import Malformed
from skill_memory.distill import make_distiller
from skill_memory.teacher import ModelDistiller

CARD = {"description": "Ask for the title.", "triggers": ["who wrote"], "avoid": "", "queries": ["{book} author"]}


def failure(name, *, text="The Isk is a river."):
    turn = Turn("<search>isk</search>", Action("search", "isk"), passages=(Passage("p", "Isk", text),))
    return Failure(name, f"Who wrote {name}?", ("Orla Venn",), Trajectory("e", "solver_0", (turn,), "turn_limit"), 0.5)


class Writer:
    """Writes the same card after every prompt that ends in a request, and counts the batches."""

    max_context = 10_000

    def __init__(self):
        self.batches = []

    def encode_chat(self, messages):
        assert [message.role for message in messages] == ["system", "user"]
        return [ord(character) for message in messages for character in message.content]

    def decode(self, token_T):
        return "".join(map(chr, token_T))

    def generate(self, prompts, *, stop, max_new_tokens, temperature, keep=None):
        assert (tuple(stop), temperature) == ((), 0.0)
        self.batches.append(len(prompts))
        text = json.dumps(CARD)
        return [Completion(tuple(map(ord, text)), (-0.5,) * len(text), "end") for _ in prompts]


def test_a_policy_writes_cards_in_one_batch_and_is_loaded_when_it_is_asked():
    loaded = []

    def load():
        loaded.append(Writer())
        return loaded[0]

    distiller = ModelDistiller(PolicyTeacher(load, name="writer", max_new_tokens=200))
    assert loaded == []
    drafts = distiller.distill([failure("Harbor"), failure("Dune")])
    assert [draft[0].description for draft in drafts] == ["Ask for the title."] * 2
    assert loaded[0].batches == [2]


def test_a_request_that_fills_the_context_is_refused_and_not_cut():
    writer = Writer()
    teacher = PolicyTeacher(lambda: writer, name="writer", max_new_tokens=200)
    long, short = ModelDistiller(teacher, evidence_chars=20_000).distill(
        [failure("Harbor", text="word " * 4000), failure("Dune")]
    )
    assert isinstance(long[0], Malformed)
    assert short[0].description == "Ask for the title."
    assert writer.batches[0] == 1


def test_a_real_model_answers_each_failure_and_the_same_every_time(chat_model_folder, tmp_path):
    options = {
        "model": str(chat_model_folder),
        "dtype": "float32",
        "max_new_tokens": 8,
        "max_context": 8000,
        "batch": 2,
    }
    record = tmp_path / "replies.jsonl"
    drafts = make_distiller("local", options | {"record": str(record)}).distill([failure(name) for name in "abc"])
    assert len(drafts) == 3
    assert all(isinstance(part, Malformed) for draft in drafts for part in draft)  # it has learned nothing, so no card
    assert make_distiller("local", options).distill([failure(name) for name in "abc"]) == drafts
    assert (
        make_distiller("recorded", {"path": str(record), "evidence_chars": 3000}).distill(
            [failure(name) for name in "abc"]
        )
        == drafts
    )


def test_a_model_that_is_not_there_is_named_before_anything_is_distilled():
    with pytest.raises(UnknownName, match="no policy named 'nonesuch'"):
        make_distiller("local", {"model": "nonesuch"})
    with pytest.raises(SettingsError, match="max_context"):
        make_distiller("local", {"model": "smollm2", "max_context": 10})
    with pytest.raises(SettingsError, match="distil_options must be those of distiller 'local'"):
        make_distiller("local", {})
