"""Exact small coordinates: the same experiment in a space whose dimension does not grow with d.

    modes           one class a mode of `coordinates`: why it would not be exact, start, reduced setup, cost
    protocols       protocols of networks that can be reduced
    sampled         Gaussian vectors in a basis of their own span
    test_points     test points in the coordinates of a run
    random_starts   random starts of attacks, in the coordinates of the span

Imports spec, streams, bartlett, data, networks, attacks.
Public: the field `coordinates` of an experiment (docs/coordinates.md).
"""
