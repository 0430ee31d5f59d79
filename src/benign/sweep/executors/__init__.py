"""Executors: what computes the units of a sweep.

base defines the interface; local: this machine; cluster: Dask, SLURM.
"""
