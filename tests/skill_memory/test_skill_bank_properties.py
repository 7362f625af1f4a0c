"""Whatever is offered, credited and consolidated, in whatever order: the promises of the bank hold."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sesa_env.types import Action, Passage, Trajectory, Turn
from skill_memory import Failure, MemorySettings, SkillBank, Use

SETTINGS = MemorySettings(distil_every=2, min_waiting=2, max_cards=4, queue_size=6, cap=18)
QUESTIONS = [
    "Who is the mother of the director of Polar Sky?",
    "When was the founder of Kessel born?",
    "Which river is longer, the Orl or the Venna?",
    "Are both towns in the same country?",
    "How many people live in Ostra?",
    "Who wrote the book that Ida Moe translated?",
    "Where are the headquarters of Kessel?",
    "What is it?",
]
PASSAGES = (Passage("p", "Polar Sky", "Directed by Jon Falk, whose mother is Anna Berg."),)


class BankMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.bank = SkillBank(SETTINGS, Path(self.folder.name) / "bank.sqlite")
        self.step = 0
        self.ever = {skill.id for skill in self.bank}
        self.history = {}

    @rule(
        number=st.integers(0, 30),
        rate=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
        searches=st.integers(0, 3),
        found=st.booleans(),
        answered=st.booleans(),
    )
    def offer(self, number, rate, searches, found, answered):
        passages = PASSAGES if found else ()
        turns = tuple(Turn("", Action("search", f"query {n % 2}"), passages=passages) for n in range(searches))
        output, reason = ("Jon Falk", "answered") if answered else (None, "turn_limit")
        trajectory = Trajectory("e", "solver_0", turns, reason, output)
        question = QUESTIONS[number % len(QUESTIONS)]
        shown = tuple(skill.id for skill in self.bank.retrieve([question])[0])
        failure = Failure(f"q{number}", question, ("Anna Berg",), trajectory, rate, shown, step=self.step)
        assert self.bank.offer(failure) == (0 < rate < 1)

    @rule(number=st.integers(0, 30), rate=st.floats(0, 1), worst=st.booleans())
    def credit(self, number, rate, worst):
        shown = self.bank.retrieve([QUESTIONS[number % len(QUESTIONS)]], exclude_source=[f"q{number}"])[0]
        learned = [skill for skill in self.bank if not skill.is_seed]
        used = learned[:2] if worst else shown
        before = self.bank.snapshot_id
        self.bank.credit([Use(f"q{number}", tuple(skill.id for skill in used), rate, step=self.step)])
        assert self.bank.snapshot_id == before

    @rule()
    def consolidate(self):
        self.step += 1
        before, waiting = {skill.id for skill in self.bank}, self.bank.waiting
        done = self.bank.consolidate(step=self.step)
        after = {skill.id for skill in self.bank}
        if done is None:
            assert after == before
        else:
            assert after == (before | set(done.admitted)) - set(done.evicted)
            assert not set(done.admitted) & self.ever
            assert self.bank.waiting == max(0, waiting - SETTINGS.max_cards)
            self.ever |= set(done.admitted)
        self.history[self.step] = list(self.bank)

    @precondition(lambda self: self.history)
    @rule()
    def rebuild(self):
        for step in range(1, self.step):
            rebuilt = {skill.id: skill for skill in self.bank.bank_at(step)}
            assert list(rebuilt) == [skill.id for skill in self.history[step]]

    @rule()
    def reopen(self):
        skills, waiting, snapshot = list(self.bank), self.bank.waiting, self.bank.snapshot_id
        self.bank.close()
        self.bank = SkillBank(SETTINGS, Path(self.folder.name) / "bank.sqlite")
        assert (list(self.bank), self.bank.waiting, self.bank.snapshot_id) == (skills, waiting, snapshot)

    @invariant()
    def promises(self):
        skills = list(self.bank)
        assert len(skills) == len({skill.id for skill in skills}) <= SETTINGS.cap
        assert sum(skill.is_seed for skill in skills) == 15
        assert self.bank.waiting <= SETTINGS.queue_size

    def teardown(self):
        assert self.bank.check() == []
        assert self.bank.bank_at(self.step + 1) == list(self.bank)
        self.bank.close()
        self.folder.cleanup()


TestBank = BankMachine.TestCase
TestBank.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
