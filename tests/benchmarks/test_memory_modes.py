"""Evaluating with a placebo: the skills of the run, in words that say nothing, beside memory on and off."""

import contextlib
import json

import pytest

import agents.solver
from agents.config import resolve
from benchmarks.__main__ import main
from benchmarks.datasets import Dataset
from benchmarks.evaluate import evaluate
from benchmarks.methods import method
from benchmarks.report import compare
from benchmarks.train import train
from sesa_env.errors import InvalidInput
from sesa_env.types import Question
from skill_memory.render import render_skill

SMALL = ["rounds=2", "steps=0", "model.dtype=float32", "model.max_context=6000", "model.max_new_tokens=2"]
QUESTIONS = [Question(f"q{i}", f"Who wrote The Salt Road {i}?", ("Orla Venn",)) for i in range(3)]
ASKED = Dataset("asked", QUESTIONS, corpus=None, fictional=False)


@pytest.fixture(scope="module")
def run(corpus_file, chat_model_folder, tmp_path_factory):
    settings = [*SMALL, f"corpus={corpus_file}", f"policy={chat_model_folder}", "memory.token_budget=4000"]
    return train(resolve(method("sesa"), settings), tmp_path_factory.mktemp("runs") / "sesa")


def test_the_placebo_arm_shows_the_same_skills_in_other_words(run, monkeypatch):
    shown = {}
    render = agents.solver.render_skills

    def spy(skills, *, fits):
        shown[mode] += map(render_skill, skills)
        return render(skills, fits=fits)

    monkeypatch.setattr(agents.solver, "render_skills", spy)
    rows = {}
    for mode in ("on", "placebo"):
        shown[mode] = []
        rows[mode] = evaluate(run, ASKED, memory_modes=(mode,))
    assert all(row.skill_ids for row in rows["on"])
    assert [row.skill_ids for row in rows["on"]] == [row.skill_ids for row in rows["placebo"]]
    for plain, other in zip(shown["on"], shown["placebo"], strict=True):
        assert plain != other
        assert len(plain) == len(other)


def test_all_three_arms_come_from_one_call_and_are_compared(run):
    rows = evaluate(run, ASKED, memory_modes=("off", "on", "placebo"))
    assert [row.memory for row in rows] == [mode for mode in ("off", "on", "placebo") for _ in ASKED.questions]
    assert [comparison.baseline for comparison in compare(rows)] == ["off", "placebo"]
    assert {row.memory for row in evaluate(run, ASKED)} == {"off", "on"}


def test_a_placebo_needs_skills(corpus_file, chat_model_folder, tmp_path):
    settings = [*SMALL, f"corpus={corpus_file}", f"policy={chat_model_folder}"]
    run = train(resolve(method("ssp"), settings), tmp_path / "ssp")
    with pytest.raises(InvalidInput, match="memory cannot be 'placebo': this run has no skills"):
        evaluate(run, ASKED, memory_modes=("placebo",))
    with pytest.raises(InvalidInput, match="memory must be of"):
        evaluate(run, ASKED, memory_modes=("sham",))


def test_the_command_takes_the_mode_and_prints_the_difference(run, tmp_path, monkeypatch, capsys):
    questions = tmp_path / "roads.jsonl"
    row = {"id": "q1", "question": "Who wrote The Salt Road?", "answers": ["Orla Venn"]}
    questions.write_text(json.dumps(row) + "\n")
    out = tmp_path / "rows.jsonl"
    command = ["sesa", "eval", str(run), "--data", str(questions), "--memory", "on,placebo", "--out", str(out)]
    monkeypatch.setattr("sys.argv", command)
    with contextlib.suppress(SystemExit):
        main()
    assert "Memory on minus memory placebo" in capsys.readouterr().out
    assert [json.loads(line)["memory"] for line in out.read_text().splitlines()] == ["on", "placebo"]
