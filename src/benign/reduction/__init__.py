"""Exact small coordinates: the same experiment in a space whose dimension does not grow with d.

    space      which coordinates a run uses, and why
    start      training points and initial weights in those coordinates
    test_points    test points in those coordinates

Imports spec, streams, data, networks, attacks.
Public: the field `coordinates` of an experiment (docs/coordinates.md).
"""
