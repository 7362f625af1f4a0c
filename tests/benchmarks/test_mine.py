"""Reading a run's rounds back, and mining skills from what was lost in them."""

import json
import shutil
from dataclasses import replace

import pytest

from agents.config import resolve
from benchmarks.methods import method
from benchmarks.mine import mine
from benchmarks.rounds import past_questions, read_rounds, run_failures
from benchmarks.train import train
from sesa_env.errors import CorpusError, InvalidInput, SettingsError
from sesa_env.text import question_key
from skill_memory import SkillBank
from skill_memory.encode import HashingEncoder
from skill_memory.records import read_skills

SMALL = [
    *("rounds=6", "game.attempts=4", "game.validators=[format]", "game.max_invalid=9", "game.solver_turns=9"),
    *("game.challenger_turns=9", "memory.token_budget=4000", "memory.frontier_only=false", "memory.distil_every=1"),
    *("model.dtype=float32", "model.max_context=6000", "model.max_new_tokens=2", "model.lora_rank=2"),
]


def settings_for(name, corpus, folder, *more):
    return resolve(method(name), [*SMALL, f"corpus={corpus}", f"policy={folder}", *more])


@pytest.fixture(scope="module")
def run(corpus_file, chat_model_folder, tmp_path_factory):
    """A bootstrap run whose memory keeps all its failures waiting."""
    settings = settings_for("sesa", corpus_file, chat_model_folder, "steps=2", "memory.min_waiting=1000")
    return train(settings, tmp_path_factory.mktemp("runs") / "bootstrap")


def offered(run):
    bank = SkillBank(resolve({}).memory, run / "bank.sqlite")
    failures = [item.failure for item in bank._queue.waiting()]
    bank.close()
    return failures


def without_scores(failure):
    """A passage's id and score are not in the file."""

    def clean(passages):
        return tuple(replace(passage, id="", score=0.0) for passage in passages)

    turns = tuple(replace(turn, passages=clean(turn.passages)) for turn in failure.trajectory.turns)
    trajectory = replace(failure.trajectory, turns=turns)
    return replace(failure, trajectory=trajectory, evidence=clean(failure.evidence))


def test_the_failures_of_a_file_are_those_its_memory_was_offered(run):
    kept = {}
    for failure in run_failures(run / "rounds.jsonl"):
        kept.setdefault((failure.step, failure.question_id), failure)  # one per question and step waits
    waiting = offered(run)
    assert len(waiting) >= 2
    assert any(failure.trajectory.passages for failure in waiting)
    assert any(failure.skill_ids for failure in waiting)
    for failure in waiting:
        assert without_scores(kept[failure.step, failure.question_id]) == without_scores(failure)


def test_the_questions_of_a_file_are_named_by_their_text(run, tmp_path):
    past = past_questions(run / "rounds.jsonl")
    assert past
    assert all(item.question.id == question_key(item.question.text) for item in past)
    rated = [played.round_.solve_rate for played in read_rounds(run / "rounds.jsonl") if played.round_.question]
    assert [item.solve_rate for item in past] == [rate for rate in rated if rate is not None]
    assert past_questions(tmp_path / "none.jsonl") == []


def test_an_unfinished_line_is_passed_over_and_a_broken_one_named(run, tmp_path):
    path = tmp_path / "rounds.jsonl"
    whole = (run / "rounds.jsonl").read_bytes()
    path.write_bytes(whole + b'{"step": 3, "id"')
    assert len(list(read_rounds(path))) == len(whole.splitlines()) >= 12
    path.write_bytes(whole + b'{"step": 3}\n')
    with pytest.raises(InvalidInput, match=f"line {len(whole.splitlines()) + 1}: not a round"):
        list(read_rounds(path))
    with pytest.raises(InvalidInput, match="there is none at"):
        list(read_rounds(tmp_path / "none.jsonl"))


def test_mined_skills_passed_the_gates_and_differ_from_each_other_and_from_the_seeds(run, tmp_path):
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    mined = mine(run, tmp_path / "mined.jsonl")
    assert mined.skills
    assert read_skills(tmp_path / "mined.jsonl") == list(mined.skills)
    assert mined.failures == len(run_failures(run / "rounds.jsonl"))
    assert (mined.waiting, any(skill.is_seed for skill in mined.skills)) == (0, False)
    assert all(skill.source for skill in mined.skills)
    vector_ND = HashingEncoder().encode_passages([skill.text for skill in mined.skills])
    cosine_NN = vector_ND @ vector_ND.T
    assert all(cosine_NN[i, j] <= 0.75 + 1e-5 for i in range(len(vector_ND)) for j in range(i))
    assert {path: path.read_bytes() for path in before} == before
    again = mine(run, tmp_path / "again.jsonl")
    assert again == mined


def test_no_more_are_mined_than_wanted(run, tmp_path):
    mined = mine(run, tmp_path / "mined.jsonl", limit=1, overrides=["memory.max_cards=1"])
    assert len(mined.skills) == 1
    assert mined.waiting > 0


def test_another_distiller_and_the_causes_of_failures(run, tmp_path):
    mined = mine(run, tmp_path / "none.jsonl", overrides=["memory.distil=none", "memory.attribution=true"])
    assert (mined.skills, mined.waiting) == ((), 0)
    assert sum(mined.causes.values()) >= 2


def test_mistakes_write_nothing(run, tmp_path):
    out = tmp_path / "mined.jsonl"
    with pytest.raises(SettingsError, match="unknown setting"):
        mine(run, out, overrides=["memory.destil=none"])
    with pytest.raises(InvalidInput, match="limit must be at least 1"):
        mine(run, out, limit=0)
    with pytest.raises(CorpusError, match="no recorded replies"):
        mine(run, out, overrides=["memory.distil=recorded", f"memory.distil_options.path={tmp_path / 'none'}"])
    assert not out.exists()
    out.write_text("mine")
    with pytest.raises(InvalidInput, match="out must be a new file"):
        mine(run, out)
    assert out.read_text() == "mine"


def test_the_command_says_what_it_mined(run, tmp_path, sesa):
    out = tmp_path / "mined.jsonl"
    code, printed, _ = sesa("skills", "mine", run, "memory.max_cards=1", "--out", out, "--limit", 1)
    assert code == 0
    assert printed.startswith(f"1 skills from {len(run_failures(run / 'rounds.jsonl'))} failures written to")
    assert len(read_skills(out)) == 1
    code, _, told = sesa("skills", "mine", run, "--out", out)
    assert code == 2
    assert "out must be a new file" in told


def test_the_command_calibrates_an_encoder(sesa):
    code, printed, _ = sesa("skills", "calibrate", "--encoder", "hashing", "--json")
    found = json.loads(printed)
    assert code == 0
    assert found["calibrated"] == found["in use"]
    assert found["calibrated"]["threshold"] == HashingEncoder().max_similarity
    code, printed, _ = sesa("skills", "calibrate", "--rejection", 0.99, "--json")
    assert json.loads(printed)["calibrated"]["threshold"] < found["calibrated"]["threshold"]
    assert sesa("skills", "calibrate", "--encoder", "nonesuch")[0] == 2


def test_a_run_with_trials_goes_on_as_if_it_had_not_been_stopped(corpus_file, chat_model_folder, tmp_path):
    more = ["memory.min_waiting=1", "checkpoint_every=1", "memory.max_cards=1", "memory.trial_questions=1"]
    more += ["memory.attribution=false"]  # an untrained model's questions have no answer in the corpus
    settings = settings_for("sesa_v", corpus_file, chat_model_folder, *more, "steps=3")
    whole = train(settings, tmp_path / "whole")
    shutil.copytree(whole, tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "step-000003")
    parts = train(None, tmp_path / "parts", resume=True)
    assert (parts / "events.jsonl").read_text() == (whole / "events.jsonl").read_text()
    events = [json.loads(line) for line in (whole / "events.jsonl").read_text().splitlines()]
    assert sum(event["memory/drained"] for event in events) > 0
    assert sum(event["memory/trial_attempts"] for event in events) > 0
