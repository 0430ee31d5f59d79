"""Pictures of results, in one style."""

from benign.plot.phase import Panel, fitted_curve, heat_map, phase_figure, printed_curve
from benign.plot.style import save, style

__all__ = ["Panel", "fitted_curve", "heat_map", "phase_figure", "printed_curve", "save", "style"]
