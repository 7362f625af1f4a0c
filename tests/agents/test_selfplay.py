"""The loop of four stages: samples, credit, failures, and that old log-probabilities are those of sampling."""

import json
from dataclasses import replace

import pytest

from agents.config import resolve
from agents.learner import UpdateStats
from agents.selfplay import Seat, SelfPlay, challenger_samples, describe, failures, solver_samples, uses
from agents.tokens import TokenSequence
from sesa_env.errors import CheckUnavailable, InvalidInput, SearchUnavailable
from sesa_env.judge import ExactMatchJudge
from sesa_env.types import Action, Passage, Question, Round, Target, Trajectory, Turn
from sesa_env.validators import ValidatorChain
from skill_memory.none import NoMemory


def attempt(episode, reward, *, output="x", usable=True, kinds=("search", "answer")):
    turns = tuple(Turn(kind, Action(kind, kind), passages=(Passage("p", "T", "t"),)) for kind in kinds)
    reason = "answered" if usable else "search_unavailable"
    return Trajectory(episode, episode.rpartition("/")[2], turns, reason, output, reward, usable)


def round_of(name, rewards, *, rejection="", challenger_reward=0.5, usable=True):
    solvers = () if rejection else tuple(attempt(f"{name}/solver_{i}", r) for i, r in enumerate(rewards))
    return Round(
        id=name,
        target=Target("gold", 1),
        question=None if rejection else Question(name, f"what is {name}?", ("gold",)),
        rejection=rejection,
        challenger=attempt(f"{name}/challenger_0", challenger_reward, usable=usable),
        solvers=solvers,
        solve_rate=None if rejection else sum(r > 0 for r in rewards) / len(rewards),
    )


def tokens_of(*rounds, skill_ids=()):
    tokens = {}
    for round_ in rounds:
        for one in (*round_.solvers, round_.challenger):
            sequence = TokenSequence()
            sequence.append_context([1, 2])
            sequence.append_written([3], [-0.1])
            shown = skill_ids if one.role == "solver" else ()
            tokens[one.episode] = sequence.freeze(episode=one.episode, skill_ids=shown)
    return tokens


def test_solvers_compete_only_with_attempts_at_the_same_question():
    rounds = [round_of("a", [1, 0]), round_of("b", [0, 0])]
    samples = solver_samples(rounds, tokens_of(*rounds))
    assert [(s.trajectory.episode, s.group, s.reward) for s in samples] == [
        ("a/solver_0", "a", 1),
        ("a/solver_1", "a", 0),
        ("b/solver_0", "b", 0),
        ("b/solver_1", "b", 0),
    ]


def test_an_unusable_attempt_leaves_its_own_group_and_no_other():
    whole, broken = round_of("a", [1, 0, 0]), round_of("b", [1, 0, 0])
    broken = replace(broken, solvers=(replace(broken.solvers[0], usable=False), *broken.solvers[1:]))
    samples = solver_samples([whole, broken], tokens_of(whole, broken))
    assert [s.group for s in samples] == ["a"] * 3 + ["b"] * 2


def test_refused_proposals_are_learned_from_and_failed_searches_are_not():
    rounds = [round_of("a", [1, 0]), round_of("b", [], rejection="leak", challenger_reward=-0.5)]
    rounds.append(round_of("c", [], rejection="search_unavailable", usable=False))
    samples = challenger_samples(rounds, tokens_of(*rounds))
    assert [(s.trajectory.episode, s.reward) for s in samples] == [("a/challenger_0", 0.5), ("b/challenger_0", -0.5)]


def test_proposals_can_be_compared_with_those_about_the_same_target():
    isk, tarrow, lone = (Target(answer, 1) for answer in ("Isk", "Tarrow", "Ulm"))
    targets = {"a": isk, "b": isk, "c": tarrow, "d": tarrow, "e": lone}
    rounds = [replace(round_of(name, [1, 0]), target=target) for name, target in targets.items()]
    samples = challenger_samples(rounds, tokens_of(*rounds), by_target=True)
    assert [sample.group for sample in samples] == [isk, isk, tarrow, tarrow]
    assert len({sample.group for sample in challenger_samples(rounds, tokens_of(*rounds))}) == 1


def test_the_figures_count_every_round_once():
    numbers = describe([round_of("a", [1, 0]), round_of("b", [0, 0]), round_of("c", [], rejection="leak")])
    assert numbers["rounds"] == 3
    assert numbers["valid_share"] == pytest.approx(2 / 3)
    assert numbers["rejected/leak"] == 1
    assert numbers["solve_rate/mean"] == 0.25
    assert numbers["solve_rate/frontier_share"] == 0.5
    assert numbers["solver/action/search"] == 0.5
    assert numbers["challenger/searches"] == 1.0


def test_replayed_questions_have_figures_of_their_own():
    given = replace(round_of("b", [1, 1]), challenger=None)
    again = replace(round_of("a", [1, 0, 0, 0]), challenger=None)
    numbers = describe([given], [again])
    assert (numbers["rounds"], numbers["replay/rounds"]) == (1, 1)
    assert (numbers["solve_rate/mean"], numbers["replay/solve_rate/mean"]) == (1.0, 0.25)
    assert "valid_share" not in numbers  # nobody posed a question


def test_a_step_in_which_nothing_was_asked_has_no_solve_rate():
    numbers = describe([round_of("a", [], rejection="format")])
    assert "solve_rate/mean" not in numbers
    assert numbers["valid_share"] == 0.0


class Scribe:
    """Plays fixed texts by role and hands out token records that name their episode."""

    def __init__(self, *texts):
        self.texts, self.episodes = texts, []

    def act(self, views):
        self.episodes += [view.episode for view in views if view.turn == 0]
        return [self.texts[min(view.turn, len(self.texts) - 1)].format(seat=view.seat) for view in views]

    def drain(self):
        records = {}
        for episode in self.episodes:
            sequence = TokenSequence()
            sequence.append_context([1])
            sequence.append_written([2], [-0.25])
            skills = ("s1",) if "solver" in episode else ()
            records[episode] = sequence.freeze(episode=episode, skill_ids=skills)
        self.episodes = []
        return records


class Ledger:
    """Stands in for a learner: remembers the samples."""

    def __init__(self, order, name):
        self.order, self.name = order, name

    def update(self, samples, *, gap=None):
        self.samples = list(samples)
        self.order.append(self.name)
        return UpdateStats(zero_variance_share=0.0, tokens=1, sequences=len(samples), groups=1, repetition=0.0)


class Diary(NoMemory):
    """Writes down in which order the loop calls it."""

    def __init__(self, order):
        self.order, self.uses, self.failures = order, [], []

    def credit(self, uses):
        self.order.append("credit")
        self.uses += uses

    def offer(self, failure):
        self.order.append("offer")
        self.failures.append(failure)
        return True

    def consolidate(self, *, step):
        self.order.append(f"consolidate {step}")


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


def loop(order, *, fails=False, answers=("<search>isk</search>", "<answer>{seat}</answer>"), more=()):
    settings = resolve({}, ["game.attempts=2", "rounds=2", *more])
    challenger = Scribe("<search>isk</search>", "<question>What is the name of the first seat?</question>")
    memory = Diary(order)
    play = SelfPlay(
        settings,
        retriever=Library(fails),
        draw=lambda step: [Target("solver_0", 1), Target("nobody", 1)],
        validators=ValidatorChain(settings.game.validators),
        memory=memory,
        judge=ExactMatchJudge(),
        solver=Seat(Scribe(*answers), Ledger(order, "solver")),
        challenger=Seat(challenger, Ledger(order, "challenger")),
    )
    return play, memory


def posing(*texts):
    """A challenger that poses these questions, in the order of its seats, after a search."""

    class Poser(Scribe):
        def act(self, views):
            self.episodes += [view.episode for view in views if view.turn == 0]
            places = [int(view.episode.partition("round")[2].partition("/")[0]) for view in views]
            return [
                "<search>isk</search>" if view.turn == 0 else f"<question>{texts[place]}</question>"
                for view, place in zip(views, places, strict=True)
            ]

    return Poser()


def test_a_refused_proposal_is_paid_and_its_place_is_taken_by_a_question_of_an_earlier_step():
    play, memory = loop([])
    first = play.step(1)
    assert first.numbers["replay/rounds"] == 0
    play._seats["challenger"] = play._seats["challenger"]._replace(
        agent=posing("Is solver_0 the name of the first seat?", "Which seat is it that comes first of all?")
    )
    second = play.step(2)
    refused, asked, replayed = second.rounds
    assert (refused.rejection, refused.challenger.reward, refused.solvers) == ("leak", -0.5, ())
    assert asked.question.text == "Which seat is it that comes first of all?"
    assert (replayed.challenger, replayed.target, replayed.id) == (None, None, "step2-replay0")
    assert replayed.question in [round_.question for round_ in first.rounds]
    samples = play._seats["solver"].learner.samples
    assert {sample.group for sample in samples} == {"step2-round1", "step2-replay0"}
    assert len(play._seats["challenger"].learner.samples) == 2
    assert (second.numbers["rounds"], second.numbers["replay/rounds"], second.numbers["valid_share"]) == (2, 1, 0.5)
    assert second.numbers["replay/solve_rate/mean"] == replayed.solve_rate
    assert second.numbers["solve_rate/mean"] == asked.solve_rate
    assert second.numbers["checks/leak/in"] - second.numbers["checks/leak/out"] == 1
    assert memory.failures[-1].question == replayed.question.text
    assert [use.question for use in memory.uses if use.step == 2] == [asked.question.text]  # a replay does not count


def test_the_pool_is_emptied_when_its_time_is_over_and_can_be_switched_off():
    play, _ = loop([], more=("replay.reset_every=2",))
    assert [play.step(number).numbers["replay/size"] for number in (1, 2, 3)] == [1, 0, 1]
    play, _ = loop([], more=("replay.capacity=0",))
    assert [play.step(number).numbers["replay/size"] for number in (1, 2)] == [0, 0]


def test_what_an_outage_took_is_not_replaced():
    play, _ = loop([])
    play.step(1)

    def offline(proposal, settings):
        if proposal.target.answer == "nobody":
            raise CheckUnavailable("nobody there")
        return ""

    play._validators = ValidatorChain([offline])
    second = play.step(2)
    assert [round_.rejection for round_ in second.rounds] == ["", "offline_unavailable"]
    assert second.numbers["replay/rounds"] == 0


def test_the_state_of_the_loop_goes_through_json():
    play, again = loop([])[0], loop([])[0]
    play.step(1)
    again.set_state(json.loads(json.dumps(play.get_state())))
    assert again.get_state() == play.get_state()
    with pytest.raises(InvalidInput, match="state must be what get_state returned"):
        again.set_state({})


def test_a_step_plays_learns_credits_queues_and_distils_in_this_order():
    order = []
    play, memory = loop(order)
    report = play.step(7)
    assert order == ["challenger", "solver", "credit", "offer", "offer", "consolidate 7"]
    assert [round_.solve_rate for round_ in report.rounds] == [0.5, 0.0]
    assert [(use.skill_ids, use.solve_rate) for use in memory.uses] == [(("s1",), 0.5), (("s1",), 0.0)]
    assert [(f.solve_rate, f.step, f.skill_ids, f.split) for f in memory.failures] == [
        (0.5, 7, ("s1",), "train"),
        (0.0, 7, ("s1",), "train"),
    ]
    assert memory.failures[0].trajectory.queries == ("isk",)


def test_both_roles_learn_from_the_log_probabilities_of_sampling():
    play, _ = loop([])
    play.step(1)
    for seat in play._seats.values():
        assert {one.trajectory.logp_T for one in seat.learner.samples} == {(0.0, -0.25)}


def test_the_failure_that_is_kept_is_the_one_that_says_most():
    silent = attempt("a/solver_0", 0.0, output=None, kinds=("invalid", "invalid"))
    searched = attempt("a/solver_1", 0.0)
    whole = round_of("a", [0, 0])
    round_ = replace(whole, solvers=(silent, searched))
    (failure,) = failures([round_], tokens_of(round_), step=1)
    assert failure.trajectory == searched


def test_solvers_that_lost_the_search_tool_count_for_nothing():
    whole = round_of("a", [1, 0])
    lost = replace(whole.solvers[1], usable=False)
    round_ = replace(whole, solvers=(whole.solvers[0], lost), solve_rate=1.0)
    tokens = tokens_of(round_, skill_ids=("s1",))
    assert failures([round_], tokens, step=1) == []
    assert [use.solve_rate for use in uses([round_], tokens, step=1)] == [1.0]


def test_a_question_is_known_again_by_its_text_whatever_its_round_is_called():
    first, again = round_of("a", [1, 0]), round_of("b", [1, 0])
    again = replace(again, question=Question("b", "What is A?", ("gold",)))
    tokens = tokens_of(first, again, skill_ids=("s1",))
    assert len({use.question_id for use in uses([first, again], tokens, step=1)}) == 1
    assert len({one.question_id for one in failures([first, again], tokens, step=1)}) == 1


def test_attempts_without_an_answer_count_for_no_skill():
    play, memory = loop([], answers=("hello",))
    play.step(1)
    assert memory.uses == []
    assert len(memory.failures) == 2


def test_an_outage_teaches_nothing():
    order = []
    play, memory = loop(order, fails=True)
    with pytest.raises(SearchUnavailable, match="step 1"):
        play.step(1)
    assert order == []
    assert (memory.uses, memory.failures) == ([], [])
