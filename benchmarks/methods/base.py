"""The untrained policy with the hand-written skills: what every other method starts from."""

from typing import Any

BASE: dict[str, Any] = {"steps": 0, "memory": {"kind": "bank", "distil": "none"}}
