"""What a message must hold, whatever its sentence: `pytest.raises(ValueError, match=says("rate", "-1"))`."""

import re


def says(*parts: str) -> str:
    """A regular expression that finds a text with all of these parts, in any order, over any number of lines."""
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts)


def holds(text: str, *parts: str) -> bool:
    """Whether a text has all of these parts."""
    return all(part in text for part in parts)
