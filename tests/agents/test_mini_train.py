"""The mini policy: its structured start copies, its tokens are those of play, and a broken training ends the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from agents.base import Message
from agents.config import ModelSettings, resolve
from agents.mini.lessons import Lesson
from agents.mini.model import new_model
from agents.mini.tokenizer import TAGS, train_tokenizer
from agents.mini.train import STATE_FILE, MiniSettings, encode, lessons_of, train
from agents.policies.hf import LanguageModel
from sesa_env.errors import InvalidInput

TINY = MiniSettings(worlds=2, entities=200, questions=40, batch_tokens=4096, early=1)


def test_the_start_copies_what_followed_the_last_time() -> None:
    model = new_model(vocab_size=2048, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    once_BT = torch.randint(5, 2048, (4, 60), generator=generator)
    with torch.no_grad():
        logits_BTV = model(input_ids=torch.cat([once_BT, once_BT], dim=1)).logits
    copied = (logits_BTV[:, 60:-1].argmax(dim=-1) == once_BT[:, 1:]).float().mean()
    assert copied > 0.8  # by chance it would be 1 / 2048


def test_the_start_copies_by_two_tokens_where_one_is_not_enough() -> None:
    model = new_model(vocab_size=2048, seed=0).eval()
    once_T = torch.randint(5, 105, (300,), generator=torch.Generator().manual_seed(1))  # each token about three times
    with torch.no_grad():
        logits_TV = model(input_ids=torch.cat([once_T, once_T])[None]).logits[0]
    copied = (logits_TV[301:-1].argmax(dim=-1) == once_T[2:]).float().mean()
    assert copied > 0.5  # a head that matches one token reaches 0.25


def test_the_start_depends_on_the_seed_alone() -> None:
    one, again, other = (new_model(vocab_size=64, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_tags_are_single_tokens_digits_stand_alone_and_text_survives() -> None:
    tokenizer = train_tokenizer(["Who directed Nalvusan in 1931? It was Bor Tilan."] * 4, size=400)
    for tag in TAGS:
        assert len(tokenizer(tag, add_special_tokens=False)["input_ids"]) == 1
    text = "<search> Nalvusan 1931</search>"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([token]) for token in ids[-5:-1]] == ["1", "9", "3", "1"]


def test_a_fictional_name_is_a_token_a_syllable_wherever_it_stands() -> None:
    names = ["Balnudun", "Kirvelo", "Degupu"]
    tokenizer = train_tokenizer([f" {name} was the ruler of{name.lower()} {name}." for name in names] * 9, size=400)
    for text in (" Degupu", " degupu", "(Degupu)"):
        assert "".join(tokenizer.tokenize(text)).replace("Ġ", " ") == text
    assert [token.lstrip("Ġ") for token in tokenizer.tokenize(" Degupu")] == ["De", "gu", "pu"]
    assert tokenizer.tokenize(" was") == ["Ġwas"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mini") / "run"
    train(TINY, folder)
    return folder


def test_lessons_are_encoded_as_the_policy_sees_them_in_play(trained: Path) -> None:
    settings = ModelSettings(dtype="float32", demonstrations=False)
    policy = LanguageModel.load(trained / "model", adapters=("solver",), settings=settings, seed=0).policy(
        "solver", seed=0
    )
    lesson = Lesson(
        (
            Message("user", "Question: Who directed Bor?"),
            Message("assistant", "<think> directed</think><search> Bor directed</search>"),
            Message("user", "Doc 1(Title: Bor) Bor is a film."),
            Message("assistant", "<answer> Tilan</answer>"),
        ),
        "1-hop",
    )
    encoded = encode(lesson, policy.language_model.tokenizer)
    written = [message.content for message in lesson.messages if message.role == "assistant"]
    ids = policy.encode_chat(lesson.messages[:1])
    assert encoded.token_T[: len(ids)] == ids
    searched = policy.language_model.encode(written[0])
    reply = policy.encode_reply(lesson.messages[2].content, ended=False)
    answered = policy.language_model.encode(written[1])
    assert encoded.token_T == [*ids, *searched, *reply, *answered]
    parts = [(ids, False), (searched, True), (reply, False), (answered, True)]
    assert encoded.written_T == [flag for part, flag in parts for _ in part]


def test_batches_are_of_few_lengths_and_keep_their_limit(trained: Path) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(trained / "model")
    shapes = {tuple(batch.token_BT.shape) for batch in lessons_of(1, TINY, tokenizer)}
    assert shapes
    assert all(length % 32 == 0 and rows * length <= TINY.batch_tokens for rows, length in shapes)


def test_the_loss_falls_and_the_log_says_so(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows]
    assert sum(losses[-4:]) < sum(losses[:4])  # batches are of different kinds
    assert [row["step"] for row in rows] == list(range(len(rows)))


def test_a_training_that_was_interrupted_ends_with_the_same_weights(trained: Path, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(row: dict[str, float]) -> None:
        if row["world"] == 1:
            raise Killed

    with pytest.raises(Killed):
        train(TINY, tmp_path / "run", on_step=kill)
    train(None, tmp_path / "run", resume=True)
    whole, broken = (torch.load(run / STATE_FILE, weights_only=True)["model"] for run in (trained, tmp_path / "run"))
    assert all(torch.equal(whole[name], broken[name]) for name in whole)
    files = [run / "early" / "model.safetensors" for run in (trained, tmp_path / "run")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_policy_brings_its_settings_and_a_user_overrides_them(trained: Path) -> None:
    settings = resolve({}, [f"policy={trained / 'model'}"])
    assert settings.model.demonstrations is False
    assert settings.model.train == "full"
    assert resolve({}, [f"policy={trained / 'model'}", "model.demonstrations=true"]).model.demonstrations is True
    assert resolve({}).model.demonstrations is True


def test_the_early_policy_is_kept_beside_the_last(trained: Path) -> None:
    early, whole = (load_file(trained / name / "model.safetensors") for name in ("early", "model"))
    assert not all(torch.equal(early[name], whole[name]) for name in whole)


def test_a_used_folder_and_settings_out_of_range_are_refused(trained: Path) -> None:
    with pytest.raises(InvalidInput, match="new or empty folder"):
        train(TINY, trained)
    with pytest.raises(InvalidInput, match="decay_from"):
        MiniSettings(decay_from=1.0)
    with pytest.raises(InvalidInput, match="batch_tokens"):
        MiniSettings(batch_tokens=10)
    with pytest.raises(InvalidInput, match=r"early must lie in \[1, worlds\], 3, got 4"):
        MiniSettings(worlds=3, early=4)


def test_a_training_goes_on_from_another_in_other_worlds(trained: Path, tmp_path: Path) -> None:
    settings = MiniSettings(
        start=str(trained), first_world=2, worlds=1, entities=200, questions=30, batch_tokens=4096, lr=1e-6
    )
    folder = train(settings, tmp_path / "more")
    assert (folder / "tokenizer.json").read_bytes() == (trained / "model" / "tokenizer.json").read_bytes()
    before, after = (load_file(one / "model.safetensors") for one in (trained / "model", folder))
    assert all(torch.allclose(before[name], after[name], atol=1e-2) for name in before)  # steps of a millionth
    assert json.loads((tmp_path / "more" / "log.jsonl").read_text().splitlines()[0])["lr"] < 1e-6
