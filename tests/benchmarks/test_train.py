"""A run from settings to folder, a tiny model, real gradients: complete, repeatable, resumable, all or nothing."""

import json
import re
import shutil
from contextlib import closing

import pytest
import torch
from safetensors.torch import load_file

from agents.config import load_settings, resolve
from agents.seats import load_model, make_seats
from benchmarks.datasets import Dataset, load_dataset
from benchmarks.evaluate import evaluate
from benchmarks.methods import method
from benchmarks.train import draw_tasks, keep_steps, train
from sesa_env.errors import CorpusError, IndexMismatch, InvalidInput, ModelNotFound, SettingsError, UnknownName
from sesa_env.targets import open_targets
from sesa_env.types import Question, Target
from skill_memory import NoMemory, SkillBank

SMALL = [
    "rounds=6",
    "game.attempts=4",
    "game.validators=[format]",
    "game.max_invalid=9",
    "game.solver_turns=9",
    "game.challenger_turns=9",
    "game.invalid_reward=-1.0",
    "memory.token_budget=4000",
    "memory.distil_every=1",
    "memory.min_waiting=1",
    "model.dtype=float32",
    "model.max_context=6000",
    "model.max_new_tokens=2",
    "model.lora_rank=2",
    "solver.lr=0.01",
    "challenger.lr=0.01",
]


def settings_for(name, corpus, folder, *more):
    return resolve(method(name), [*SMALL, f"corpus={corpus}", f"policy={folder}", *more])


@pytest.fixture(scope="module")
def run(corpus_file, chat_model_folder, tmp_path_factory):
    settings = settings_for("sesa", corpus_file, chat_model_folder, "steps=2", "checkpoint_every=1")
    return train(settings, tmp_path_factory.mktemp("runs") / "sesa")


def dataset(*questions, name="roads"):
    return Dataset(name, list(questions), corpus=None, fictional=False)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_folder_says_everything_about_the_run(run):
    names = {path.name for path in run.iterdir()}
    assert {"settings.yaml", "manifest.json", "events.jsonl", "rounds.jsonl", "timings.jsonl"} <= names
    assert {"tensorboard", "bank.sqlite", "checkpoints"} <= names
    assert [event["step"] for event in lines(run / "events.jsonl")] == [1, 2]
    posed = [round_ for round_ in lines(run / "rounds.jsonl") if round_["challenger"]]
    assert len(posed) == 12
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
        "step-000000",
        "step-000001",
        "step-000002",
    ]
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["seeds"] == [0]
    assert str(run.parent) not in json.dumps(manifest)


@pytest.mark.parametrize("role", ["solver", "challenger"])
def test_each_role_is_updated_by_real_gradients_and_logs_them(run, role):
    events = lines(run / "events.jsonl")
    for name in ("loss", "kl", "entropy", "ratio_mean", "clip_fraction", "zero_variance_share", "logp_gap_max"):
        assert f"{role}/{name}" in events[0]
    assert f"{role}/action/search" in events[0]
    assert max(event[f"{role}/grad_norm"] for event in events) > 0
    assert max(event[f"{role}/logp_gap_max"] for event in events) < 1e-4
    first, last = (load_file(run / f"checkpoints/step-00000{step}/weights.safetensors") for step in (1, 2))
    assert any(name.startswith(role) and not torch.equal(first[name], last[name]) for name in first)


def test_failures_at_the_frontier_become_skills_that_later_prompts_can_show(run):
    events = lines(run / "events.jsonl")
    admitted = {skill for event in events for skill in event.get("consolidation", {}).get("admitted", ())}
    assert admitted
    with closing(SkillBank(load_settings(run / "settings.yaml").memory, run / "bank.sqlite")) as bank:
        learned = [skill for skill in bank if skill.id in admitted]
        assert {skill.id for skill in learned} == admitted
        assert not any(skill.is_seed for skill in learned)
        asked = [f"{skill.description} {', '.join(skill.triggers)}" for skill in learned]
    rows = evaluate(
        run, dataset(*(Question(f"q{i}", text, ("x",)) for i, text in enumerate(asked))), memory_modes=("on",)
    )
    assert admitted & {skill for row in rows for skill in row.skill_ids}


def test_the_two_policies_draw_from_different_random_streams(run):
    state = json.loads((run / "checkpoints/step-000000/state.json").read_text())
    assert state["generators"]["solver"] != state["generators"]["challenger"]


def test_the_same_settings_and_seed_give_the_same_run(run, tmp_path):
    again = train(load_settings(run / "settings.yaml"), tmp_path / "again")
    for name in ("events.jsonl", "rounds.jsonl", "settings.yaml"):
        assert (again / name).read_text() == (run / name).read_text()
    assert same_weights(again, run)


def test_a_run_that_was_cut_goes_on_and_ends_as_one_that_was_not(run, tmp_path):
    settings = load_settings(run / "settings.yaml")
    whole = train(settings, tmp_path / "cut")
    for late in ("step-000002",):  # as if it had been killed in the second step, with a line half written
        for file in (whole / "checkpoints" / late).iterdir():
            file.unlink()
    (whole / "events.jsonl").open("a").write('{"step": 3, "rou')
    train(None, whole, resume=True)
    for name in ("events.jsonl", "rounds.jsonl"):
        assert (whole / name).read_text() == (run / name).read_text()
    assert same_weights(whole, run)
    assert bank_of(whole) == bank_of(run)


REMEMBERING = [
    "game.validators=[format,near_duplicate,target_share,eval_overlap,rag]",
    "game.checks.answerer=title",
    "game.checks.target_share=0.2",
    "game.checks.target_window=10",
    "rounds=36",
    "game.attempts=2",
    "steps=2",
    "checkpoint_every=1",
]


def test_a_run_whose_checks_and_pool_remember_goes_on_as_if_it_had_not_been_cut(
    corpus_file, chat_model_folder, tmp_path
):
    tests = tmp_path / "tests.jsonl"
    tests.write_text('{"id": "t", "question": "Who is it?", "answers": ["nobody"]}\n')
    more = [*REMEMBERING, f"game.checks.test_questions=[{tests}]"]
    whole = train(settings_for("sesa", corpus_file, chat_model_folder, *more), tmp_path / "whole")
    second = lines(whole / "events.jsonl")[1]
    # What the first step left behind must have mattered, or this test could not fail.
    assert second["checks/near_duplicate/out"] < second["checks/near_duplicate/in"]
    assert second["replay/rounds"] > 0
    assert second["checks/rag/noise_blocks"] > 0
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints/step-000002")
    train(None, cut, resume=True)
    for name in ("events.jsonl", "rounds.jsonl", "checkpoints/step-000002/loop.json"):
        assert (cut / name).read_text() == (whole / name).read_text()
    assert same_weights(cut, whole)
    assert bank_of(cut) == bank_of(whole)


def test_in_the_log_what_goes_into_a_check_is_what_comes_out_and_what_it_refused(run):
    for event in lines(run / "events.jsonl"):
        names = [name.split("/")[1] for name in event if name.startswith("checks/") and name.endswith("/in")]
        assert names == ["format"]
        assert event["checks/format/in"] - event["checks/format/out"] <= event.get("rejected/format", 0)
        assert event["rounds"] == 6


def test_the_solver_itself_verifies_questions_and_learns_nothing_from_it(corpus_file, chat_model_folder, tmp_path):
    more = ["game.validators=[format,rag]", "rounds=12", "game.attempts=2", "steps=1"]
    run = train(settings_for("ssp", corpus_file, chat_model_folder, *more), tmp_path / "ssp")
    (event,) = lines(run / "events.jsonl")
    assert event["checks/rag/asked"] > 0
    assert event["checks/rag/tokens_read"] > event["checks/rag/tokens_written"] > 0
    attempts = sum(len(round_["solvers"]) for round_ in lines(run / "rounds.jsonl"))
    assert event["solver/samples"] <= attempts


def test_a_target_is_posed_about_as_often_as_asked_and_a_step_has_as_many_rounds():
    targets = [Target(f"answer {number}", 1 + number % 3) for number in range(30)]
    drawn = draw_tasks(targets, resolve({}, ["rounds=8", "proposals=4"]), 1)
    assert len(drawn) == 8
    assert drawn[:4] == [drawn[0]] * 4
    assert drawn[4:] == [drawn[4]] * 4
    assert drawn[0] != drawn[4]


def test_targets_of_a_file_are_posed_about_with_their_examples(corpus_file, chat_model_folder, tmp_path):
    answers = tmp_path / "answers.jsonl"
    rows = [{"answer": name, "hops": 1 + n % 2, "examples": ["Which?"]} for n, name in enumerate("ABCDEF")]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = settings_for("ssp", corpus_file, chat_model_folder, f"targets=answers:{answers}", "steps=1")
    run = train(settings, tmp_path / "run")
    targets = [round_["target"] for round_ in lines(run / "rounds.jsonl") if round_["target"]]
    assert sorted(target["hops"] for target in targets) == [1, 1, 1, 2, 2, 2]
    assert {target["answer"] for target in targets} == set("ABCDEF")
    answers.write_text('{"answer": "A"}\n{"answer": "B", "hops": 2}\n')
    open_targets.cache_clear()
    with pytest.raises(IndexMismatch, match="began with targets"):
        train(None, run, resume=True)


def bank_of(folder):
    with closing(SkillBank(load_settings(folder / "settings.yaml").memory, folder / "bank.sqlite")) as bank:
        assert bank.check() == []
        return list(bank), bank.waiting


def test_a_run_is_not_resumed_over_another_corpus(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    text = (copy / "settings.yaml").read_text()
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "a", "title": "A", "contents": "\\"A\\"\\nAnother text."}\n')
    (copy / "settings.yaml").write_text(re.sub(r"corpus: .*", f"corpus: {other}", text))
    with pytest.raises(IndexMismatch, match="began with corpus"):
        train(None, copy, resume=True)


def test_a_checkpoint_of_other_prompts_is_refused(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    state = copy / "checkpoints/step-000002/state.json"
    state.write_text(state.read_text().replace("search-tags/v1", "search-tags/v0"))
    with pytest.raises(InvalidInput, match="search-tags/v0"):
        evaluate(copy, dataset(Question("q", "Who?", ("x",))))


def test_a_damaged_checkpoint_is_named(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "checkpoints/step-000002/weights.safetensors").write_bytes(b"torn")
    with pytest.raises(InvalidInput, match="damaged"):
        evaluate(copy, dataset(Question("q", "Who?", ("x",))))


@pytest.mark.parametrize("odd", ["\u2028", "\u0085", "\x1e"])
def test_line_ends_inside_a_text_do_not_end_a_record(tmp_path, odd):
    path = tmp_path / "rounds.jsonl"
    kept = [json.dumps({"step": step, "text": f"a{odd}b"}, ensure_ascii=False) for step in (1, 2)]
    path.write_text("\n".join([*kept, '{"step": 3}', '{"st']), encoding="utf-8", newline="")
    keep_steps(path, 2)
    assert path.read_text(encoding="utf-8") == "\n".join(kept) + "\n"


def test_a_row_knows_whether_its_world_is_made_up_and_whether_it_was_trained_in(
    corpus_file, chat_model_folder, tmp_path
):
    run = train(settings_for("ssp", "atlas", chat_model_folder, "steps=0"), tmp_path / "ssp")
    for name, label in (("atlas:0", "atlas:0, training world"), ("atlas:1", "atlas:1")):
        (row,) = evaluate(run, load_dataset(name, limit=1))
        assert (row.dataset, row.fictional) == (label, True)
    (row,) = evaluate(run, dataset(Question("q", "Who?", ("x",))))
    assert not row.fictional


def same_weights(one, other):
    first, second = (load_file(folder / "checkpoints/step-000002/weights.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_shared_weights_keep_one_adapter_and_one_optimiser(corpus_file, chat_model_folder, tmp_path):
    settings = settings_for("ssp", corpus_file, chat_model_folder, "steps=1")
    run = train(settings, tmp_path / "ssp")
    names = load_file(run / "checkpoints/step-000001/weights.safetensors")
    assert {name.partition("/")[0] for name in names} == {"shared"}
    seats = make_seats(load_model(settings), NoMemory(), settings)
    assert seats["solver"].learner.optimizer is seats["challenger"].learner.optimizer


def test_zero_steps_save_the_untrained_policy_and_the_primed_memory(corpus_file, chat_model_folder, tmp_path):
    run = train(settings_for("base", corpus_file, chat_model_folder), tmp_path / "base")
    rows = evaluate(run, dataset(Question("q", "Who wrote The Salt Road?", ("Orla Venn",))), memory_modes=("on",))
    assert len(rows[0].skill_ids) >= 1


def test_an_evaluation_gives_a_row_per_question_and_mode_and_leaves_the_run_as_it_was(run):
    questions = [Question(f"q{i}", f"Who wrote The Salt Road {i}?", ("Orla Venn",)) for i in range(5)]
    bank = (run / "checkpoints/step-000002/memory.sqlite").read_bytes()
    rows = evaluate(run, dataset(*questions), memory_modes=("on", "off"))
    assert [(row.memory, row.question_id) for row in rows] == [(m, q.id) for m in ("on", "off") for q in questions]
    assert all(row.skill_ids for row in rows[:5])
    assert not any(row.skill_ids for row in rows[5:])
    assert not any(row.fictional for row in rows)
    assert (run / "checkpoints/step-000002/memory.sqlite").read_bytes() == bank


def test_answers_do_not_depend_on_who_else_is_asked(run):
    questions = [Question(f"q{i}", f"Where is Tarrow {'x' * i}?", ("Neland",)) for i in range(4)]
    together = evaluate(run, dataset(*questions), memory_modes=("off",))
    alone = [evaluate(run, dataset(one), memory_modes=("off",))[0] for one in questions]
    assert together == alone


def test_a_run_without_skills_has_no_memory_to_switch_on(corpus_file, chat_model_folder, tmp_path):
    run = train(settings_for("ssp", corpus_file, chat_model_folder, "steps=0"), tmp_path / "ssp")
    asked = dataset(Question("q", "Who?", ("x",)))
    with pytest.raises(InvalidInput, match="no skills"):
        evaluate(run, asked, memory_modes=("on",))
    assert [row.memory for row in evaluate(run, asked)] == ["off"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("policy=./no-such-model", ModelNotFound),
        ("corpus=no-such-corpus.jsonl", CorpusError),
        ("memory.kind=diary", UnknownName),
        ("retriever=google", UnknownName),
        ("memory.encoder=magic", UnknownName),
        ("targets=answers", SettingsError),
        ("targets=answers:no-such-file.jsonl", CorpusError),
        ("game.validators=[eval_overlap]", SettingsError),
        ("game.checks.test_questions=[no-such-file.jsonl]", CorpusError),
    ],
)
def test_a_run_that_cannot_start_leaves_nothing_behind(corpus_file, chat_model_folder, tmp_path, change, error):
    with pytest.raises(error):
        train(settings_for("sesa", corpus_file, chat_model_folder, change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(run):
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(InvalidInput, match="new or empty"):
        train(load_settings(run / "settings.yaml"), run)
    assert sorted(path.name for path in run.iterdir()) == before


def write_questions(path, *texts):
    rows = [{"id": text, "question": text, "answers": ["Talby"]} for text in texts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_solvers_learn_from_given_questions_without_a_challenger(corpus_file, chat_model_folder, tmp_path):
    given = write_questions(tmp_path / "given.jsonl", "Which town?", "Which village?", "Which test?")
    tested = write_questions(tmp_path / "test.jsonl", "which  TEST?")
    options = [
        f"questions=[{given}]",
        f"game.checks.test_questions=[{tested}]",
        "steps=1",
        "challenger.lr=0",
        "game.solver_turns=2",
    ]
    settings = settings_for("search_r1", corpus_file, chat_model_folder, *options)
    run = train(settings, tmp_path / "run")
    rounds = lines(run / "rounds.jsonl")
    assert {round_["question"]["id"] for round_ in rounds} == {"Which town?", "Which village?"}
    assert all(round_["challenger"] is None and len(round_["solvers"]) == 4 for round_ in rounds)
    event = lines(run / "events.jsonl")[0]
    assert (event["rounds"], event["challenger/samples"], event["solver/samples"]) == (6, 0, 24)


def test_a_challenger_that_learns_and_given_questions_contradict_each_other():
    with pytest.raises(SettingsError, match=r"challenger.lr must be 0 with questions"):
        resolve(method("ssp"), ["questions=[atlas]"])


def test_no_question_is_left_when_all_are_tested(corpus_file, chat_model_folder, tmp_path):
    given = write_questions(tmp_path / "given.jsonl", "Which town?")
    options = [
        f"questions=[{given}]",
        f"game.checks.test_questions=[{given}]",
        "challenger.lr=0",
        "game.solver_turns=2",
    ]
    with pytest.raises(SettingsError, match=r"questions .* must hold some that no test has"):
        train(settings_for("search_r1", corpus_file, chat_model_folder, *options), tmp_path / "run")
    assert not (tmp_path / "run").exists()
