"""The notebook examples/tutorial.ipynb: kept without outputs, and run as a reader runs it."""

import re
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tutorial.ipynb"
# asyncio, zmq and others are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


def read() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_kept_without_outputs():
    cells = [cell for cell in read().cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
    assert NOTEBOOK.stat().st_size < 20_000


def test_it_uses_public_names_only():
    code = "\n".join(cell.source for cell in read().cells if cell.cell_type == "code")
    assert {*re.findall(r"^(?:from|import) (\S+)", code, re.MULTILINE)} == {"benign"}


@pytest.mark.timeout(400)
def test_it_runs_and_shows_its_figures(tmp_path, record_property):
    """About 45 s on two quiet cores; the limit is for busy ones."""
    notebook, begin = read(), time.monotonic()
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    record_property("seconds", time.monotonic() - begin)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    shown = [output.data for output in outputs if output.output_type != "stream"]
    assert sum("image/png" in data for data in shown) == 2, "regimes, and maps with boundaries"
    assert "exponent -4 is inside" in printed
    assert "exponent -2 is outside" in printed
    assert "\ninside\n" in printed, "of the theorem's conditions"
    words = re.findall(r"^(confirmed|refuted|inconclusive|identity) ", printed, re.MULTILINE)
    assert words == ["confirmed", "inconclusive", "identity", "refuted"], "as the text says"
