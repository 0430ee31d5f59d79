"""Sweeps: from an experiment to runs, units of work, records in a folder, and a dataset.

    plan, estimate, runner    the runs, their cost, those that are left; `Runner` is the one way to run
    dispatch, compute, executors/    how units are computed: in this process, in several, on a cluster
    lease, store, records, validation    files: who computes what, what was computed, what can be trusted
    results, dataset, folders, export, pack    the result, as a dataset, a folder, a file
    figure_file    the numbers of one figure, in at most 300 kB
    ends       masked runs; what attacks and certificates show of robust variables
    status, status_text, progress, terminal, text    how far a sweep is, as numbers and as text
    replay, audits, own_code    one run again; whether attacks, step sizes and code can be trusted
    track/     TensorBoard and MLflow

Imports experiment and everything above it.
Public: `bo.open_result`, `bo.pack`, `bo.merge`, `bo.to_dataframe` and others.
"""
