import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("matplotlib")

from benchmarks.recipes import sb3_challenger, sb3_ppo
from benchmarks.recipes.curves import read_rows, read_runs, write_rows
from sesa_env.errors import CorpusError


@pytest.fixture(scope="module", autouse=True)
def small():
    """One training world is enough here, and rollouts of a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sb3_ppo, "TRAIN_WORLDS", (0,))
        patch.setattr(sb3_ppo, "TEST_WORLDS", (1,))
        patch.setattr(sb3_ppo, "PPO_SETTINGS", {**sb3_ppo.PPO_SETTINGS, "n_steps": 16, "batch_size": 16})
        patch.setattr(sb3_ppo, "STEPS_PER_POINT", 32)
        patch.setattr(sb3_challenger, "TRAIN_WORLDS", (0,))
        patch.setattr(sb3_challenger, "PPO_SETTINGS", {**sb3_challenger.PPO_SETTINGS, "n_steps": 8, "batch_size": 8})
        patch.setattr(sb3_challenger, "ROUNDS_PER_POINT", 16)
        yield


@pytest.fixture(autouse=True)
def torch_threads():
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def without_time(rows):
    return [{key: value for key, value in row.items() if key != "cpu_seconds"} for row in rows]


def test_a_run_of_the_solver_is_decided_by_its_seed(tmp_path):
    rows = sb3_ppo.train(0, 5.0, 64, 10, tmp_path)
    assert [(row["steps"], row["hops"], row["n"]) for row in rows] == [(32, 1, 5), (32, 2, 5), (64, 1, 5), (64, 2, 5)]
    assert read_runs(tmp_path, "solver") == rows
    assert without_time(rows) == without_time(sb3_ppo.train(0, 5.0, 64, 10, tmp_path))


def test_training_changes_the_weights_and_another_seed_begins_with_others(tmp_path):
    first, second = sb3_ppo.make_model(0, tmp_path), sb3_ppo.make_model(1, tmp_path)
    weights = [parameter.detach().clone() for parameter in first.policy.parameters()]
    assert any((a != b).any() for a, b in zip(weights, second.policy.parameters(), strict=True))
    first.learn(32)
    assert any((a != b).any() for a, b in zip(weights, first.policy.parameters(), strict=True))


def test_test_worlds_are_odd_and_share_no_question_with_the_training_worlds(tmp_path):
    assert all(world % 2 for world in sb3_ppo.TEST_WORLDS)
    texts = [set(sb3_ppo.write_questions(world, tmp_path).read_text().splitlines()) for world in (0, 1)]
    assert not texts[0] & texts[1]


def test_agents_without_learning_stand_in_the_expected_order():
    rows = sb3_ppo.references(60)
    right = {row["agent"]: row["right"] for row in rows if row["hops"] == 1}
    assert right["random"] <= right["first new name"] < right["best sentence"]
    assert {row["n"] for row in rows} == {30}


def test_a_run_of_the_challenger_is_decided_by_its_seed(tmp_path):
    rows = sb3_challenger.train(0, "frontier", 16, 12, tmp_path)
    assert [row["rounds"] for row in rows] == [0, 16]
    assert all(sum(row["solved"]) + row["refused"] == 12 == sum(row["hops"].values()) for row in rows)
    assert read_runs(tmp_path, "challenger") == rows
    assert without_time(rows) == without_time(sb3_challenger.train(0, "frontier", 16, 12, tmp_path))


def test_the_frozen_solver_fails_more_often_the_longer_the_way():
    env = sb3_challenger.make_env(1, "frontier")
    rates = []
    for hops in (1, 2, 4):
        row = sb3_challenger.posed_by(lambda seen, hops=hops: (hops - 1) * 3, env, rounds=60)
        rates.append(sb3_challenger.solve_rate(row).value)
    assert rates[0] > rates[1] > rates[2] == 0.0


def test_the_mean_solve_rate_is_counted_from_the_row():
    row = {"solved": [1, 0, 0, 0, 0, 3]}
    estimate = sb3_challenger.solve_rate(row)
    assert (estimate.value, estimate.n) == (0.75, 4)


def test_rows_survive_the_file_and_another_schema_is_refused(tmp_path):
    rows = [{"agent": "ppo", "right": 3, "n": 4}]
    write_rows(rows, tmp_path / "rows.jsonl")
    assert read_rows(tmp_path / "rows.jsonl") == rows
    (tmp_path / "old.jsonl").write_text('{"schema": 0}\n')
    with pytest.raises(CorpusError, match="line 1"):
        read_rows(tmp_path / "old.jsonl")


def test_plots_and_summaries_are_made_from_rows(tmp_path):
    point = {"n": 9, "cpu_seconds": 1.0}
    rows = [
        {"agent": agent, "seed": 0, "steps": steps, "hops": hops, "right": 4, **point}
        for agent, steps in [("random", 0), ("first new name", 0), ("best sentence", 0), ("ppo", 8), ("ppo", 16)]
        for hops in (1, 2)
    ]
    sb3_ppo.plot(rows, tmp_path / "solver.png")
    assert "ppo seed 0" in sb3_ppo.summary(rows)
    posed = {"solved": [1, 2, 0, 1, 0, 1], "refused": 0, "hops": {"1": 5}, "seed": 0, "cpu_seconds": 1.0}
    rows = [
        {**posed, "agent": "random", "reward": "", "rounds": 0},
        *(
            {**posed, "agent": "ppo", "reward": reward, "rounds": n}
            for reward in sb3_challenger.REWARDS
            for n in (0, 8)
        ),
    ]
    sb3_challenger.plot(rows, tmp_path / "challenger.png")
    assert len(sb3_challenger.summary(rows).splitlines()) == 5
    assert all((tmp_path / f"{name}.png").stat().st_size > 5000 for name in ("solver", "challenger"))


def test_observations_are_finite_floats(tmp_path):
    env = sb3_ppo.make_env(1, sb3_ppo.write_questions(1, tmp_path))
    seen, _ = env.reset(seed=0)
    assert seen.dtype == np.float32
    assert np.isfinite(seen).all()
