"""SESA-V: SESA whose failures are traced to their causes, and whose skills must prove themselves before they enter.

Carries VeriSkill's attribution and executable validation over to search.  Each candidate costs up to 2 G (1 + 4 + 4)
attempts besides training, which the log counts; compare it with SESA at equal cost, not only at equal steps.
"""

from typing import Any

from benchmarks.methods.sesa import SESA

SESA_V: dict[str, Any] = {**SESA, "memory": {**SESA["memory"], "attribution": True, "executed": True}}
