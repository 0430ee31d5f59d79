"""Pictures of results, in one style: every function takes an `xarray.Dataset` and gives a matplotlib figure.

`width="column"` (3.35 inches) and `width="page"` (6.9 inches) are the sizes of papers; letters are of the same size in
both. `save` writes vector files. `Panel` and `Curves` are for figures of several panels of one's own.

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
