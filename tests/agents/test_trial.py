"""Trials: the solver plays with and without a skill, alike in all else, and the run does not notice."""

import dataclasses

import pytest
import torch

from agents.base import Completion
from agents.config import resolve
from agents.seats import load_model
from agents.trial import SolverTrial, equip
from sesa_env.errors import SearchUnavailable
from sesa_env.judge import ExactMatchJudge
from sesa_env.types import Passage, Question
from skill_memory.none import NoMemory
from skill_memory.skill import Skill

CARD = Skill("", "Ask for NEEDLE.", ("who",), "", ("{name}",))
QUESTIONS = [Question("a", "Who wrote The Salt Road?", ("Orla Venn",)), Question("b", "Where is Isk?", ("Tarrow",))]
SMALL = [
    *("game.attempts=3", "game.solver_turns=2", "model.max_new_tokens=2", "model.max_context=6000"),
    *("model.dtype=float32", "model.lora_rank=2", "memory.token_budget=4000", "memory.k=2"),
]


class Reader:
    """A policy that answers right if its prompt has the needle, and remembers its prompts and seed."""

    max_context = 100_000

    def __init__(self, seed, log):
        self.seed, self.log = seed, log

    def encode_chat(self, messages):
        return [ord(character) for message in messages for character in message.content]

    def encode_reply(self, text, *, ended):
        return [ord(character) for character in text]

    def decode(self, token_T):
        return "".join(map(chr, token_T))

    def generate(self, prompts, *, stop, max_new_tokens, temperature, keep=None):
        texts = [self.decode(prompt) for prompt in prompts]
        self.log += [(self.seed, text) for text in texts]
        said = ["<answer>Orla Venn</answer>" if "NEEDLE" in text else "<answer>x</answer>" for text in texts]
        return [Completion(tuple(map(ord, one)), (-0.5,) * len(one), "stop") for one in said]

    def forget(self, names):
        pass


class Library:
    fingerprint = "library"

    def __init__(self, fails=False):
        self.fails = fails

    def search(self, queries, k):
        if self.fails:
            raise SearchUnavailable("down")
        return [[Passage("p", "Isk", "The Isk flows through Tarrow.")] for _ in queries]

    def close(self):
        pass


class Two(NoMemory):
    """Shows two skills and remembers for which questions its own are left out."""

    def retrieve(self, questions, *, exclude_source=()):
        self.excluded = list(exclude_source)
        skills = [dataclasses.replace(CARD, id=f"s{n}", description=f"Known {n}.") for n in (1, 2)]
        return [skills for _ in questions]


def trial_of(log, *, memory=None, retriever=None, policy=Reader):
    settings = resolve({}, SMALL)
    memory = NoMemory() if memory is None else memory
    retriever = retriever or Library()
    return SolverTrial(lambda seed: policy(seed, log), memory, settings, retriever=retriever, judge=ExactMatchJudge())


def test_both_sides_play_each_question_equally_often_and_from_one_seed():
    log = []
    tallies = trial_of(log)(CARD, QUESTIONS)
    assert [tuple(tally) for tally in tallies] == [("a", 3, 0, 3), ("b", 3, 0, 0)]
    assert len(log) == 2 * 3 * 2
    assert len({seed for seed, _ in log}) == 1
    assert sum("NEEDLE" in prompt for _, prompt in log) == 6
    other = []
    trial_of(other)(dataclasses.replace(CARD, avoid="haste"), QUESTIONS)
    assert other[0][0] != log[0][0]


def test_the_skill_comes_first_and_the_last_of_the_k_gives_way():
    log, memory = [], Two()
    trial_of(log, memory=memory)(CARD, QUESTIONS[:1])
    without, with_skill = log[0][1], log[-1][1]
    assert "Known 1." in without
    assert "Known 2." in without
    assert with_skill.index("NEEDLE") < with_skill.index("Known 1.")
    assert "Known 2." not in with_skill
    assert len(memory.excluded) == 1


def test_a_question_that_lost_the_search_tool_is_not_compared():
    class Searcher(Reader):
        def decode(self, token_T):
            return super().decode(token_T).replace("answer>", "search>")

    (tally,) = trial_of([], retriever=Library(fails=True), policy=Searcher)(CARD, QUESTIONS[:1])
    assert tuple(tally) == ("a", 0, 0, 0)


class Equipped(NoMemory):
    def equip(self, lab):
        self.lab = lab


@pytest.fixture(scope="module")
def model(chat_model_folder):
    return load_model(resolve({}, [*SMALL, f"policy={chat_model_folder}"]))


def test_a_real_solver_is_tried_and_nothing_of_the_run_moves(model):
    settings, memory = resolve({}, SMALL), Equipped()
    solver = model.policy("solver", seed=0)
    streams = solver.generator.get_state(), torch.random.get_rng_state()
    weights = {name: tensor.clone() for name, tensor in model.weights.model("solver").state_dict().items()}
    equip(memory, settings, model=model, retriever=Library(), judge=ExactMatchJudge(), past=lambda: [])
    first = memory.lab.trial(CARD, QUESTIONS)
    assert [(tally.question_id, tally.attempts) for tally in first] == [("a", 3), ("b", 3)]
    assert memory.lab.trial(CARD, QUESTIONS) == first
    assert memory.lab.top_k == settings.game.top_k
    assert torch.equal(streams[0], solver.generator.get_state())
    assert torch.equal(streams[1], torch.random.get_rng_state())
    assert all(
        torch.equal(tensor, weights[name]) for name, tensor in model.weights.model("solver").state_dict().items()
    )


def test_a_memory_that_tests_nothing_is_left_alone(model):
    memory = NoMemory()
    equip(memory, resolve({}, SMALL), model=model, retriever=Library(), judge=ExactMatchJudge(), past=lambda: [])
    assert not hasattr(memory, "lab")
