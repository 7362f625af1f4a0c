"""The solver as a reader: one call for all questions, nothing but an answer counts, and nothing is learned from it."""

import torch

from agents.config import ModelSettings
from agents.policies.hf import LanguageModel
from agents.prompts import SOLVER_SYSTEM, challenger_messages, reader_messages
from agents.reader import PolicyReader
from sesa_env.answerers import Reading
from sesa_env.checks import CheckSettings
from sesa_env.game import GameSettings
from sesa_env.types import Action, Passage, Target, Trajectory, Turn
from sesa_env.validators import Proposal, ValidatorChain

READING = Reading("Who wrote The Salt Road?", "Doc 1(Title: Orla Venn) Orla Venn wrote The Salt Road.")


class Typist:
    """Writes given texts, one character a token, and remembers how it was called."""

    max_context = 1000

    def __init__(self, *texts):
        self.texts, self.calls = texts, []

    def encode_chat(self, messages):
        return [ord(c) for message in messages for c in message.content]

    def decode(self, token_T):
        return "".join(map(chr, token_T))

    def generate(self, prompts, *, stop, max_new_tokens, temperature):
        from agents.base import Completion

        self.calls.append((prompts, stop, max_new_tokens, temperature))
        return [Completion(tuple(map(ord, text)), (-0.5,) * len(text), "stop") for text in self.texts]


def test_all_questions_are_asked_in_one_call_and_only_answers_count():
    policy = Typist("<answer>Orla Venn</answer>", "<search>Orla</search>", "I know: Orla", "<answer> </answer>")
    reader = PolicyReader(policy, max_new_tokens=8, demonstrated=False)
    assert reader.answer([READING] * 4) == ["Orla Venn", "", "", ""]
    ((prompts, stop, max_new_tokens, temperature),) = policy.calls
    assert (len(prompts), max_new_tokens, temperature) == (4, 8, 0.0)
    assert "</answer>" in stop
    assert reader.numbers == {
        "tokens_read": sum(map(len, prompts)),
        "tokens_written": sum(len(text) for text in policy.texts),
    }


def test_a_reading_fits_when_prompt_and_answer_do():
    reader = PolicyReader(Typist(), max_new_tokens=8, demonstrated=False)
    used = len(Typist().encode_chat(reader_messages(*READING, demonstrated=False))) + 8
    assert reader.fits(READING)
    filled = Reading(READING.question, READING.materials + "x" * (1000 - used))
    assert reader.fits(filled)
    assert not reader.fits(Reading(filled.question, filled.materials + "x"))


def test_the_passages_stand_where_a_search_would_have_brought_them():
    system, *_, task, search, found = reader_messages(*READING)
    assert system.content == SOLVER_SYSTEM
    assert task.content == f"Question: {READING.question}"
    assert (search.role, search.content) == ("assistant", f"<search>{READING.question}</search>")
    assert (found.role, found.content) == ("user", READING.materials)


def test_examples_are_shown_to_a_challenger_before_its_task_and_only_then():
    shown = challenger_messages("Nile", hops=2, examples=("Which sea?", "Who?"))[-1].content
    assert shown == "Example question: Which sea?\nExample question: Who?\nAnswer: Nile\nSearches needed: 2"
    assert challenger_messages("Nile", hops=2)[-1].content == "Answer: Nile\nSearches needed: 2"


def test_a_real_policy_gives_the_same_verdicts_again_and_no_weight_moves(chat_model_folder):
    settings = ModelSettings(dtype="float32", max_context=6000, max_new_tokens=4, lora_rank=2, device="cpu")
    model = LanguageModel.load(chat_model_folder, adapters=["solver"], settings=settings, seed=0)
    policy = model.policy("solver", seed=0)
    before = [tensor.clone() for tensor in model.weights.parameters("solver")]
    chain = ValidatorChain(["rag"], checks=CheckSettings(noise=2), solver=PolicyReader(policy, max_new_tokens=4))
    verdicts = [chain.check_all([proposal(n) for n in range(3)], GameSettings()) for _ in range(2)]
    assert verdicts[0] == verdicts[1]
    assert all(map(torch.equal, model.weights.parameters("solver"), before))
    assert chain.numbers["rag/asked"] == 6
    assert chain.numbers["rag/tokens_read"] > 0


def proposal(number):
    found = (Passage(f"p{number}", f"Page {number}", f"Orla Venn wrote book {number}."),)
    turn = Turn("<search>q</search>", Action("search", "q"), "seen", found)
    text = f"Who wrote book {number} of the series?"
    trajectory = Trajectory(f"r{number}/challenger_0", "challenger_0", (turn,), "posed", output=text)
    return Proposal(Target(f"Answer {number}", hops=1), trajectory, text)
