"""Checks of components: a user's own before any work, the package's in tests.

    components    data models, networks and attacks on a few points
    metrics       a user's own metrics on a few points

Imports training and what training imports, and the shapes of runs from sweep. Nothing here is public.
"""
