"""Attacks, which perturb points inside a ball, and certificates, which bound every attack.

    attack          Attack, Target, BestSoFar: the interface of every attack
    balls, projections    Ball and Balls, the sets that points stay in, and projections on them
    losses          the functions that attacks ascend
    space, gram     projected ascent, written once, in R^d or in coordinates of the weights' columns
    pgd, apgd, multi_norm, one_step, model_free, feature_matching    attacks, one file each
    ensemble        EnsembleAttack, the evaluation attack
    certificates    lower bounds of margins in a ball

Imports spec, streams, losses, data, networks. Public: `bo.PGD`, `bo.APGD`, `bo.Ball`, `bo.EnsembleAttack` and others.
"""
