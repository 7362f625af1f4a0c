"""PPO of Stable-Baselines3 at the solver's seat: learn to search and answer in some worlds, be examined in others.

    python -m benchmarks.recipes.sb3_ppo --seeds 3 --minutes 10 --out benchmarks/results/sb3

It trains on questions of one and two hops in even worlds of Atlas and is evaluated on odd ones, which share no name
with them, beside three agents without learning: random among the filled actions; "first new name", which searches for
the question's first name and answers with the first name the question did not have; and "best sentence", which
searches with the question's words and answers with the name whose sentence shares most of them.

Left out: comparisons, which need arithmetic on two pages, and wording gaps, whose pages share no word with the
question.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import gymnasium
import numpy as np

from benchmarks.recipes.curves import COLOURS, Row, in_parallel, pyplot, read_runs, stable_baselines, write_rows
from benchmarks.statistics import proportion
from sesa_env.adapters.sb3 import TEMPLATES, TemplateActions
from sesa_env.corpora import load_atlas
from sesa_env.errors import MissingDependency
from sesa_env.types import Question

try:
    import typer
except ImportError as error:
    raise MissingDependency("this recipe needs the extra `cli`: pip install 'sesa-env[cli,rl]'") from error

if TYPE_CHECKING:
    from stable_baselines3 import PPO

TRAIN_WORLDS, TEST_WORLDS = (0, 2, 4, 6), (1, 3)
FAMILIES = ("1-hop", "2-hop", "alias", "ambiguous")
HOPS = (1, 2)
TEST_QUESTIONS = 300
"""Of each test world."""

ENVS_PER_WORLD = 2
PPO_SETTINGS: dict[str, Any] = {
    "n_steps": 512,
    "batch_size": 512,
    "n_epochs": 4,
    "learning_rate": 1e-3,
    "gamma": 0.95,
    "ent_coef": 0.01,
}
STEPS_PER_POINT = 4 * ENVS_PER_WORLD * len(TRAIN_WORLDS) * int(PPO_SETTINGS["n_steps"])

Act = Callable[[TemplateActions, np.ndarray], int]


def train(seed: int, minutes: float, steps: int, test_questions: int, out: Path) -> list[Row]:
    """Train one PPO and return its curve: a row for each number of hops and each point.

    Args:
        seed: of PPO and of the order of the questions.
        minutes: of processor time, evaluations included; the point at which they are spent is the last.
        steps: most steps of the environment.
        test_questions: of each test world.
        out: folder in which `solver-SEED.jsonl` is rewritten at each point.
    """
    import torch

    torch.set_num_threads(1)  # this process is one of several, side by side
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        exam = Exam(TEST_WORLDS, Path(folder), questions=test_questions)
        model = make_model(seed, Path(folder))
        begun = time.process_time()
        while model.num_timesteps < steps and time.process_time() - begun < 60 * minutes:
            model.learn(STEPS_PER_POINT, reset_num_timesteps=False)
            point = {"agent": "ppo", "seed": seed, "steps": model.num_timesteps}
            rows += exam.rows(lambda env, seen: int(model.predict(seen, deterministic=True)[0]), **point)
            for row in rows[-len(HOPS) :]:
                row["cpu_seconds"] = round(time.process_time() - begun, 1)
            write_rows(rows, out / f"solver-{seed}.jsonl")
    return rows


def make_model(seed: int, folder: Path) -> PPO:
    """Return an untrained PPO over all training worlds.

    Args:
        seed: of PPO and its environments.
        folder: where the question files are written.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv

    files = {world: write_questions(world, folder) for world in TRAIN_WORLDS}
    makers: list[Callable[[], gymnasium.Env[Any, Any]]] = [
        partial(make_env, world, files[world]) for world in TRAIN_WORLDS for _ in range(ENVS_PER_WORLD)
    ]
    ppo: PPO = stable_baselines().PPO("MlpPolicy", DummyVecEnv(makers), seed=seed, device="cpu", **PPO_SETTINGS)
    return ppo


def make_env(world: int, questions: Path) -> TemplateActions:
    """Return the solver's seat in a world, asked the questions of a file."""
    inside = gymnasium.make(
        "SESA-Solve-v0", corpus=f"atlas:{world}", questions=str(questions), disable_env_checker=True
    )
    return TemplateActions(inside)


def write_questions(world: int, folder: Path) -> Path:
    """Write the questions of a world that this recipe is about into the folder and return the file."""
    path = folder / f"questions-{world}.jsonl"
    rows = [
        {"id": q.id, "question": q.text, "answers": q.answers, "hops": q.hops, "type": q.family}
        for q in load_atlas(f"atlas:{world}").all_questions
        if q.hops in HOPS and q.family in FAMILIES
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


class Exam:
    """The same questions of the test worlds for every agent.

    Args:
        worlds: the test worlds.
        folder: where the question files are written.
        questions: how many of each world.
    """

    def __init__(self, worlds: Sequence[int], folder: Path, *, questions: int) -> None:
        self._envs = [make_env(world, write_questions(world, folder)) for world in worlds]
        self._questions = [_drawn(world, questions) for world in worlds]

    def rows(self, act: Act, **point: Any) -> list[Row]:
        """Put every question to an agent and return a row for each number of hops: right answers, and of how many."""
        right = dict.fromkeys(HOPS, 0)
        asked = dict.fromkeys(HOPS, 0)
        for env, questions in zip(self._envs, self._questions, strict=True):
            for question in questions:
                asked[question.hops or 1] += 1
                right[question.hops or 1] += solves(act, env, question.id)
        return [{**point, "hops": hops, "right": right[hops], "n": asked[hops]} for hops in HOPS]


def solves(act: Act, env: TemplateActions, question_id: str) -> bool:
    """Play one question to its end and tell whether the answer was right."""
    seen, _ = env.reset(options={"question_id": question_id})
    while True:
        seen, reward, terminated, truncated, _ = env.step(np.int64(act(env, seen)))
        if terminated or truncated:
            return reward > 0.0


def _drawn(world: int, n: int) -> list[Question]:
    atlas = load_atlas(f"atlas:{world}")
    share = n // len(HOPS)
    return [q for hops in HOPS for q in atlas.questions(share, hops=hops, families=FAMILIES)]


# Agents without learning.


def first_new_name(env: TemplateActions, seen: np.ndarray) -> int:
    """Search for the question's first name, then answer with the first name that the question did not have."""
    new = _new(env)
    return _action(env, "answer", new[0]) if new else _action(env, "search", 0)


def best_sentence(env: TemplateActions, seen: np.ndarray) -> int:
    """Search for the first name with the question's words, then answer with the name whose sentence shares most."""
    new = _new(env)
    if not new:
        return _action(env, "search_with_question_words", 0)
    return _action(env, "answer", max(new, key=lambda i: (env.candidates[i].overlap, env.candidates[i].nearness)))


def random_choice(rng: np.random.Generator) -> Act:
    """Return an agent that draws among the actions that write something."""
    return lambda env, seen: int(rng.choice(np.flatnonzero(env.action_masks())))


def _new(env: TemplateActions) -> list[int]:
    return [place for place, candidate in enumerate(env.candidates) if not candidate.in_question]


def _action(env: TemplateActions, template: str, slot: int) -> int:
    return TEMPLATES.index(template) * env.slots + slot


def references(test_questions: int) -> list[Row]:
    """Return the rows of the agents without learning."""
    agents = {
        "random": random_choice(np.random.default_rng(0)),
        "first new name": first_new_name,
        "best sentence": best_sentence,
    }
    with tempfile.TemporaryDirectory() as folder:
        exam = Exam(TEST_WORLDS, Path(folder), questions=test_questions)
        return [
            {**row, "cpu_seconds": 0.0}
            for name, act in agents.items()
            for row in exam.rows(act, agent=name, seed=0, steps=0)
        ]


# What is shown.


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw the curves with Wilson's intervals, one panel for each number of hops, and the references as levels."""
    plt = pyplot()
    figure, panels = plt.subplots(1, len(HOPS), figsize=(9, 3.6), sharey=True, layout="constrained")
    for hops, panel in zip(HOPS, panels, strict=True):
        of_hops = [row for row in rows if row["hops"] == hops]
        last = max(row["steps"] for row in of_hops)
        for seed in sorted({row["seed"] for row in of_hops if row["agent"] == "ppo"}):
            _curve(panel, [row for row in of_hops if row["agent"] == "ppo" and row["seed"] == seed], COLOURS[seed % 3])
        for style, row in zip((":", "--", "-."), [row for row in of_hops if row["agent"] != "ppo"], strict=True):
            level = row["right"] / row["n"]
            panel.plot([0, last], [level, level], style, color="black", lw=1, label=f"{row['agent']}: {level:.2f}")
        panel.set(title=f"{hops} hop{'s' if hops > 1 else ''}, n={of_hops[0]['n']}", xlabel="training steps")
        panel.set_ylim(0, 1)
        panel.legend(fontsize=7)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share right, unseen worlds (fictional)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _curve(panel: Any, rows: Sequence[Row], colour: str) -> None:
    estimates = [proportion(row["right"], row["n"]) for row in rows]
    steps = [row["steps"] for row in rows]
    label = f"PPO, seed {rows[0]['seed']}: {estimates[-1].value:.2f}"
    panel.plot(steps, [estimate.value for estimate in estimates], color=colour, label=label)
    low = [estimate.interval.low for estimate in estimates if estimate.interval]
    high = [estimate.interval.high for estimate in estimates if estimate.interval]
    panel.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)


def summary(rows: Sequence[Row]) -> str:
    """Return the last point of every agent and seed as lines of text."""
    last = {(row["agent"], row["seed"], row["hops"]): row for row in rows}
    return "\n".join(_line(row) for row in last.values())


def _line(row: Row) -> str:
    value, interval, n, _ = proportion(row["right"], row["n"])
    bounds = f"[{interval.low:.3f}, {interval.high:.3f}]" if interval else "[no interval]"
    who = f"{row['agent']} seed {row['seed']}" if row["agent"] == "ppo" else row["agent"]
    spent = f"{row['steps']:,} steps, {row['cpu_seconds']:.0f} CPU s"
    return f"{who:<16} {row['hops']}-hop  {value:.3f} {bounds} n={n}  {spent}"


def main(
    out: Annotated[Path, typer.Option(help="Folder for the rows and the plot.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many runs.")] = 3,
    minutes: Annotated[float, typer.Option(min=0.0, help="Processor minutes of each run.")] = 10.0,
    steps: Annotated[int, typer.Option(min=1, help="Most steps of each run.")] = 2_000_000,
    test_questions: Annotated[int, typer.Option(min=2, help="Questions of each test world.")] = TEST_QUESTIONS,
    processes: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 2,
) -> None:
    """Train PPO at the solver's seat; write solver-SEED.jsonl, solver-references.jsonl and solver.png."""
    write_rows(references(test_questions), out / "solver-references.jsonl")
    in_parallel(train, [(seed, minutes, steps, test_questions, out) for seed in range(seeds)], processes=processes)
    rows = read_runs(out, "solver")
    plot(rows, out / "solver.png")
    typer.echo(summary(rows))


if __name__ == "__main__":
    typer.run(main)
