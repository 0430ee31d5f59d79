"""Figures of results in one style: each function takes an `xarray.Dataset` and returns a matplotlib figure.

    style, axis, sheet      fonts and colours; scales and ticks; the size of a figure, its title, caption and legends
    variables, caption      which values are drawn and how they are labelled; what a caption says of an experiment
    bands                   mean over seeds, its band, and the words of the caption for it
    maps, lines, laws, bars kinds of figures: `phase`, `regimes`; `curves`, `attention`; `exponents`; bars and images

Imports everything above it. The public names are those of `__all__`, `benign.plot.*`.

`width="column"` (3.35 inches) and `width="page"` (6.9 inches) are the widths of papers; the text has the same size in
both. `save` writes vector files. `Panel` and `Curves` describe the panels of a figure of your own.

>>> import tempfile
>>> import benign as bo
>>> sweep = bo.Experiment(
...     data=bo.Mixture(samples=[4, 8], dim=20, signal=[1.0, 4.0]),
...     network=bo.Linear(),
...     training=bo.GradientDescent(rate=0.1, max_steps=50),
...     evaluation=bo.Evaluation(samples=50),
... )
>>> with tempfile.TemporaryDirectory() as folder:
...     result = sweep.run(folder)
...     paths = bo.plot.save(bo.plot.phase(result, width="column"), f"{folder}/accuracy")
>>> [path.name for path in paths]
['accuracy.pdf', 'accuracy.svg', 'accuracy.png']
"""

from typing import TYPE_CHECKING

from benign._lazy import lazily

if TYPE_CHECKING:
    from benign.plot.laws import exponents as exponents
    from benign.plot.lines import Curves as Curves
    from benign.plot.lines import attention as attention
    from benign.plot.lines import curves as curves
    from benign.plot.lines import curves_figure as curves_figure
    from benign.plot.maps import Panel as Panel
    from benign.plot.maps import phase as phase
    from benign.plot.maps import phase_figure as phase_figure
    from benign.plot.maps import regimes as regimes
    from benign.plot.style import save as save

_HOME = {
    "Curves": "plot.lines",
    "Panel": "plot.maps",
    "attention": "plot.lines",
    "curves": "plot.lines",
    "curves_figure": "plot.lines",
    "exponents": "plot.laws",
    "phase": "plot.maps",
    "phase_figure": "plot.maps",
    "regimes": "plot.maps",
    "save": "plot.style",
}

# pyright: reportUnsupportedDunderAll=false
__all__ = sorted(_HOME)
__getattr__, __dir__ = lazily(__name__, _HOME)
