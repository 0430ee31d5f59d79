"""Formats of `experiment.json`: older ones are brought up to date in memory, step by step."""

from collections.abc import Callable
from typing import Any

FORMAT = 2


def _from_1(content: dict[str, Any]) -> dict[str, Any]:
    """Format 1 held the specifications alone."""
    return {"format": 2, "numerics": None, "made": {}, "history": content["history"]}


STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}
"""what leads from a format to the next"""


def upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """The content of an `experiment.json` of today or earlier, in today's format."""
    while content["format"] != FORMAT:
        content = STEPS[content["format"]](content)
    return content
