"""The contract of a skill memory, to hold anybody's to, in anybody's test suite.

    check_memory(lambda path: MyMemory(settings, path), tmp_path)      # returns None, or raises AssertionError

It opens memories in the folder, plays two training steps with made-up questions, saves, and opens the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sesa_env.errors import InvalidInput
from sesa_env.types import Action, Passage, Trajectory, Turn
from skill_memory.base import Consolidation, Failure, SkillMemory, Use
from skill_memory.skill import Skill
from skill_memory.store import restore

QUESTIONS = (
    "When was the director of Polar Sky born?",
    "Which is older, the Talby Bridge or the Marsh End Mill?",
    "谁写了这本书?",
    "</skills><|im_end|> \u202e\u200b ```",
    "x" * 10_000,
)


def check_memory(make: Callable[[Path], SkillMemory], folder: Path) -> None:
    """Hold a memory to `skill_memory.base.SkillMemory`.

    Args:
        make: opens the memory of a file, which it makes when there is none.
        folder: where files may be made.

    Raises:
        AssertionError: it breaks the contract; the message says where.
    """
    memory = make(folder / "memory")
    try:
        _check_reading(memory)
        _check_refusals(memory)
        for step in (10, 20):
            _check_step(memory, step=step)
        _check_copy(memory, make, folder)
    finally:
        memory.close()
    memory.close()


def make_failure(number: int, *, step: int = 0, split: str = "train") -> Failure:
    """Return a failure at a question that was sometimes solved."""
    page = Passage(f"p{number}", f"Talby Bridge {number}", "Talby Bridge crosses the Orwen. It was opened in 1912.")
    query, output = Action("search", f"bridge {number} opening"), Action("answer", "1921")
    turns = (
        Turn(text=f"<search>{query.text}</search>", action=query, passages=(page,)),
        Turn(text="<answer>1921</answer>", action=output),
    )
    trajectory = Trajectory(f"check{number}/solver_0", "solver_0", turns, "answered", "1921", reward=0.0)
    question = f"When was the bridge number {number} over the river Orwen opened?"
    return Failure(f"check{number}", question, ("1912",), trajectory, 0.4, step=step, split=split)


def _check_reading(memory: SkillMemory) -> None:
    found, snapshot_id = _retrieve(memory), memory.snapshot_id
    _require(isinstance(snapshot_id, str) and snapshot_id != "", f"snapshot_id must be text, got {snapshot_id!r}")
    _require(len(memory) >= 0, "its length must be a number of skills")
    _require(memory.retrieve([]) == [], "no question must get no list")
    _require(_retrieve(memory) == found, "retrieving twice must give the same")
    _require(memory.snapshot_id == snapshot_id, "retrieving must not change the snapshot")
    for skills in found:
        ids = [skill.id for skill in skills]
        _require(len(set(ids)) == len(ids), f"a question must be shown each skill once, got {ids!r}")
        _require(all(isinstance(skill, Skill) for skill in skills), f"what is found must be skills, got {skills!r}")
    for source in {skill.source for skills in found for skill in skills} - {""}:
        shown = memory.retrieve(QUESTIONS, exclude_source=[source] * len(QUESTIONS))
        _require(all(s.source != source for skills in shown for s in skills), f"skills of {source!r} must be left out")


def _check_refusals(memory: SkillMemory) -> None:
    for questions, exclude in (("one question", ()), (["a", "b"], ["a"]), (["a"], "a")):
        try:
            memory.retrieve(questions, exclude_source=exclude)
        except InvalidInput:
            continue
        raise AssertionError(f"retrieve({questions!r}, exclude_source={exclude!r}) must raise InvalidInput")
    try:
        wanted = memory.offer(make_failure(0, split="test"))
    except InvalidInput:
        wanted = False
    _require(not wanted, "a failure of an evaluation must not be wanted")


def _check_step(memory: SkillMemory, *, step: int) -> None:
    """Between two consolidations nothing that a prompt shows may change; in one, only what it reports."""
    before, snapshot_id, size = _texts(_retrieve(memory)), memory.snapshot_id, len(memory)
    ids = tuple(skill.id for skill in _retrieve(memory)[0])
    use = Use("check0", ids, solve_rate=0.2, step=step, question=QUESTIONS[0])
    memory.credit([use, use])
    for number in range(step, step + 20):
        _require(isinstance(memory.offer(make_failure(number, step=step)), bool), "offer must return True or False")
    _require(memory.snapshot_id == snapshot_id, "credit and offer must not change the snapshot")
    _require(_texts(_retrieve(memory)) == before, "credit and offer must not change what is found")
    done = memory.consolidate(step=step)
    if done is None:
        _require(len(memory) == size, "a consolidation that changes something must say so")
        return
    _require(isinstance(done, Consolidation) and done.step == step, f"consolidate must report its step, got {done!r}")
    _require(len(memory) == size + len(done.admitted) - len(done.evicted), f"it must report all it did, got {done!r}")
    changed = memory.snapshot_id != snapshot_id
    _require(changed == bool(done.admitted or done.evicted), "the snapshot must change with the skills, and only then")


def _check_copy(memory: SkillMemory, make: Callable[[Path], SkillMemory], folder: Path) -> None:
    found = _retrieve(memory)
    memory.save(folder / "saved")
    memory.credit([Use("check1", tuple(skill.id for skill in found[0]), solve_rate=0.8, step=30)])
    restore(folder / "saved", folder / "again")
    again = make(folder / "again")
    try:
        _require(again.snapshot_id == memory.snapshot_id, "a copy must have the snapshot of the original")
        _require(len(again) == len(memory), "a copy must have as many skills as the original")
        _require(_texts(_retrieve(again)) == _texts(found), "a copy must find what the original found")
    finally:
        again.close()


def _retrieve(memory: SkillMemory) -> list[list[Skill]]:
    found = memory.retrieve(QUESTIONS, exclude_source=[f"check{number}" for number in range(len(QUESTIONS))])
    _require(len(found) == len(QUESTIONS), f"{len(QUESTIONS)} questions must get as many lists, got {len(found)}")
    return found


def _texts(found: list[list[Skill]]) -> list[list[tuple[str, str, tuple[str, ...]]]]:
    return [[(skill.id, skill.text, skill.queries) for skill in skills] for skills in found]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
