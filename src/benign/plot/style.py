"""The style of every figure, and reproducible files: vector files for papers, a PNG for screens."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator, Sequence
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

SMALL = 7.0  # points: legends and captions; no text is smaller

DPI = 200
FORMATS = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": None}
"""the formats, and the metadata to leave out because they contain the date"""

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
    "pdf.fonttype": 42,  # TrueType, embedded: publishers refuse the default
    "svg.fonttype": "none",  # text stays text: searchable, and small
    "svg.hashsalt": "benign",
}


@contextmanager
def style() -> Iterator[None]:
    """Set matplotlib's settings of this package inside a `with` block."""
    with matplotlib.rc_context(_STYLE):
        yield


def save(
    figure: Figure,
    path: str | os.PathLike[str],
    formats: Sequence[str] = ("pdf", "svg", "png"),
) -> list[Path]:
    """Write `path`.pdf, `path`.svg and `path`.png (200 dpi); the same figure gives the same bytes.

    Lines and text are vectors; a PDF embeds its fonts. If the path ends in one of the formats, only that one is
    written. Each file appears complete or not at all, also when two processes write it at once.

    >>> import tempfile
    >>> import benign as bo
    >>> from matplotlib.figure import Figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     all_three = bo.plot.save(Figure(), f"{folder}/empty")
    ...     one = bo.plot.save(Figure(), f"{folder}/alone.pdf")
    >>> [path.name for path in [*all_three, *one]]
    ['empty.pdf', 'empty.svg', 'empty.png', 'alone.pdf']
    """
    stem = Path(path)
    if stem.suffix[1:] in FORMATS:
        stem, formats = stem.with_suffix(""), [stem.suffix[1:]]
    unknown = [each for each in formats if each not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"`formats` must be some of {', '.join(FORMATS)}, got {list(formats)}")
    stem.parent.mkdir(parents=True, exist_ok=True)
    with style(), _laid_out(figure):
        contents = {kind: _render(figure, kind) for kind in formats}
    return [_write(stem.with_name(f"{stem.name}.{kind}"), each) for kind, each in contents.items()]


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """Lay the figure out once for all formats: the layout takes as long as the drawing."""
    layout, dpi = figure.get_layout_engine(), figure.dpi
    try:
        figure.dpi = DPI
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # with "none" every format would be laid out again
        yield
    finally:
        figure.set_layout_engine(layout)
        figure.dpi = dpi


def _render(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=FORMATS[kind])
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
