"""What a type checker sees of specifications: fields read as one value, written as one value or as an axis."""

import json
import subprocess
import sys
from pathlib import Path

from tests.test_readme import block

ROOT = Path(__file__).parents[1]

WRONG = """
import benign as bo
from benign.training.setup import Setup

network = bo.Attention(hidden=[16, 32], init=bo.TorchDefault(divide_by=[1.0, 16.0]))
print(network.hidden + 1, network.heads)


def f(setup: Setup, sweep: bo.Experiment) -> None:
    print(setup.data.samples, sweep.training.rate)
    print(setup.data.sampels)  # wrong
    print(sweep.network.kindd)  # wrong
    print(network.hiden)  # wrong


bo.Attention(hiden=16)  # wrong
bo.GradientDescent(rate="fast")  # wrong
"""


def test_misspelt_fields_are_errors_and_the_example_of_the_readme_is_none(tmp_path: Path):
    """One call for both: pyright takes ten seconds to start."""
    (tmp_path / "readme.py").write_text(block("python"))
    (tmp_path / "wrong.py").write_text(WRONG)
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "-p", str(tmp_path)], capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {
        (Path(each["file"]).name, each["range"]["start"]["line"])
        for each in found
        if each["severity"] == "error"
    }
    wanted = [n for n, line in enumerate(WRONG.splitlines()) if line.endswith("# wrong")]
    assert lines == {("wrong.py", line) for line in wanted}, found
