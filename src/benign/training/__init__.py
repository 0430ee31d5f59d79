"""Training: all runs of one shape as one batch.

    setup           Setup: everything that decides one run
    feature_tests   the specification of tests of learned features on images
    optimisers      gradient descent, SGD, AdamW
    descent         Batch, Step: the steps of training
    engine          trains and measures a list of runs in as few batches as memory allows
    jobs            which runs may share slots, and the runs that are tested together
    slots           the same in batches that stay full: a run that ends is replaced by one that waits
    references      reference networks for the metrics of runs
    checkpoint      interrupted batches, saved weights
    machine         cores, memory and devices
    metrics/        the registry of metrics
    fast/           shortcuts that give the same runs

Imports spec, streams, losses, data, networks, attacks and reduction.
Public: `bo.GradientDescent`, `bo.Evaluation` and others.
"""
