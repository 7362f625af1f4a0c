"""What skills came to: questions count for a kind of skill when one of that kind was shown, with memory on and off."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Row
from benchmarks.skill_effects import HAND_WRITTEN, effect_table, kind_of, read_effects
from skill_memory.history import BANK_FILE, read_bank
from skill_memory.priming import load_seeds
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill
from skill_memory.stored import StoredMemory


def row(seed: int, question: str, memory: str, em: bool, *shown: str) -> Row:
    return Row(
        run=f"sesa-{seed}",
        method="sesa",
        dataset="atlas:1",
        fictional=True,
        memory=memory,  # type: ignore[arg-type]
        question_id=question,
        family="1-hop",
        answers=("Talby",),
        prediction="Talby",
        em=em,
        f1=float(em),
        containment=em,
        turns=2,
        searches=1,
        invalid=0,
        end_reason="answered",
        skill_ids=shown,
        prompt_tokens=10,
        completion_tokens=7,
        retrieval="bm25-x",
        top_k=3,
    )


def test_kinds_tell_who_wrote_a_skill() -> None:
    learned = Skill(id="k1", description="Search twice.", triggers=("who",), avoid="", queries=("{name} x",))
    assert kind_of(load_seeds()[0]) == HAND_WRITTEN
    assert kind_of(learned) == "other learned"


def test_only_questions_for_which_a_skill_was_shown_are_compared(tmp_path: Path) -> None:
    for seed in range(2):
        (tmp_path / f"sesa-{seed}").mkdir()
        StoredMemory(MemorySettings(), tmp_path / f"sesa-{seed}" / BANK_FILE).close()
    shown = read_bank(tmp_path / "sesa-0").skills[0].id
    rows = [row(seed, "q1", "on", True, shown) for seed in range(2)]
    rows += [row(0, "q1", "off", False), row(1, "q1", "off", True)]
    rows += [row(0, "q2", "on", False, shown), row(0, "q2", "off", False)]
    rows += [row(0, "q3", "on", False), row(0, "q3", "off", True)]  # nothing was shown
    rows += [row(1, "q2", "on", True), row(1, "q2", "off", False)]
    (effect,) = read_effects(tmp_path, arms=["sesa", "ssp"], rows=rows, seeds=2)
    assert (effect.kind, effect.skills) == (HAND_WRITTEN, 2 * len(load_seeds()))
    assert (effect.on, effect.off) == (0.5, 0.25)
    assert (effect.difference.value, effect.difference.n) == (0.25, 2)
    assert "hand-written" in effect_table([effect])


def test_arms_without_a_bank_have_no_effects(tmp_path: Path) -> None:
    (tmp_path / "ssp-0").mkdir()
    assert read_effects(tmp_path, arms=["ssp"], rows=[row(0, "q1", "on", True, "s1")], seeds=1) == []
