"""A person types one line per turn; what is typed and what is shown are lists here."""

import io
import sys

import gymnasium as gym
import pytest

import sesa_env  # noqa: F401  (registers the environments)
from agents.human import HumanAgent
from sesa_env.types import View


def view(role, **parts):
    return View(episode="e", role=role, seat=f"{role}_0", **{"turn": 0, "turns_left": 5, **parts})


def person(*lines):
    """An agent who types these lines, and the list of all that is shown to him, prompts included."""
    left, shown = iter(lines), []

    def read(prompt):
        shown.append(prompt)
        return next(left)

    return HumanAgent(read=read, write=shown.append), shown


@pytest.mark.parametrize(
    ("role", "line", "text"),
    [
        ("solver", "Oslo", "<answer>Oslo</answer>"),
        ("solver", "? capital of Norway ", "<search>capital of Norway</search>"),
        ("solver", "<think>hm</think><search>x</search>", "<think>hm</think><search>x</search>"),
        ("challenger", "Which city?", "<question>Which city?</question>"),
        ("challenger", "?Oslo", "<search>Oslo</search>"),
        ("challenger", "<question>Which?</question>", "<question>Which?</question>"),
    ],
)
def test_a_line_is_a_turn(role, line, text):
    agent, _ = person(line)
    assert agent.act([view(role, question="Which?", target="Oslo", hops=2)]) == [text]


def test_blank_lines_are_asked_for_again():
    agent, shown = person("", "  ", "Oslo")
    assert agent.act([view("solver", question="Which?")]) == ["<answer>Oslo</answer>"]
    assert shown.count("solver_0> ") == 3


def test_each_seat_is_shown_what_it_may_see_and_asked_in_order():
    agent, shown = person("Oslo", "Rome")
    later = view("solver", question="Which?", turn=1, turns_left=2, observation="\nDoc 1(Title: Rome) A city.\n\n")
    assert agent.act([view("solver", question="Which city?"), later]) == [
        "<answer>Oslo</answer>",
        "<answer>Rome</answer>",
    ]
    assert shown == [
        "Which city?\nType answer (or ?query to search); 5 turns left.",
        "solver_0> ",
        "Doc 1(Title: Rome) A city.\n(2 turns left)",
        "solver_0> ",
    ]


def test_a_challenger_is_told_the_target():
    agent, shown = person("Which?")
    agent.act([view("challenger", target="Oslo", hops=2)])
    assert "Ask for 'Oslo', so that it takes 2 searches to find." in shown[0]


def test_the_end_of_the_input_is_not_an_answer():
    def nobody(prompt):
        raise EOFError

    with pytest.raises(EOFError):
        HumanAgent(read=nobody, write=print).act([view("solver", question="Which?")])


def test_a_person_can_be_the_opponent_at_a_real_terminal(corpus_file, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Tarrow\nNeland\n"))
    env = gym.make(
        "SESA-Search-v0",
        role="challenger",
        opponent="agents.human:HumanAgent",
        corpus=str(corpus_file),
        settings={"attempts": 2, "validators": ["format"]},
    )
    env.reset(seed=0, options={"target": {"answer": "Tarrow", "hops": 1}})
    _, reward, terminated, _, info = env.step("<question>Where is The Salt Road set?</question>")
    assert (reward, terminated, info["solve_rate"]) == (1.0, True, 0.5)
    assert "Where is The Salt Road set?" in capsys.readouterr().out
