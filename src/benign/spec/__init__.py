"""Specifications: pure data that is validated once, the same in Python and in YAML.

    base       Spec: a frozen class of fields with rules; SpecError lists every problem with field, value and remedy
    axes       PerRun, Shape, OneOf: fields that may be axes of a grid; the grid's cells, stacked for a batch of runs
    registry   Component: a Spec that a file names by its `kind`; @guarantees: what a class promises to exact shortcuts
    yaml       specifications as files, read safely
    schema     the JSON schema, for editors
    plugins    loading a user's own files

A component is a class with fields and methods, and is registered by being defined:

    class Ring(DataModel):                   # a choice of the family DataModel, `kind: ring` in a file
        radius: PerRun[Positive]             # one number, or a list: an axis of the grid
        corners: Shape[Count] = default(3)   # an axis whose values decide tensor sizes

Compute code reads `self.radius` and gets a number, or in a batch of runs a tensor [runs]; it never sees an axis.
Imports nothing of the package, except schema, which needs the whole experiment. Public: `bo.SpecError`, `bo.logspace`,
`bo.linspace`, `bo.zipped`, `bo.load`; for components of your own `benign.parts`.
"""
