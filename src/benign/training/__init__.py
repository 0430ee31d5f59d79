"""Training: all runs of one shape as one batch.

    setup      Setup: everything that decides one run
    optimisers    gradient descent, SGD, AdamW
    descent    Batch, Step: the steps of training
    engine     trains and measures a list of runs in as few batches as memory allows
    checkpoint    interrupted batches, saved weights
    machine    cores, memory and devices
    metrics/   everything that is measured
    fast/      what makes training quick and never changes what it means

Imports everything above: spec, data, networks, attacks, reduction.
Public: `bo.GradientDescent`, `bo.Evaluation` and others.
"""
