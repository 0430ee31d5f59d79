"""Words, tables and labelled lines: what everything that the command line prints is made of."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 100


def value_text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def values_text(values: Sequence[Any]) -> str:
    return ", ".join(abbreviated([value_text(value) for value in values]))


def abbreviated(words: list[str]) -> list[str]:
    return words if len(words) <= 8 else [*words[:4], "...", words[-1]]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of words as aligned lines."""
    widths = [max(len(word) for word in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{w:{n}}" for w, n in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def labelled(rows: Iterable[tuple[str, list[str]]]) -> str:
    """Labels with one or more lines each, wrapped and aligned."""
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    lines = []
    for label, texts in rows:
        for number, text in enumerate(texts):
            first = f"  {label if number == 0 else '':{width}}  "
            lines.append(wrapped(text, first, " " * (width + 6)))
    return "\n".join(lines)


def wrapped(text: str, first: str = "", rest: str = "  ") -> str:
    """A text of lines that are not too long."""
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest)


def bytes_text(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:,.3g} GiB"
