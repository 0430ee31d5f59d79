"""Sweeps: from an experiment to runs, units of work, records in a folder, and a dataset.

    plan, growth, estimate    which runs there are, what an extension adds, what it costs
    runner, compute, executors/    how units are computed: in this process, in several, on a cluster
    lease, store, records, codec, validation    files: who computes what, what was computed, what can be trusted
    results, dataset, export, folders, pack, weights    what comes back
    status, status_text, progress, terminal, notes    how far a sweep is
    replay, audits    one run again; whether attacks and step sizes can be trusted
    track/     TensorBoard and MLflow

Imports experiment and everything above it.
Public: `bo.open_result`, `bo.pack`, `bo.merge`, `bo.to_dataframe` and others.
"""
