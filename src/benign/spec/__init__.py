"""What a specification is: fields that may be axes, components that register themselves, YAML, plugins.

    base       Spec, Component, SpecError: validated once, immutable, the same in Python and YAML
    axes       PerRun, Shape, OneOf: fields that may be lists; the grid; stacking the numbers of runs into tensors
    yaml       YAML read with line numbers; `--set a.b=value`
    schema     the JSON schema of experiments, for editors
    plugins    papers and components loaded from a user's own files (`--plugin`)

Imports nothing else of the package. Public: `bo.SpecError`, `bo.logspace`, `bo.linspace`, `bo.zipped`, `bo.load`;
for components of your own `benign.parts`.
"""
