"""One look for every figure, and files that come out the same twice."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable with any colour vision.
VERMILLION = "#d55e00"
BLUE = "#0072b2"
BLACK = "#111111"
GREY = "#d9d9d9"
DARK_GREY = "#8c8c8c"
COLOUR_MAP = "viridis"

SMALL = 7.0  # points: legends and captions

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so the layout is the same everywhere
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "figure.titlesize": 9.5,
    "figure.titleweight": "bold",
    "figure.dpi": 100,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.direction": "out",
    "ytick.direction": "out",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "xtick.minor.size": 1.6,
    "ytick.minor.size": 1.6,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "lines.linewidth": 1.4,
    "hatch.linewidth": 0.5,
    "image.cmap": COLOUR_MAP,
    "svg.fonttype": "none",  # text stays text: searchable, and small
    "svg.hashsalt": "benign",
}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for this package, for the length of a `with` block."""
    with matplotlib.rc_context(_STYLE):
        yield


def save(figure: Figure, path: str | os.PathLike[str]) -> list[Path]:
    """Write `path`.png (200 dpi) and `path`.svg; the same figure gives the same bytes.

    Each file appears complete or not at all, also when two processes write it at once.

    >>> import tempfile
    >>> import benign as bo
    >>> from matplotlib.figure import Figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in bo.save(Figure(), f"{folder}/empty")]
    ['empty.png', 'empty.svg']
    """
    stem = Path(path)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png = _write(stem.with_name(f"{stem.name}.png"), _render(figure, "png", None))
    layout = figure.get_layout_engine()
    figure.set_layout_engine(
        "none"
    )  # to find the places of all parts again takes as long as drawing them
    svg = _write(stem.with_name(f"{stem.name}.svg"), _render(figure, "svg", {"Date": None}))
    figure.set_layout_engine(layout)
    return [png, svg]


def _render(figure: Figure, kind: str, metadata: dict[str, None] | None) -> bytes:
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
