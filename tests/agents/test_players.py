"""LLM agents at their seats: the record is what was sampled, and each role's prompt holds only what is its own."""

from collections.abc import Sequence

import pytest

from agents.base import Completion, Message
from agents.challenger import make_challenger
from agents.prompts import CHALLENGER_SHOTS, SOLVER_SHOTS
from agents.rollout import play
from agents.solver import make_solver
from sesa_env.game import Game, GameSettings
from sesa_env.judge import ExactMatchJudge
from sesa_env.text import question_key
from sesa_env.types import Passage, Question, Target
from skill_memory.none import NoMemory
from skill_memory.skill import Skill

SKILL = Skill(id="s1", description="QWERTY-SKILL", triggers=("who",), avoid="", queries=("NAME",))
RULES = GameSettings(attempts=2, solver_turns=3, challenger_turns=3)


class CharPolicy:
    """Writes given texts one character per token; remembers every prompt it was shown."""

    max_context = 100_000

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.prompts: list[str] = []
        self.kept: set[str] = set()

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        return [ord(c) for message in messages for c in f"[{message.role}]{message.content}"]

    def encode_reply(self, text: str, *, ended: bool) -> list[int]:
        return [ord(c) for c in f"[user]{text}[assistant]"]

    def decode(self, token_T: Sequence[int]) -> str:
        return "".join(map(chr, token_T))

    def generate(self, prompts, *, stop, max_new_tokens, temperature, keep=None):
        self.kept = {*self.kept, *(keep or ())}
        self.prompts += [self.decode(prompt) for prompt in prompts]
        texts = [self.texts.pop(0) for _ in prompts]
        return [Completion(tuple(map(ord, text)), (-0.5,) * len(text), "stop") for text in texts]

    def forget(self, names):
        self.kept -= set(names)


class OneSkill(NoMemory):
    """Shows one skill for every question and counts how often it is asked."""

    snapshot_id = "snapshot-1"
    asked = 0

    def retrieve(self, questions, *, exclude_source=()):
        type(self).asked += 1
        self.excluded = list(exclude_source)
        return [[SKILL] for _ in questions]


class Library:
    fingerprint = "library"

    def search(self, queries, k):
        return [[Passage("p", "Isk", "The Isk flows through Tarrow.")] for _ in queries]

    def close(self):
        pass


def solver(policy, memory=None, token_budget=10_000):
    return make_solver(
        policy, NoMemory() if memory is None else memory, token_budget=token_budget, max_new_tokens=20, temperature=1.0
    )


def ask(agent, *questions):
    games = []
    for question in questions:
        game = Game(RULES, judge=ExactMatchJudge(), id=question.id)
        game.ask(question)
        games.append(game)
    return play(games, {"solver": agent}, Library())


QUESTION = Question("q1", "Which river flows through Tarrow?", ("Isk",))


def test_the_record_is_what_was_written_and_nothing_else():
    texts = ["<search>river</search>", "<answer>Isk</answer>", "<answer>Isk</answer>"]
    policy = CharPolicy(texts[0], texts[1], texts[2])
    agent = solver(policy)
    (round_,) = ask(agent, QUESTION)
    assert round_.solve_rate == 1.0
    record = agent.drain()
    searching = record["q1/solver_0"]
    written = "".join(chr(t) for t, w in zip(searching.token_T, searching.written_T, strict=True) if w)
    assert written == texts[0] + texts[2]  # in the second tick only this attempt is still playing
    assert "The Isk flows through Tarrow." in policy.decode(searching.token_T)
    assert set(searching.logp_T) == {-0.5, 0.0}
    assert agent.drain() == {}


def test_the_prompt_of_a_later_turn_is_the_earlier_prompt_grown():
    policy = CharPolicy("<search>a</search>", "<search>b</search>", *["<answer>x</answer>"] * 2)
    agent = solver(policy)
    ask(agent, QUESTION)
    first, second = policy.prompts[0], policy.prompts[2]
    assert second.startswith(first + "<search>a</search>[user]Doc 1(Title: Isk)")


def test_all_attempts_at_a_question_see_the_same_prompt_and_the_memory_is_asked_once():
    OneSkill.asked = 0
    policy = CharPolicy(*["<answer>Isk</answer>"] * 4)
    memory = OneSkill()
    agent = solver(policy, memory)
    ask(agent, QUESTION, Question("q2", "Where is Obern?", ("Neland",)))
    assert OneSkill.asked == 1
    assert memory.excluded == [question_key(QUESTION.text), question_key("Where is Obern?")]
    assert policy.prompts[0] == policy.prompts[1] != policy.prompts[2]
    record = agent.drain()
    assert {one.skill_ids for one in record.values()} == {("s1",)}
    assert {one.snapshot_id for one in record.values()} == {"snapshot-1"}


def test_an_attempt_is_kept_under_its_own_name_and_freed_with_the_record():
    policy = CharPolicy("<search>river</search>", *["<answer>Isk</answer>"] * 3)
    agent = solver(policy)
    ask(agent, QUESTION)
    assert policy.kept == {"q1/solver_0", "q1/solver_1"} == set(agent.drain())
    assert policy.kept == set()


def test_a_prompt_is_encoded_once_for_all_attempts_at_its_question():
    policy = CharPolicy(*["<answer>Isk</answer>"] * 2)
    encoded = []
    encode_chat = policy.encode_chat
    policy.encode_chat = lambda messages: encoded.append(messages) or encode_chat(messages)
    ask(solver(policy), QUESTION)
    assert len([messages for messages in encoded if QUESTION.text in messages[-1].content]) == 1


def test_skills_that_do_not_fit_the_budget_are_left_out_and_the_question_is_not():
    policy = CharPolicy(*["<answer>Isk</answer>"] * 2)
    agent = solver(policy, OneSkill(), token_budget=5)
    ask(agent, QUESTION)
    assert "QWERTY-SKILL" not in policy.prompts[0]
    assert QUESTION.text in policy.prompts[0]
    assert agent.drain()["q1/solver_0"].skill_ids == ()


def test_skills_reach_the_solver_and_never_the_challenger_and_the_target_never_the_solver():
    challenging = CharPolicy("<search>Isk</search>", "<question>Which river flows through Tarrow town?</question>")
    solving = CharPolicy(*["<answer>no</answer>"] * 2)
    game = Game(RULES, judge=ExactMatchJudge(), id="r1")
    game.pose(Target("ZX81-ANSWER", hops=1))
    agents = {
        "challenger": make_challenger(challenging, max_new_tokens=20, temperature=1.0),
        "solver": solver(solving, OneSkill()),
    }
    (round_,) = play([game], agents, Library())
    assert round_.rejection == ""
    assert all("ZX81-ANSWER" in prompt and "QWERTY-SKILL" not in prompt for prompt in challenging.prompts)
    assert all("QWERTY-SKILL" in prompt and "ZX81-ANSWER" not in prompt for prompt in solving.prompts)


def test_an_attempt_whose_context_is_full_is_marked_and_writes_no_more():
    policy = CharPolicy("<search>a</search>", "<answer>Isk</answer>")
    policy.max_context = len(policy.encode_chat([])) + 1
    agent = solver(policy)
    (round_,) = ask(agent, QUESTION)
    assert not policy.prompts
    assert {attempt.end_reason for attempt in round_.solvers} == {"policy_stopped"}
    assert not any(attempt.turns for attempt in round_.solvers)
    assert agent.drain() == {}


def test_what_a_full_context_could_not_read_is_not_learned_from():
    policy = CharPolicy("<search>a</search>", "<search>a</search>", *["<answer>Isk</answer>"] * 2)
    probe = CharPolicy(*["<answer>Isk</answer>"] * 2)
    ask(solver(probe), QUESTION)
    policy.max_context = len(probe.prompts[0]) + len("<search>a</search>") + 20
    agent = solver(policy)
    (round_,) = ask(agent, QUESTION)
    assert not policy.kept  # there is no room to go on
    assert {attempt.end_reason for attempt in round_.solvers} == {"policy_stopped"}
    for record in agent.drain().values():
        assert record.truncated
        assert record.written_T[-1]
        assert policy.decode(record.token_T).endswith("<search>a</search>")


@pytest.mark.parametrize("shots", [SOLVER_SHOTS, CHALLENGER_SHOTS])
def test_demonstrations_alternate_and_follow_the_protocol(shots):
    assert [message.role for message in shots] == ["user", "assistant"] * (len(shots) // 2)
    assert all(message.content.startswith(("<search>", "<answer>", "<question>")) for message in shots[1::2])
