"""Skill memories: what has been learned, as text that only a solver may read.

    memory = make_memory(MemorySettings(), Path("run/skills.sqlite"))
    skills = memory.retrieve(["Who directed the film that ...?"])[0]

A memory of your own is a class with the methods of `SkillMemory`, made by (settings, path) and registered in MEMORIES.
Nothing here plays or learns weights; the challenger's code never imports this package.
"""

from __future__ import annotations

from pathlib import Path

from sesa_env.registry import ENCODERS, MEMORIES
from skill_memory.bank import SkillBank
from skill_memory.base import Consolidation, Failure, SkillMemory, Use
from skill_memory.none import NoMemory
from skill_memory.render import render_skills
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill, Usage
from skill_memory.store import restore
from skill_memory.vectors import reembed

__all__ = [
    "Consolidation",
    "Failure",
    "MemorySettings",
    "NoMemory",
    "Skill",
    "SkillBank",
    "SkillMemory",
    "Usage",
    "Use",
    "make_memory",
    "reembed",
    "render_skills",
    "restore",
]

MEMORIES.register("none", "skill_memory.none:NoMemory")
MEMORIES.register("static", "skill_memory.static:StaticMemory")
MEMORIES.register("bank", "skill_memory.bank:SkillBank")
MEMORIES.register("skillrl", "skill_memory.skillrl:SkillRLMemory")
MEMORIES.register("placebo", "skill_memory.placebo:PlaceboBank")
MEMORIES.register("remote", "skill_memory.remote:RemoteMemory")

ENCODERS.register("hashing", "skill_memory.encode:HashingEncoder")


def make_memory(settings: MemorySettings, path: Path) -> SkillMemory:
    """Make the memory that the settings name; `path` is its file, which is made when there is none.

    Raises:
        UnknownName: no memory, encoder or distiller of that name is registered.
    """
    memory: SkillMemory = MEMORIES.make(settings.kind, settings, path)
    return memory
