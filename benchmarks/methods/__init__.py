"""The methods that can be compared, as settings: the difference between two methods is the difference between these.

    preset = method("sesa")       # nested values to lay over the defaults

Sizes (rounds, steps, lengths, model) are no part of a method, so that all methods run at the same size.
"""

from __future__ import annotations

from typing import Any

from benchmarks.methods.base import BASE
from benchmarks.methods.search_r1 import SEARCH_R1
from benchmarks.methods.sesa import SESA
from benchmarks.methods.sesa_v import SESA_V
from benchmarks.methods.skillrl import SKILLRL
from benchmarks.methods.ssp import SSP
from sesa_env.errors import UnknownName

METHODS: dict[str, dict[str, Any]] = {
    "base": BASE,
    "search_r1": SEARCH_R1,
    "ssp": SSP,
    "sesa": SESA,
    "sesa_v": SESA_V,
    "skillrl": SKILLRL,
}


def method(name: str) -> dict[str, Any]:
    """Return a method's settings, its name among them.

    Raises:
        UnknownName: there is no such method; the message lists those there are.
    """
    if name not in METHODS:
        raise UnknownName(f"no method named {name!r}; known: {', '.join(sorted(METHODS))}")
    return {"method": name, **METHODS[name]}
