"""Train the mini policy from scratch on lessons from fictional training worlds: supervised, resumable, on a CPU.

    train(MiniSettings(), Path("runs/mini"))                  # about an hour on one core with bfloat16
    train(None, Path("runs/mini"), resume=True)

    settings.json, log.jsonl      what was asked for, and the loss of every step
    state.pt                      weights, optimiser and position, replaced at every checkpoint
    model/                        the policy as a transformers folder, written at the end
    early/                        the policy after `early` worlds, for learning to go on from

What counts is the loss on what the player wrote; the loss on what it read has a small weight.  Equal settings give
equal weights on one machine, also after an interruption.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from agents.mini.drills import draw_drills
from agents.mini.lessons import FIRST_SHARES, HOP_SHARES, Classroom, Lesson, draw_lessons
from agents.mini.model import new_model
from agents.mini.tokenizer import train_tokenizer
from agents.mini.walks import draw_walks
from agents.policies import SETTINGS_FILE as POLICY_SETTINGS_FILE
from sesa_env.corpora.atlas import MIN_ENTITIES, Atlas, generate
from sesa_env.errors import InvalidInput
from skill_memory.records import replacing

SETTINGS_FILE, LOG_FILE, STATE_FILE = "settings.json", "log.jsonl", "state.pt"
MODEL_FOLDER, EARLY_FOLDER = "model", "early"
FIRST_WORLD = 100
"""Worlds from here on are for lessons; the training worlds below are left for reinforcement learning."""


SAMPLED_WORLDS = 60
EASY_SHARE = 0.15
"""Share of the worlds with short questions only, at the beginning."""
CHALLENGER_SHARE = 0.5
"""Walks of a challenger for each question of a solver; some cannot be walked."""
FIRST_DRILLS, DRILLS = 1.0, 0.2
"""Reading drills for each question of a world, at the beginning and then; there are half as many of planning, of
comparing and of posing, as many of finding and, after the beginning, with skills, and twice as many of following."""


@dataclass(frozen=True, slots=True)
class MiniSettings:
    """How the mini policy is trained.

    Raises:
        InvalidInput: a value is out of range.
    """

    seed: int = 0
    start: str | None = None
    """Folder of a training to go on from, with its weights and vocabulary and in worlds of its own."""
    first_world: int = 0
    """Number of the first training world."""
    worlds: int = 15
    """Training worlds, each gone through once."""
    entities: int = 1000
    """Pages of a world."""
    questions: int = 1500
    """Questions of a world that are turned into lessons."""
    vocabulary: int = 2048
    batch_tokens: int = 4096
    """Most tokens of one step, padding included."""
    lr: float = 1e-3
    warmup: int = 60
    decay_from: float = 0.3
    """Share of the training after which the learning rate falls linearly to 5 %."""
    max_tokens: int = 1280
    """Longer lessons are left out."""
    read_weight: float = 0.1
    """Weight of the loss on what the player reads, beside 1 for what it writes: pages repeat themselves, and to foresee
    the repetition is to copy."""
    early: int | None = None
    """Worlds after which the policy is kept as it is then, too."""
    bfloat16: bool = True
    """Whether matrix products are in bfloat16: several times as fast where the processor has it, slower elsewhere."""

    def __post_init__(self) -> None:
        for name in ("worlds", "questions", "batch_tokens", "warmup", "max_tokens"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if self.early is not None and not 1 <= self.early <= self.worlds:
            raise InvalidInput(f"early must lie in [1, worlds], {self.worlds}, got {self.early!r}")
        if not self.read_weight >= 0.0:
            raise InvalidInput(f"read_weight must be at least 0, got {self.read_weight!r}")
        if not 0.0 <= self.decay_from < 1.0:
            raise InvalidInput(f"decay_from must lie in [0, 1), got {self.decay_from!r}")
        if self.batch_tokens < self.max_tokens:
            raise InvalidInput(f"batch_tokens must be at least max_tokens, {self.max_tokens}, got {self.batch_tokens}")


_STEP = 32
"""Batches are padded to a multiple of so many tokens: a processor's library compiles and keeps code for each shape of a
product in bfloat16, which came to gigabytes when every batch had a length of its own."""


class Encoded(NamedTuple):
    """A lesson in T tokens, with True where the assistant wrote."""

    token_T: list[int]
    written_T: list[bool]


class Batch(NamedTuple):
    """B lessons flush left, padded to T."""

    token_BT: Tensor
    attention_BT: Tensor
    written_BT: Tensor
    """True where the token is one that the assistant wrote."""


def train(
    settings: MiniSettings | None,
    out: Path,
    *,
    resume: bool = False,
    on_step: Callable[[dict[str, float]], None] = lambda row: None,
) -> Path:
    """Train and return the folder of the policy.

    Args:
        settings: how; None to read them from `out`, when resuming.
        out: folder of the training, new unless resuming.
        resume: go on from the last checkpoint.
        on_step: called with the figures of each step.

    Raises:
        InvalidInput: the folder is in use, or there is nothing to resume.
    """
    if resume:
        settings = MiniSettings(**json.loads((out / SETTINGS_FILE).read_text(encoding="utf-8")))
    elif settings is None:
        raise InvalidInput("settings must be given unless the training is resumed, got None")
    else:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InvalidInput(f"out must be a new or empty folder, got {str(out)!r}")
        (out / SETTINGS_FILE).write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")
    tokenizer = _tokenizer(out / MODEL_FOLDER, settings)
    model = new_model(vocab_size=len(tokenizer), seed=settings.seed)
    if settings.start is not None:
        model.load_state_dict(torch.load(Path(settings.start) / STATE_FILE, weights_only=True)["model"])
    model.set_attn_implementation("eager")  # in bfloat16 on a processor, the fused attention's backward pass is slow
    optimizer = _make_optimizer(model, settings)
    done, step = 0, 0
    if resume and (out / STATE_FILE).exists():
        state = torch.load(out / STATE_FILE, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done, step = state["worlds"], state["step"]
    model.train()
    with (out / LOG_FILE).open("a", encoding="utf-8") as log:
        for number in range(done, settings.worlds):
            batches = list(lessons_of(number, settings, tokenizer))
            for index, batch in enumerate(batches):
                started = time.monotonic()
                progress = (number + index / len(batches)) / settings.worlds
                for group in optimizer.param_groups:
                    group["lr"] = _rate(progress, step, settings)
                row = {"step": step, "world": number, "lr": optimizer.param_groups[0]["lr"]}
                row |= _learn(model, optimizer, batch, settings)
                row["seconds"] = round(time.monotonic() - started, 3)
                log.write(json.dumps(row) + "\n")
                on_step(row)
                step += 1
            log.flush()
            if number + 1 == settings.early:
                save_policy(model, tokenizer, out / EARLY_FOLDER)
            _save_state(out / STATE_FILE, model, optimizer, worlds=number + 1, step=step)
    model.eval()  # type: ignore[no-untyped-call]
    save_policy(model, tokenizer, out / MODEL_FOLDER)
    return out / MODEL_FOLDER


SETTINGS = {
    "model": {
        **{"train": "full", "demonstrations": False, "max_context": 1536, "rollout_batch": 80},
        "max_new_tokens": 96,  # a chain and its question
    },
}
"""What a run with the mini policy needs to be told; written beside the weights."""


def save_policy(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the policy as a transformers folder, its weights in bfloat16."""
    state = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)
    (folder / POLICY_SETTINGS_FILE).write_text(json.dumps(SETTINGS, indent=2) + "\n", encoding="utf-8")


def lessons_of(number: int, settings: MiniSettings, tokenizer: PreTrainedTokenizerFast) -> Iterator[Batch]:
    """Yield the batches of one world, in random order; lessons of like length share a batch.

    A solver learns in the world with mixed jargon, a challenger in the same world without.
    """
    rng = np.random.default_rng([settings.seed, settings.first_world + number])
    classroom = Classroom(_world(number, settings), seed=settings.seed)
    easy = settings.start is None and number < EASY_SHARE * settings.worlds
    shares = FIRST_SHARES if easy else HOP_SHARES
    lessons = draw_lessons(classroom, settings.questions, rng=rng, shares=shares)
    plain = Classroom(_world(number, settings, jargon=False), seed=settings.seed)
    if not easy:
        lessons += draw_walks(plain, round(settings.questions * CHALLENGER_SHARE), rng=rng)
    drills = round(settings.questions * sum(shares.values()) * (FIRST_DRILLS if easy else DRILLS))
    half = drills // 2
    lessons += draw_drills(
        classroom,
        reading=drills,
        planning=half,
        skilled=drills * (not easy),
        following=2 * drills,
        comparing=half,
        rng=rng,
    )
    lessons += draw_drills(plain, posing=half, finding=drills, rng=rng)
    encoded = [encode(lesson, tokenizer) for lesson in lessons]
    groups = _by_length([one for one in encoded if len(one.token_T) <= settings.max_tokens], settings.batch_tokens)
    for index in rng.permutation(len(groups)).tolist():
        yield _batch(groups[index])


def encode(lesson: Lesson, tokenizer: PreTrainedTokenizerFast) -> Encoded:
    """Return a lesson in the ids that the policy will see and write when it plays."""
    token_T: list[int] = []
    written_T: list[bool] = []
    for message in lesson.messages:
        ids = _ids(message.content, tokenizer)
        token_T += [*_ids(f"<|{message.role}|>", tokenizer), *ids]
        written_T += [False, *[message.role == "assistant"] * len(ids)]
    return Encoded(token_T, written_T)


def _ids(text: str, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _world(number: int, settings: MiniSettings, *, jargon: bool = True) -> Atlas:
    seed = 2 * (FIRST_WORLD + settings.first_world + number)
    return generate(seed, entities=settings.entities, jargon=jargon and "mixed")


def _sample_texts(settings: MiniSettings) -> Iterator[str]:
    """Yield what the vocabulary is learned from: so many worlds that syllables are learned, and not names."""
    for number in range(SAMPLED_WORLDS):
        rng = np.random.default_rng([settings.seed, number])
        for jargon, draw, count in ((True, draw_lessons, 80), (False, draw_walks, 20)):
            atlas = generate(2 * (FIRST_WORLD + number), entities=MIN_ENTITIES, jargon=jargon and "mixed")
            yield from (f" {passage.title}) {passage.text}" for passage in atlas.passages)
            for lesson in draw(Classroom(atlas, seed=settings.seed), count, rng=rng):
                yield lesson.messages[0].content
                yield from (message.content for message in lesson.messages if message.role == "assistant")


def _by_length(lessons: Sequence[Encoded], batch_tokens: int) -> list[list[Encoded]]:
    groups: list[list[Encoded]] = []
    for lesson in sorted(lessons, key=lambda one: len(one.token_T)):
        if groups and (len(groups[-1]) + 1) * _padded(lesson) <= batch_tokens:
            groups[-1].append(lesson)
        else:
            groups.append([lesson])
    return groups


def _padded(lesson: Encoded) -> int:
    """Return the length of a batch in which this lesson is the longest."""
    return -(-len(lesson.token_T) // _STEP) * _STEP


def _batch(lessons: Sequence[Encoded]) -> Batch:
    longest = max(map(_padded, lessons))
    token_BT = torch.zeros((len(lessons), longest), dtype=torch.long)
    attention_BT = torch.zeros((len(lessons), longest), dtype=torch.long)
    written_BT = torch.zeros((len(lessons), longest), dtype=torch.bool)
    for row, lesson in enumerate(lessons):
        length = len(lesson.token_T)
        token_BT[row, :length] = torch.tensor(lesson.token_T)
        attention_BT[row, :length] = 1
        written_BT[row, :length] = torch.tensor(lesson.written_T)
    return Batch(token_BT, attention_BT, written_BT)


def _learn(
    model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, batch: Batch, settings: MiniSettings
) -> dict[str, float]:
    """Take one step; the output layer is applied where something is learned, and nowhere else."""
    written_BT = batch.written_BT[:, 1:]
    learned_BT = batch.attention_BT[:, 1:].bool() if settings.read_weight else written_BT
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.bfloat16):
        hidden_BTD = model.model(input_ids=batch.token_BT, attention_mask=batch.attention_BT).last_hidden_state
        logits_NV = model.lm_head(hidden_BTD[:, :-1][learned_BT])
    token_N, written_N = batch.token_BT[:, 1:][learned_BT], written_BT[learned_BT]
    nll_N = nn.functional.cross_entropy(logits_NV.float(), token_N, reduction="none")
    loss = nll_N[written_N].mean()
    total = loss
    if settings.read_weight:
        total = loss + settings.read_weight * nll_N[~written_N].mean()
    optimizer.zero_grad(set_to_none=True)
    total.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        raise InvalidInput(f"lr must keep the gradient finite, got a norm of {float(norm)!r}")
    optimizer.step()
    right_N = logits_NV.argmax(dim=-1) == token_N
    return {
        "loss": round(float(loss.detach()), 4),
        "accuracy": round(float(right_N[written_N].float().mean()), 4),
        "written": int(written_N.sum()),
        "tokens": int(batch.attention_BT.sum()),
    }


def _tokenizer(folder: Path, settings: MiniSettings) -> PreTrainedTokenizerFast:
    """Return the vocabulary of the training, learned when it begins and kept from then on."""
    if not (folder / "tokenizer.json").exists() and settings.start is not None:
        PreTrainedTokenizerFast.from_pretrained(Path(settings.start) / MODEL_FOLDER).save_pretrained(folder)
    elif not (folder / "tokenizer.json").exists():
        train_tokenizer(_sample_texts(settings), size=settings.vocabulary).save_pretrained(folder)
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return tokenizer


def _make_optimizer(model: LlamaForCausalLM, settings: MiniSettings) -> torch.optim.AdamW:
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.95))


def _rate(progress: float, step: int, settings: MiniSettings) -> float:
    fall = max(0.0, (progress - settings.decay_from) / (1.0 - settings.decay_from))
    return settings.lr * min(1.0, (step + 1) / settings.warmup) * (1.0 - 0.95 * fall)


def _save_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, *, worlds: int, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "worlds": worlds, "step": step}
    with replacing(path) as draft:
        torch.save(state, draft)
