"""Agents and the tools that the rules may give: nothing in a prompt or a sampler unless they do."""

import hashlib

import pytest

from agents.base import Completion
from agents.challenger import make_challenger
from agents.human import HumanAgent
from agents.prompts import CHALLENGER_TOOL_SHOTS, SOLVER_TOOL_SHOTS, challenger_messages, solver_messages
from agents.rollout import play
from agents.solver import make_solver
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.retrieval.bm25 import Bm25Retriever
from sesa_env.retrieval.pages import PagedRetriever, PageStore
from sesa_env.text import read_action
from sesa_env.types import Passage, Question, Target
from skill_memory.none import NoMemory

PASSAGES = [Passage("1", "Isk", "The Isk is a river."), Passage("2", "Isk", "It flows through Tarrow.")]
QUESTION = Question("q1", "Which river flows through Tarrow?", ("Isk",))
BOTH = ("open", "find")


class Typist:
    """Writes given texts, a character per token; remembers prompts and stop strings."""

    max_context = 100_000

    def __init__(self, *texts):
        self.texts, self.prompts, self.stops = list(texts), [], []

    def encode_chat(self, messages):
        return [ord(c) for message in messages for c in f"[{message.role}]{message.content}"]

    def encode_reply(self, text, *, ended):
        return [ord(c) for c in f"[user]{text}[assistant]"]

    def decode(self, token_T):
        return "".join(map(chr, token_T))

    def generate(self, prompts, *, stop, **options):
        self.prompts += [self.decode(prompt) for prompt in prompts]
        self.stops.append(tuple(stop))
        texts = [self.texts.pop(0) for _ in prompts]
        return [Completion(tuple(map(ord, text)), (-0.5,) * len(text), "stop") for text in texts]

    def forget(self, names):
        pass


@pytest.fixture
def tool():
    return PagedRetriever(Bm25Retriever.from_passages(PASSAGES, "c"), PageStore(PASSAGES))


def solver(policy):
    return make_solver(policy, NoMemory(), token_budget=100, max_new_tokens=50, temperature=1.0)


def asked(**settings):
    game = Game(GameSettings(**{"attempts": 2, "solver_turns": 6, **settings}), judge=ExactMatchJudge(), id="q1")
    game.ask(QUESTION, attempts=1)
    return game


def digest(messages):
    return hashlib.sha256(repr([tuple(message) for message in messages]).encode()).hexdigest()[:16]


def test_prompts_without_tools_are_the_ones_that_checkpoints_were_trained_on():
    """Golden: whoever changes a prompt raises `PROMPT_VERSION`."""
    assert digest(solver_messages("Which river?")) == "0af833f6bc33bd8b"
    assert digest(solver_messages("Which river?", skills="S")) == "bfa301e0aaaee0d8"
    assert digest(challenger_messages("Nile", hops=2)) == "30f985c196adc94b"


@pytest.mark.parametrize("tools", [("open",), BOTH])
def test_prompts_tell_of_the_tools_there_are_and_of_no_other(tools):
    for messages in (solver_messages("Which river?", tools=tools), challenger_messages("Nile", hops=1, tools=tools)):
        text = "".join(message.content for message in messages)
        assert [tool for tool in BOTH if f"<{tool}>" in text] == list(tools)
        assert [message.role for message in messages[1:]] == ["user", "assistant"] * (len(messages) // 2 - 1) + ["user"]
    assert len(solver_messages("Which river?", tools=tools, demonstrated=False)) == 1


@pytest.mark.parametrize(("role", "shots"), [("solver", SOLVER_TOOL_SHOTS), ("challenger", CHALLENGER_TOOL_SHOTS)])
def test_demonstrations_use_the_tool_and_come_to_an_end(role, shots):
    for tool, messages in shots.items():
        kinds = [read_action(message.content, role=role, tools=BOTH).kind for message in messages[1::2]]
        assert [message.role for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        assert tool in kinds
        assert set(kinds[:-1]) <= {"search", "open", "find"}
        assert kinds[-1] == ("answer" if role == "solver" else "question")


def test_a_policy_opens_and_finds_and_stops_at_the_closing_tags(tool):
    policy = Typist("<open>Isk</open>", "<find>flows</find>", "<answer>Isk</answer>")
    agent = solver(policy)
    (round_,) = play([asked(max_opens=1, max_finds=1)], {"solver": agent}, tool)
    assert round_.solve_rate == 1.0
    assert policy.stops == [("</search>", "</answer>", "</open>", "</find>")] * 3
    assert policy.prompts[1].endswith("[user]Page(Title: Isk) The Isk is a river.\nIt flows through Tarrow.[assistant]")
    assert policy.prompts[2].endswith("[user]Doc 1(Title: Isk) It flows through Tarrow.[assistant]")
    assert "<open>a title</open>" in policy.prompts[0]
    record = agent.drain()["q1/solver_0"]
    written = "".join(chr(t) for t, w in zip(record.token_T, record.written_T, strict=True) if w)
    assert written == "<open>Isk</open><find>flows</find><answer>Isk</answer>"


def test_without_tools_nothing_of_them_is_said_and_nothing_stops_at_them(tool):
    policy = Typist("<open>Isk</open>", "<answer>Isk</answer>")
    (round_,) = play([asked()], {"solver": solver(policy)}, tool)
    assert policy.stops == [("</search>", "</answer>")] * 2
    assert "<open>" not in policy.prompts[0]
    assert round_.solvers[0].turns[0].action.reason == "no_action"


def test_a_challenger_opens_too(tool):
    policy = Typist("<open>Isk</open>", "<question>Which river flows through Tarrow, do you think?</question>")
    game = Game(GameSettings(attempts=2, max_opens=1, min_searches=0), judge=ExactMatchJudge(), id="r")
    game.pose(Target("Isk", hops=1))
    agents = {
        "challenger": make_challenger(policy, max_new_tokens=50, temperature=1.0),
        "solver": solver(Typist(*["<answer>Isk</answer>"] * 2)),
    }
    (round_,) = play([game], agents, tool)
    assert (round_.rejection, round_.solve_rate) == ("", 1.0)
    assert policy.stops[0] == ("</search>", "</question>", "</open>")


def test_a_person_is_told_of_the_tools_and_can_use_them(tool):
    told, lines = [], iter(["<open>Isk</open>", "Isk"])
    agent = HumanAgent(read=lambda prompt: next(lines), write=told.append)
    (round_,) = play([asked(max_opens=1)], {"solver": agent}, tool)
    assert [turn.action.kind for turn in round_.solvers[0].turns] == ["open", "answer"]
    assert "<open>title</open>" in told[0]
    assert "<find>" not in told[0]
    play([asked()], {"solver": HumanAgent(read=lambda prompt: "<open>Isk</open>", write=told.append)}, tool)
    assert "<open>" not in told[-1]
