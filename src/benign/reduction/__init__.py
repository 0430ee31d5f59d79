"""Exact coordinates: the same experiment in a space whose dimension does not grow with d."""
