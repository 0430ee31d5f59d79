"""Statistics of results: intervals, boundaries of phase transitions, power laws, monotone maps, regimes.

    intervals  Student's t for means, Wilson and Clopper-Pearson for shares; how numbers are written
    crossing   where a curve first crosses a level
    runs       where each run of a map crosses, by the shape of its transition
    censored   lines through crossings with effects of seeds, where some lie beyond the grid
    fit_test   whether a boundary is one curve and a power law, at 1 %
    law        power laws, with Fieller's interval
    boundary   where a map crosses a level, and the law of that curve
    audited    the same of a result, with a law only where masked runs cannot move it
    monotone   the largest fall of a map that should rise; Kendall's tau
    regimes    benign, harmful, not fitted

Functions take arrays, or datasets as sweep/ makes them. They import sweep and the entries above it, never plot,
claims or papers. The names below are public, and so are those of `regimes`.
"""

from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary, boundary, boundary_shift
from benign.stats.intervals import Estimate, clopper_pearson, mean_interval, wilson
from benign.stats.law import ExponentTest, Law, PowerLaw
from benign.stats.monotone import Fall, Monotone, largest_fall, monotone

__all__ = [
    "Boundary",
    "Estimate",
    "ExponentTest",
    "Fall",
    "Law",
    "Monotone",
    "PowerLaw",
    "audited_boundary",
    "boundary",
    "boundary_shift",
    "clopper_pearson",
    "largest_fall",
    "mean_interval",
    "monotone",
    "wilson",
]
