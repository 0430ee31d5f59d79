"""What a journal asks of a figure: its width, letters that can be read, vectors, embedded fonts, no words on others."""

import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.text import Text

import benign as bo
from benign.plot.bars import PictureRow, pictures_figure
from benign.plot.laws import Critical, exponents_figure, exponents_panels
from benign.plot.sheet import INCHES, drawn_for
from tests.plot.crossing import crossing
from tests.says import says
from tests.tiny import tiny

SMALLEST = 6.5
"""points"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    changes = ("data.samples=[2, 4, 6]", "data.strong_noise_std=1.0", "data.tokens=4")
    attack = "attack={kind: pgd, ball: {radius: 0.1}, steps: 2}"
    return tiny(*changes, attack).run(tmp_path_factory.mktemp("papers") / "run")


KINDS = {
    "phase": lambda result, width: bo.plot.phase(
        crossing(), level=0.5, printed="samples * snr**2 = 40", width=width
    ),
    "two maps": lambda result, width: bo.plot.phase(
        result, ["test_accuracy", "robust_accuracy"], level=0.6, width=width
    ),
    "regimes": lambda result, width: bo.plot.regimes(
        result, printed="samples * snr**2 = 4", width=width
    ),
    "curves": lambda result, width: bo.plot.curves(
        result.sel(samples=4), "train_loss_curve", by="snr", log=True, width=width
    ),
    "attention": lambda result, width: bo.plot.attention(result.sel(snr=2.0), width=width),
    "exponents": lambda result, width: bo.plot.exponents(
        crossing(), level=0.5, predicted="samples * snr**2", width=width
    ),
    "flat laws": lambda result, width: flat_laws(width),
}


def flat_laws(width: str) -> Figure:
    """Panels of laws that are not drawn, which takes the most words."""
    level = crossing().test_accuracy.isel(samples=[2] * 4).assign_coords(samples=[2, 4, 8, 16])
    sets = [Critical("a network with a name", bo.boundary(level, 0.5))] * 3
    with drawn_for(width):
        return exponents_panels({"one": sets, "two": sets}, x="N", y="SNR", title="", caption="")


@pytest.fixture(
    scope="module", params=[(kind, width) for kind in KINDS for width in INCHES], ids=" ".join
)
def figure(request: pytest.FixtureRequest, result: xr.Dataset) -> Figure:
    """Every kind at every width, laid out."""
    kind, width = request.param
    drawn = KINDS[kind](result, width)
    assert drawn.get_figwidth() == INCHES[width]
    drawn.draw_without_rendering()
    return drawn


def written(figure: Figure) -> list[Any]:
    texts: list[Any] = figure.findobj(Text)
    return [text for text in texts if text.get_text().strip() and text.get_visible()]


def test_every_letter_can_be_read(figure: Figure):
    assert min(text.get_fontsize() for text in written(figure)) >= SMALLEST
    assert not [text for text in written(figure) if "$" in text.get_text()], "raised letters shrink"


def test_nothing_leaves_the_figure_and_no_words_cover_others(figure: Figure):
    frame, ticks = figure.bbox, set()
    bars = [bar for ax in figure.axes for bar in ax.child_axes]
    for ax in [*figure.axes, *bars]:
        ticks |= {*ax.get_xticklabels(), *ax.get_yticklabels()}
        ticks |= {*ax.get_xticklabels(minor=True), *ax.get_yticklabels(minor=True)}
    extents = {each: each.get_window_extent() for each in written(figure) if each not in ticks}
    for words, box in extents.items():
        assert frame.x0 - 1 <= box.x0 < box.x1 <= frame.x1 + 1, words
        assert frame.y0 - 1 <= box.y0 < box.y1 <= frame.y1 + 1, words
    for (one, first), (other, second) in combinations(extents.items(), 2):
        assert not first.overlaps(second), (one, other)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A map of 10 x 10 cells in every format."""
    cells = crossing(np.geomspace(2, 64, 10), np.geomspace(0.5, 16, 10))
    drawn = bo.plot.phase(cells, level=0.5, width="column")
    paths = bo.plot.save(drawn, tmp_path_factory.mktemp("files") / "map")
    return {path.suffix: path.read_bytes() for path in paths}


def test_a_map_is_made_of_vectors(files: dict[str, bytes]):
    assert b"/Subtype /Image" not in files[".pdf"]
    assert b"<image" not in files[".svg"]


def test_the_letters_of_a_pdf_are_embedded_as_truetype(files: dict[str, bytes]):
    assert b"/FontFile2" in files[".pdf"]
    assert b"/Type3" not in files[".pdf"]


def test_files_are_as_wide_as_asked(files: dict[str, bytes]):
    points = 72 * INCHES["column"]
    [box] = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", files[".pdf"])
    [wide] = re.findall(rb'<svg[^>]* width="([\d.]+)pt"', files[".svg"])
    assert float(box) == pytest.approx(points)
    assert float(wide) == pytest.approx(points)


def test_no_file_knows_the_day(files: dict[str, bytes]):
    assert b"CreationDate" not in files[".pdf"]
    assert b"<dc:date>" not in files[".svg"]


def test_what_recipes_draw_with_takes_the_width_in_force():
    found = bo.boundary(crossing().test_accuracy, 0.5)
    sets = [Critical("one set with a long name, and more", found), Critical("another", found)]
    labels: Any = {"title": "A title too long for a column of a paper", "caption": "word " * 60}
    strip = [PictureRow("a row", np.zeros((9, 1, 4, 4)))]
    panel = bo.plot.Curves([("one", crossing().test_accuracy[0])], "accuracy", "snr")
    screen = []
    for width, across in ((None, 3), ("page", 2), ("column", 1)):
        with drawn_for(width):
            drawn = [
                exponents_figure(sets, x="N", y="SNR", **labels),
                exponents_panels({"a": sets, "b": sets}, x="N", y="SNR", **labels),
                pictures_figure(strip, **labels),
                bo.plot.curves_figure([[panel] * 3], **labels),
            ]
        specs: Any = [ax.get_subplotspec() for ax in drawn[-1].axes]
        assert {spec.get_gridspec().ncols for spec in specs} == {across}
        first: Any = drawn[2].axes[0].get_subplotspec()
        assert first.get_gridspec().get_geometry() == (1, 9), "a row of pictures stays one"
        screen = screen or [each.get_figwidth() for each in drawn]
        if width:
            assert {each.get_figwidth() for each in drawn} == {INCHES[width]}
    assert screen == pytest.approx([5.2, 8.4, 0.95 * 9 + 0.6, 3.55 * 3])


def test_unknown_widths_and_formats_are_refused(tmp_path):
    parts = "`width`", "column", "page", "'wide'"
    with pytest.raises(ValueError, match=says(*parts)), drawn_for("wide"):
        pass
    with pytest.raises(ValueError, match=says("`formats`", "pdf", "svg", "png", "['eps']")):
        bo.plot.save(Figure(), tmp_path / "a", formats=["eps"])
    assert not list(tmp_path.iterdir())
