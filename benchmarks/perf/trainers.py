"""One trainer's GRPO steps in a process of its own: what `benchmarks.perf.step` starts once for each contender.

    python trainers.py NAME WORK.json      # a line of input for each step; a line of JSON with what it took comes out

It is a script of its own and imports nothing of this project but what its contender needs, so that the interpreter of
another virtual environment can run it.

What is written is forced, since a small model writes no searches: each turn is so many sampled tokens, whatever they
are, and is then taken for the next search of the work, or for the answer.  Every second attempt is right.  All else is
the contender's own: sampling, the loop of turns, the tool, advantages, loss, gradients and optimiser.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

Work = dict[str, Any]


class Script:
    """What each turn is taken for, given one after the other: every attempt's first turn, then every second, ..."""

    def __init__(self, work: Work) -> None:
        self._attempts, self._group = len(work["questions"]) * work["attempts"], work["attempts"]
        self._turns = work["turns"]
        self.restart()

    def restart(self) -> None:
        """Go back to the first turn, for another step."""
        self._place = count()

    def next(self) -> tuple[str, str]:
        """Return ("search", query) or ("answer", answer)."""
        turn, attempt = divmod(next(self._place), self._attempts)
        question, own = divmod(attempt, self._group)
        if turn < self._turns - 1:
            return "search", f"{question} {own} {turn}"
        return "answer", "yes" if own % 2 else "no"


class Took(NamedTuple):
    """Seconds of a step, how much of them went into writing, and how many tokens there were in all attempts."""

    seconds: float
    writing: float
    processor: float
    """Those that the processor worked, of all threads together."""
    processor_writing: float
    prompt: int
    written: int
    read: int


def ours(work: Work, report: Callable[[Took], None]) -> None:
    """Play the questions as a run's solver does, and update its weights."""
    from agents.config import ModelSettings
    from agents.learner import Learner, LearnerSettings
    from agents.policies.hf import LanguageModel
    from agents.rollout import play
    from agents.selfplay import solver_samples
    from agents.solver import make_solver
    from sesa_env.game import Game, GameSettings
    from sesa_env.judge import ExactMatchJudge
    from sesa_env.types import SOLVER, Passage, Question
    from skill_memory import NoMemory

    found = {query: [Passage(*part) for part in result["passages"]] for query, result in work["found"].items()}

    class Prepared:
        fingerprint = "prepared"
        in_memory = True

        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            return [found[query][:k] for query in queries]

        def close(self) -> None:
            pass

    script = Script(work)

    class Forced:
        """A policy whose turns all have the same length, and are read as the script says."""

        def __init__(self, policy: Any) -> None:
            self._policy = policy

        def __getattr__(self, name: str) -> Any:
            return getattr(self._policy, name)

        def generate(self, prompts: Any, **how: Any) -> Any:
            return self._policy.generate(prompts, **{**how, "stop": ()})

        def decode(self, token_T: Sequence[int]) -> str:
            kind, text = script.next()
            return f"<{kind}>{text}</{kind}>"

    rules = GameSettings(attempts=work["attempts"], solver_turns=work["turns"] + 1)
    settings = ModelSettings(
        train=work["train"],
        dtype=work["dtype"],
        device=work["device"],
        max_context=work["max_context"],
        max_new_tokens=work["written"],
        rollout_batch=len(work["questions"]) * work["attempts"],
    )
    model = LanguageModel.load(work["model"], adapters=(SOLVER,), settings=settings, seed=0)
    model.end_ids = frozenset()
    solver = make_solver(
        Forced(model.policy(SOLVER, seed=0)),
        NoMemory(),
        token_budget=0,
        max_new_tokens=work["written"],
        temperature=1.0,
    )
    learner = Learner(
        model.weights.model(SOLVER),
        model.weights.parameters(SOLVER),
        LearnerSettings(lr=1e-6, kl_coef=0.0, aggregation="token", micro_batch_tokens=work["micro_batch_tokens"]),
        activate=lambda: model.weights.using(SOLVER),
    )
    for _ in sys.stdin:
        started = _now()
        script.restart()
        games = []
        for number, text in enumerate(work["questions"]):
            game = Game(rules, judge=ExactMatchJudge(), id=f"q{number}")
            game.ask(Question(f"q{number}", text, ("yes",)), attempts=work["attempts"])
            games.append(game)
        rounds = play(games, {SOLVER: solver}, Prepared())
        tokens = solver.drain()
        written = _now()
        stats = learner.update(solver_samples(rounds, tokens))
        ended = _now()
        if not stats.updated or len(tokens) != len(work["questions"]) * work["attempts"]:
            raise RuntimeError("no update was made of all attempts")
        prompt = sum(one.prompt_length for one in tokens.values())
        wrote = sum(one.written_count for one in tokens.values())
        read = sum(map(len, tokens.values())) - prompt - wrote
        report(Took(*_seconds(started, written, ended), prompt, wrote, read))


def trl(work: Work, report: Callable[[Took], None]) -> None:
    """Let TRL's GRPOTrainer play them with its environment hook."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer import grpo_trainer

    script = Script(work)

    class Environment:
        def reset(self, **row: Any) -> None:
            pass

        def search(self, query: str) -> str:
            """Search for passages.

            Args:
                query: key words.
            """
            return str(work["found"][query]["text"])

    def parse(*_: Any, **__: Any) -> dict[str, Any]:
        kind, text = script.next()
        if kind == "answer":
            return {"role": "assistant", "content": text}
        call = {"type": "function", "function": {"name": "search", "arguments": {"query": text}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    def right(completions: Sequence[Any], **_: Any) -> list[float]:
        return [float(messages[-1]["content"] == "yes") for messages in completions]

    told: dict[str, Any] = {}

    class Steps(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not sys.stdin.readline():
                os._exit(0)  # the trainer would take this step before it stops
            script.restart()
            told["started"] = _now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            report(Took(*_seconds(told["started"], told["written"], _now()), *told["tokens"]))

    class Trainer(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            scored = super()._generate_and_score_completions(inputs)
            everything_NT, own_NT = scored["completion_mask"], scored["tool_mask"]
            everything, wrote = int(everything_NT.sum()), int((everything_NT * own_NT).sum())
            told.update(written=_now(), tokens=(int(scored["prompt_mask"].sum()), wrote, everything - wrote))
            return scored

    grpo_trainer.parse_response = parse
    tokenizer = AutoTokenizer.from_pretrained(work["model"])
    tokenizer.chat_template = work["chat_template"]
    tokenizer.response_template = "forced"  # only asked whether there is one
    model = AutoModelForCausalLM.from_pretrained(
        work["model"], dtype=getattr(torch, work["peer_weights"]), attn_implementation=work["peer_attention"]
    )
    lora = None
    if work["train"] == "lora":
        from peft import LoraConfig

        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    sequences = work["sequences"]
    config = GRPOConfig(
        output_dir=work["scratch"],
        use_cpu=work["device"] == "cpu",
        bf16=(work["dtype"], work["peer_weights"]) == ("bfloat16", "float32"),  # compute in it, over such weights
        gradient_checkpointing=work["checkpointing"],
        per_device_train_batch_size=sequences,
        gradient_accumulation_steps=len(work["questions"]) * work["attempts"] // sequences,
        num_generations=work["attempts"],
        max_completion_length=work["max_context"],
        generation_kwargs={"max_new_tokens": work["written"], "min_new_tokens": work["written"]},
        temperature=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        max_steps=1_000_000,
        shuffle_dataset=False,
        remove_unused_columns=False,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(
        model=model,
        reward_funcs=right,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in work["prompts"]]),
        processing_class=tokenizer,
        environment_factory=Environment,
        peft_config=lora,
        callbacks=[Steps()],
    ).train()


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _seconds(
    started: tuple[float, float], written: tuple[float, float], ended: tuple[float, float]
) -> tuple[float, float, float, float]:
    """Return the first four fields of `Took`."""
    return ended[0] - started[0], written[0] - started[0], ended[1] - started[1], written[1] - started[1]


CONTENDERS: dict[str, Callable[[Work, Callable[[Took], None]], None]] = {"ours": ours, "trl": trl}


def main(name: str, path: str) -> None:
    """Take steps until standard input ends; the peak is the whole process's, imports and model included."""
    with open(path, encoding="utf-8") as file:
        work = json.load(file)
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not pass for an answer

    def report(took: Took) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**took._asdict(), "peak_bytes": peak}), file=answers, flush=True)

    CONTENDERS[name](work, report)


if __name__ == "__main__":
    main(*sys.argv[1:])
