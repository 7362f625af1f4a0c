"""A bench: arms and seeds from a plan to a table, resumed where it stopped, compared question by question."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.bench import EVAL_FILE, PLANS, Plan, bench, contrasts, lines, load_plan, settings_of, table
from benchmarks.report import Row, read_rows
from benchmarks.statistics import mean_over_seeds
from sesa_env.errors import InvalidInput, SettingsError, UnknownName

SMALL = (
    *("steps=1", "rounds=2", "game.attempts=2", "game.validators=[format]", "game.solver_turns=2"),
    *("game.challenger_turns=2", "model.dtype=float32", "model.max_context=6000", "model.max_new_tokens=2"),
    *("model.lora_rank=2", "memory.token_budget=2000"),
)


def row(arm: str, seed: int, question: str, em: bool | None, memory: str = "off") -> Row:
    return Row(
        run=f"{arm}-{seed}",
        method="ssp",
        dataset="atlas:1",
        fictional=True,
        memory=memory,
        question_id=question,
        family="1-hop" if question < "q2" else "2-hop",
        answers=("Talby",),
        prediction="Talby",
        em=em,
        f1=None if em is None else float(em),
        containment=em,
        turns=2,
        searches=1,
        invalid=0,
        end_reason="answered",
        skill_ids=(),
        prompt_tokens=10,
        completion_tokens=7,
        retrieval="bm25-x",
        top_k=3,
    )


def test_differences_are_paired_by_seed_and_question() -> None:
    plan = Plan({"a": (), "b": ()}, ("atlas:1",), compare=("b/off - a/off",))
    rows = [row("a", seed, f"q{n}", n < 10 + seed) for seed in range(2) for n in range(40)]
    rows += [row("b", seed, f"q{n}", n < 20 + seed) for seed in range(2) for n in range(40)]
    first, second = lines(rows)
    assert (first.arm, first.seeds, first.em.n, first.em.value) == ("a", 2, 40, 21 / 80)
    assert second.em.value == 41 / 80
    (contrast,) = contrasts(plan, rows)
    assert contrast.em.value == pytest.approx(0.25)
    low, high = contrast.em.interval  # one question in four differs: sd 0.43, n 40
    assert 0.25 - 0.16 < low < 0.25 - 0.1
    assert 0.25 + 0.1 < high < 0.25 + 0.16
    text = table(plan, rows)
    assert "b/off - a/off    40  +25.0" in text
    assert "seeds" in text.splitlines()[0]
    by_kind = text.split("EM by kind of question")[1].splitlines()
    assert by_kind[0].split() == ["n", "a/off", "b/off"]
    assert [line.split()[0] for line in by_kind[1:3]] == ["1-hop", "2-hop"]
    # of 11 questions named below "q2", q0 q1 q10 ... q19: a solves q0, q1, and with the second seed q10
    assert by_kind[1].split()[1:3] == ["24", "20.8"]


def test_a_difference_can_be_that_of_one_family() -> None:
    plan = Plan({"a": (), "b": ()}, ("atlas:1",), compare=("b/off - a/off in 1-hop", "b/off - a/off in 9-hop"))
    rows = [row("a", 0, f"q{n}", n < 10) for n in range(20)] + [row("b", 0, f"q{n}", n < 15) for n in range(20)]
    (contrast,) = contrasts(replace(plan, compare=plan.compare[:1]), rows)
    assert contrast.em.n == 12  # q0, q1 and q10 to q19
    assert contrast.em.value == pytest.approx(5 / 12)
    with pytest.raises(InvalidInput, match="compare must name what was evaluated"):
        contrasts(plan, rows)


def test_a_side_that_was_not_evaluated_is_named() -> None:
    plan = Plan({"a": ()}, ("atlas:1",), compare=("a/on - a/off",))
    with pytest.raises(InvalidInput, match="compare must name what was evaluated, a/off, got 'a/on'"):
        contrasts(plan, [row("a", 0, "q", em=True)])


def test_seeds_of_unequal_luck_widen_the_interval() -> None:
    questions = [f"q{n}" for n in range(200)]
    alike = [{q: float(n % 2) for n, q in enumerate(questions)} for _ in range(3)]
    unlike = [{q: float(n % 4 < share) for n, q in enumerate(questions)} for share in (1, 2, 3)]
    narrow, wide = (mean_over_seeds(scores, rng=np.random.default_rng(0)) for scores in (alike, unlike))
    assert narrow.value == wide.value == 0.5
    width = narrow.interval.high - narrow.interval.low
    assert width == pytest.approx(2 * 1.96 * 0.5 / 200**0.5, rel=0.1)
    assert wide.interval.high - wide.interval.low > 2 * width


def test_seeds_with_other_questions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="all seeds must score the same questions, got 'q1' in some only"):
        mean_over_seeds([{"q1": 1.0}, {"q2": 1.0}], rng=np.random.default_rng(0))


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_plan_resolves(path: Path) -> None:
    plan = load_plan(path.stem)
    for arm in plan.arms:
        assert settings_of(plan, arm, seed=3).seed == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arms": {"a": ["method=ssp"]}}, "must map arms, data"),
        ({"arms": {"a": "method=ssp"}, "data": ["atlas:1"]}, "arms must map names to lists"),
        ({"arms": {"a": []}, "data": "atlas:1"}, "data must be a list of texts"),
        ({"arms": {"a": []}, "data": ["atlas:1"], "compare": ["a/on - c/on"]}, "compare must hold"),
        ({"arms": {"a": []}, "data": ["atlas:1"], "seeds": 3}, "must map arms, data"),
        ({"arms": {"a": []}, "data": ["atlas:1"], "limit": 0}, "limit must be a whole number of at least 1, got 0"),
        ({"arms": {"a": []}, "data": ["atlas:1"], "targets": "9"}, "targets must be a whole number of at least 0"),
        ({"arms": {"a": []}, "data": ["q.jsonl"], "targets": 9}, 'targets must come with data that begins with "atlas'),
    ],
)
def test_a_plan_that_is_none_is_refused(tmp_path: Path, values: object, message: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(SettingsError, match=message):
        load_plan(str(file))


def test_an_unknown_plan_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"no plan named 'nothing'; known: .*methods"):
        load_plan("nothing")


def test_a_bench_trains_asks_and_goes_on_where_it_stopped(
    tmp_path: Path, corpus_file: Path, chat_model_folder: Path
) -> None:
    questions = tmp_path / "asked.jsonl"
    questions.write_text(
        "".join(f'{{"id": "q{n}", "question": "Which town {n}?", "answers": ["Talby"]}}\n' for n in range(3))
    )
    shared = (*SMALL, f"corpus={corpus_file}", f"policy={chat_model_folder}")
    plan = Plan({"base": ("method=base",), "ssp": ("method=ssp",)}, (str(questions),), settings=shared)
    out, told = tmp_path / "bench", list[str]()
    rows = bench(plan, out, seeds=1, tell=told.append)
    assert {(one.run, one.memory) for one in rows} == {("base-0", "off"), ("base-0", "on"), ("ssp-0", "off")}
    assert len(rows) == 9
    assert any("ssp, seed 0: done (2 of 2" in text for text in told)
    kept = (out / "base-0" / EVAL_FILE).read_bytes()
    shutil.rmtree(out / "ssp-0")
    (out / "ssp-0").mkdir()  # killed before its first checkpoint
    told.clear()
    again = bench(plan, out, seeds=1, tell=told.append)
    assert told[0] == "1 of 2 runs are done already"
    assert (out / "base-0" / EVAL_FILE).read_bytes() == kept
    assert again == rows  # the same seed, the same run
    assert read_rows(out / "rows.jsonl") == rows
    with pytest.raises(InvalidInput, match="out must be a new folder or one of the same plan"):
        bench(replace(plan, limit=1), out, seeds=1)


def test_a_wrong_setting_is_found_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="unknown setting 'stepz'"):
        bench(Plan({"a": ("stepz=1",)}, ("atlas:1",)), tmp_path / "out", seeds=1)
