"""PPO of Stable-Baselines3 at the challenger's seat: find the questions that a frozen solver answers half the time.

    python -m benchmarks.recipes.sb3_challenger --seeds 3 --out benchmarks/results/sb3

The solver is scripted and knows the way to every answer; at each hop it slips with a fixed probability, it fails where
a page does not give what the hop needs, and its turns end after three hops.  So its solve rate falls with the hops and
is zero beyond three.  Paid by the frontier reward, the challenger should end near a solve rate of one half; paid by
1 - solve rate, the control, near zero.  Both are measured on a world in which they were not trained, beside a
challenger that chooses at random.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np

from benchmarks.recipes.curves import COLOURS, Row, in_parallel, pyplot, read_runs, stable_baselines, write_rows
from benchmarks.statistics import Estimate, mean
from sesa_env.adapters.sb3_challenger import ChoiceActions, Posed
from sesa_env.errors import MissingDependency
from sesa_env.text import contains_answer
from sesa_env.types import View

try:
    import typer
except ImportError as error:
    raise MissingDependency("this recipe needs the extra `cli`: pip install 'sesa-env[cli,rl]'") from error

TRAIN_WORLDS, TEST_WORLD = (0, 2, 4, 6), 1
REWARDS = ("frontier", "one_minus_solve_rate")
SLIP = 0.25
"""Probability that the solver loses its way at a hop."""
ATTEMPTS, SOLVER_TURNS = 5, 4
ROUNDS_PER_POINT = 256
TEST_ROUNDS = 200

PPO_SETTINGS: dict[str, Any] = {
    "n_steps": 64,
    "batch_size": 64,
    "n_epochs": 4,
    "learning_rate": 1e-3,
    "gamma": 0.0,  # a round is one step: nothing comes after it
    "gae_lambda": 1.0,
    "ent_coef": 0.01,
}

Choose = Callable[[np.ndarray], int]


def slipping_solver(view: View, posed: Posed, rng: np.random.Generator) -> str:
    """Follow the way to the answer hop by hop, and give up after a slip or where a page did not help."""
    hop = view.turn
    if hop and (rng.random() < SLIP or not contains_answer(view.observation, posed.stops[hop - 1])):
        return "<answer>I do not know</answer>"
    if hop == len(posed.stops):
        return f"<answer>{posed.stops[-1]}</answer>"
    return f"<search>{posed.queries[hop]}</search>"


def make_env(world: int, reward: str) -> ChoiceActions:
    """Return the challenger's seat in a world, against the frozen solver and paid by a reward of that name."""
    settings = {"attempts": ATTEMPTS, "solver_turns": SOLVER_TURNS, "challenger_reward": reward}
    return ChoiceActions(slipping_solver, corpus=f"atlas:{world}", settings=settings)


def train(seed: int, reward: str, rounds: int, test_rounds: int, out: Path) -> list[Row]:
    """Train one PPO and return its curve, a row for each point; the first is before any training.

    Args:
        seed: of PPO and of the entities offered.
        reward: a name in `CHALLENGER_REWARDS`.
        rounds: of training.
        test_rounds: for each point.
        out: folder in which `challenger-REWARD-SEED.jsonl` is rewritten at each point.
    """
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)  # this process is one of several, side by side
    makers: list[Callable[[], gymnasium.Env[Any, Any]]] = [partial(make_env, world, reward) for world in TRAIN_WORLDS]
    model = stable_baselines().PPO("MlpPolicy", DummyVecEnv(makers), seed=seed, device="cpu", **PPO_SETTINGS)
    exam = make_env(TEST_WORLD, reward)
    begun = time.process_time()
    rows = []
    while True:
        row = posed_by(lambda seen: int(model.predict(seen)[0]), exam, rounds=test_rounds)
        row.update(agent="ppo", reward=reward, seed=seed, rounds=model.num_timesteps)
        rows.append({**row, "cpu_seconds": round(time.process_time() - begun, 1)})
        write_rows(rows, out / f"challenger-{reward}-{seed}.jsonl")
        if model.num_timesteps >= rounds:
            return rows
        model.learn(ROUNDS_PER_POINT, reset_num_timesteps=False)


def random_challenger(test_rounds: int) -> Row:
    """Return the row of a challenger that chooses at random."""
    rng, exam = np.random.default_rng(0), make_env(TEST_WORLD, REWARDS[0])
    row = posed_by(lambda seen: int(rng.integers(exam.choices)), exam, rounds=test_rounds)
    return {**row, "agent": "random", "reward": "", "seed": 0, "rounds": 0, "cpu_seconds": 0.0}


def posed_by(choose: Choose, env: ChoiceActions, *, rounds: int) -> Row:
    """Let a challenger pose, and count its questions by solved attempts and by hops, and its refused ones."""
    solved: Counter[int] = Counter()
    hops: Counter[int] = Counter()
    seen, _ = env.reset(seed=0)
    for _ in range(rounds):
        *_, info = env.step(np.int64(choose(seen)))
        hops[info["hops"]] += 1
        if info["solve_rate"] is not None:
            solved[round(info["solve_rate"] * ATTEMPTS)] += 1
        seen, _ = env.reset()
    return {
        "solved": [solved[count] for count in range(ATTEMPTS + 1)],
        "refused": rounds - solved.total(),
        "hops": {str(count): hops[count] for count in sorted(hops)},
    }


def solve_rate(row: Row) -> Estimate:
    """Return the mean solve rate of the questions that were not refused, with its interval over questions."""
    rates = [count / ATTEMPTS for count, questions in enumerate(row["solved"]) for _ in range(questions)]
    return mean(rates, rng=np.random.default_rng(0))


# What is shown.


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw the mean solve rate against the rounds of training: a line for each seed, a colour for each reward."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(6, 3.8), layout="constrained")
    for colour, reward in zip(COLOURS, REWARDS, strict=False):
        for seed in sorted({row["seed"] for row in rows if row["reward"] == reward}):
            curve = [row for row in rows if row["reward"] == reward and row["seed"] == seed]
            _curve(panel, curve, colour, label=reward if seed == 0 else None)
    last = max(row["rounds"] for row in rows)
    level = next(solve_rate(row).value for row in rows if row["agent"] == "random")
    panel.plot([0, last], [level, level], ":", color="black", lw=1, label=f"random challenger: {level:.2f}")
    panel.axhline(0.5, color="black", lw=0.8, alpha=0.5)
    panel.set(xlabel="rounds of training", ylabel="solve rate, unseen world (fictional)", ylim=(-0.02, 1))
    panel.legend(fontsize=8)
    panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _curve(panel: Any, rows: Sequence[Row], colour: str, *, label: str | None) -> None:
    estimates = [solve_rate(row) for row in rows]
    rounds = [row["rounds"] for row in rows]
    panel.plot(rounds, [estimate.value for estimate in estimates], color=colour, lw=1.2, label=label)
    bounds = [estimate.interval or (estimate.value, estimate.value) for estimate in estimates]
    panel.fill_between(rounds, *zip(*bounds, strict=True), color=colour, alpha=0.12, lw=0)


def summary(rows: Sequence[Row]) -> str:
    """Return the first and the last point of every run as lines of text."""
    runs: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["agent"], row["reward"], row["seed"]), []).append(row)
    return "\n".join(_line(row) for run in runs.values() for row in _ends(run))


def _ends(run: list[Row]) -> list[Row]:
    return run if len(run) < 2 else [run[0], run[-1]]


def _line(row: Row) -> str:
    value, interval, n, why_none = solve_rate(row)
    bounds = f"[{interval.low:.3f}, {interval.high:.3f}]" if interval else f"[{why_none}]"
    who = f"{row['agent']} {row['reward']} seed {row['seed']}" if row["agent"] == "ppo" else row["agent"]
    return f"{who:<32} round {row['rounds']:>5}  solve rate {value:.3f} {bounds} n={n}  hops {row['hops']}"


def main(
    out: Annotated[Path, typer.Option(help="Folder for the rows and the plot.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many runs for each reward.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training of each run.")] = 3072,
    test_rounds: Annotated[int, typer.Option(min=2, help="Rounds in the test world for each point.")] = TEST_ROUNDS,
    processes: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 2,
) -> None:
    """Train PPO at the challenger's seat; write challenger-*.jsonl and challenger.png."""
    write_rows([random_challenger(test_rounds)], out / "challenger-random.jsonl")
    arguments = [(seed, reward, rounds, test_rounds, out) for seed in range(seeds) for reward in REWARDS]
    in_parallel(train, arguments, processes=processes)
    rows = read_runs(out, "challenger")
    plot(rows, out / "challenger.png")
    typer.echo(summary(rows))


if __name__ == "__main__":
    typer.run(main)
