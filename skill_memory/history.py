"""The bank of any step, rebuilt from the events; and whether what is stored is what the events led to.

skills = replay(event for event in store.events() if event.step <= 40)    # id -> skill, with its counters
problems = check_history(store)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from skill_memory.records import skill_from_dict
from skill_memory.skill import Skill
from skill_memory.store import Event, Store, text_key

Skills = dict[str, Skill]


def replay(events: Iterable[Event]) -> Skills:
    """Return the active skills, in the order in which they came, after these events."""
    skills: Skills = {}
    for event in events:
        effect = _EFFECTS.get(event.kind)
        if effect:
            effect(skills, event)
    return skills


def _admit(skills: Skills, event: Event) -> None:
    skills[event.skill_id] = skill_from_dict(event.data["skill"])


def _evict(skills: Skills, event: Event) -> None:
    del skills[event.skill_id]


def _credit(skills: Skills, event: Event) -> None:
    for id in event.data["skill_ids"]:
        skills[id] = skills[id].used(**{event.cause: 1})


# The other kinds (offer, drop, drain, refuse, consolidate, reembed) leave the skills as they are.
_EFFECTS: dict[str, Callable[[Skills, Event], None]] = {"admit": _admit, "evict": _evict, "credit": _credit}


def check_history(store: Store) -> list[str]:
    """Return every way in which the stored skills, vectors and tombstones contradict each other or the events."""
    skills = store.skills()
    events = list(store.events())
    try:
        replayed = list(replay(events).values())
    except KeyError as error:
        return [f"an event is about skill {error}, which is not active then"]
    problems = [] if replayed == skills else ["skills differ from what the events lead to"]
    return problems + _check_ids(events, skills) + _check_vectors(store, skills) + _check_texts(store, skills)


def _check_ids(events: list[Event], skills: list[Skill]) -> list[str]:
    issued = [event.skill_id for event in events if event.kind == "admit"]
    problems = [f"id {id} was given {issued.count(id)} times" for id in set(issued) if issued.count(id) > 1]
    steps = [event.step for event in events]
    if steps != sorted(steps):
        problems.append("steps of events go backwards")
    active = {skill.id for skill in skills}
    seeds = {event.skill_id for event in events if event.kind == "admit" and event.data["skill"]["is_seed"]}
    problems += [f"hand-written skill {id} is gone" for id in sorted(seeds - active)]
    return problems


def _check_vectors(store: Store, skills: list[Skill]) -> list[str]:
    vectors = store.vectors()
    problems = [f"skill {skill.id} has no vector" for skill in skills if skill.id not in vectors]
    if len({vector_D.shape for vector_D in vectors.values()}) > 1:
        problems.append("vectors differ in length")
    lengths = {id: float((vector_D * vector_D).sum()) for id, vector_D in vectors.items()}
    return problems + [f"vector of {id} has squared length {n:.4f}" for id, n in lengths.items() if abs(n - 1) > 1e-3]


def _check_texts(store: Store, skills: list[Skill]) -> list[str]:
    tombstones = store.tombstones()
    back = [skill.id for skill in skills if text_key(skill) in tombstones]
    wrong = [skill.id for skill in skills if skill.usage.retrieved != skill.usage.helped + skill.usage.hurt]
    return [f"skill {id} has a text that was evicted" for id in back] + [
        f"counters of {id} do not add up" for id in wrong
    ]
