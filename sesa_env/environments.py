"""Environments that other distributions declare, registered with Gymnasium without importing them.

    [project.entry-points."sesa_env.environments"]          # in their pyproject.toml
    "Mine-v0" = "my_package:MyEnv"

    env = gymnasium.make("sesa_env.environments:Mine-v0")    # or import this module, and make "Mine-v0"

Gymnasium has no entry points of its own.  An environment's class is imported when it is made, and not before.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import gymnasium

from sesa_env.errors import DuplicateName

GROUP = "sesa_env.environments"


def register_environments() -> list[str]:
    """Register what is declared and not registered yet, and return the ids of all that is declared.

    Raises:
        DuplicateName: an id is taken by another environment.
    """
    declared = entry_points(group=GROUP)
    for point in declared:
        spec = gymnasium.registry.get(point.name)
        if spec is None:
            gymnasium.register(id=point.name, entry_point=point.value)
        elif spec.entry_point != point.value:
            raise DuplicateName(f"the environment {point.name!r} is {spec.entry_point} already, and not {point.value}")
    return [point.name for point in declared]


register_environments()
