"""The papers: their settings, theory, figures as recipes, and claims.

    compare/ jiang/ li/ wang/ zhang/    one paper each: `figures` has its `RECIPES`, `claims` its `CLAIMS`
    registry    which papers there are: these, installed packages, files of a user's own
    recipes     a figure of a paper as an experiment at three scales, with its drawing and its summary
    requests    from a recipe, a file or a folder with options to experiments in folders
    published   stored numbers of figures at large scale, in published_figures/
    verify      claims judged on runs
    inside      the smallest experiment inside a theorem
    advice      what the theorems say about given numbers
    numbers     experiments for given numbers

The rest of the package stands above, but for `parts`, `report` and `cli`, and does not know the papers. A paper imports
from its own folder; tests/layout.py lists the exceptions.
Public names: `Recipe`, `recipe`, `published`, `inside_theorem`, `advise`, `judge`.
"""
