"""Checks of components: a user's own before any work, the package's in tests.

    components    data models, networks and attacks on a few points
    metrics    metrics of a user's own on a few steps

Imports training and what it imports.
"""
