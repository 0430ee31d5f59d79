"""What is printed, and how: results on stdout, complaints on stderr."""

import os
import sys
from pathlib import Path

MOST_LINES, LONGEST_LINE = 6, 300


def shown(path: Path) -> str:
    """A path as seen from here, if it lies below."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _printable(text: str) -> str:
    """Without control characters, which a stranger's file could send to the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def echo(text: str) -> None:
    if text:
        print(_printable(text), flush=True)


def print_error(text: str) -> None:
    lines = _printable(text).splitlines()
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"... and {len(lines) - MOST_LINES} more"]
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..." for line in lines]
    print("benign: " + "\n  ".join(lines), file=sys.stderr, flush=True)
