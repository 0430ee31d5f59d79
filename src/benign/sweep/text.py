"""Words, tables and labelled lines: the building blocks of the output of the command line."""

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MOST_LINES, LONGEST_LINE = 6, 300


def shown(path: Path) -> str:
    """Return a path relative to the current folder, if it lies below."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _printable(text: str) -> str:
    """Return text without control characters, which a foreign file could send to the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def echo(text: str) -> None:
    """Print to stdout: a result."""
    if text:
        print(_printable(text), flush=True)


def echo_error(text: str) -> None:
    """Print to stderr, in full: the errors of failed runs, with their tracebacks if requested."""
    print(_printable(text), file=sys.stderr, flush=True)


def print_error(text: str) -> None:
    """Print to stderr why a command cannot go on, or a warning, with the name of the program; long texts are cut."""
    lines = _printable(text).splitlines()
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"... and {len(lines) - MOST_LINES} more"]
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..." for line in lines]
    print("benign: " + "\n  ".join(lines), file=sys.stderr, flush=True)


WIDTH = 100


def value_text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def values_text(values: Sequence[Any]) -> str:
    return ", ".join(abbreviated([value_text(value) for value in values]))


def abbreviated(words: list[str]) -> list[str]:
    return words if len(words) <= 8 else [*words[:4], "...", words[-1]]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of words as aligned lines."""
    widths = [max(len(word) for word in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{w:{n}}" for w, n in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def labelled(rows: Iterable[tuple[str, list[str]]]) -> str:
    """Return labels with one or more lines each, wrapped and aligned."""
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    lines = []
    for label, texts in rows:
        for number, text in enumerate(texts):
            first = f"  {label if number == 0 else '':{width}}  "
            lines.append(wrapped(text, first, " " * (width + 6)))
    return "\n".join(lines)


def wrapped(text: str, first: str = "", rest: str = "  ") -> str:
    """Return text wrapped to the width of a page."""
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest)


def bytes_text(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:,.3g} GiB"
