"""Draws the pictures of docs/figures.md again, with the calls of that page on a larger experiment.

python scripts/docs_figures.py          # a minute of training
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

import benign as bo

DOCS = Path(__file__).parents[1] / "docs"
COLOURS = 200
DRAWN = re.compile(r"^(\w+) = (bo\.plot\..*?)\nbo\.plot\.save\(\1, ", re.MULTILINE | re.DOTALL)
"""a figure on the page: its name, and what draws it"""

SWEEP = bo.Experiment(
    data=bo.SignalNoise(
        tokens=8,
        dim=256,
        noise_std=0.4,
        strong_noise_std=2.0,
        samples=[4, 8, 16, 32, 64],
        snr=bo.logspace(0.2, 10, 10),
        balanced=True,
    ),
    network=bo.Attention(hidden=16, init=bo.TorchDefault(divide_by=16)),
    training=bo.GradientDescent(rate=0.03, stop_loss=0.05, max_steps=160),
    evaluation=bo.Evaluation(samples=200),
    seeds=5,
)


def main() -> None:
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        known: dict[str, Any] = {"bo": bo, "result": SWEEP.run(Path(folder) / "run")}
        for name, call in DRAWN.findall(page):
            [png] = bo.plot.save(eval(call, known), Path(folder) / f"{name}.png")
            few = Image.open(png).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
            few.save(DOCS / "figures" / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
