"""Executors: what computes the units of a sweep.

base defines the interface; local: this machine; processes: how its workers start; cluster: Dask, SLURM.
"""
