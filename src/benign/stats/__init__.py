"""Statistics of results: intervals, boundaries of phase transitions, power laws, monotone maps, regimes.

    intervals  Student's t for means, Wilson and Clopper-Pearson for shares; how numbers are written
    crossing   where a curve first crosses a level
    law        power laws fitted to a boundary, with Fieller's interval
    boundary   where a map crosses a level, and the law of that curve
    audited    the same of a result, with a law only where masked runs cannot move it
    monotone   Kendall's tau over the lines of a map
    regimes    benign, harmful, not fitted

Functions take arrays, or datasets as sweep/ makes them. They import sweep and the entries above it, never plot,
claims or papers. The names below are public, and so are those of `regimes`.
"""

from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary, boundary
from benign.stats.intervals import Estimate, clopper_pearson, mean_interval, wilson
from benign.stats.law import ExponentTest, Law, PowerLaw
from benign.stats.monotone import Monotone, monotone

__all__ = [
    "Boundary",
    "Estimate",
    "ExponentTest",
    "Law",
    "Monotone",
    "PowerLaw",
    "audited_boundary",
    "boundary",
    "clopper_pearson",
    "mean_interval",
    "monotone",
    "wilson",
]
