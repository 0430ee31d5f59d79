"""Attacks: what perturbs points inside a ball, and certificates of what no attack can do.

    attack     Attack, Target: the interface of every attack
    balls, several, projections    the sets that points stay in
    pgd, apgd, multi_norm, one_step, model_free, feature_matching    an attack a file
    strong     EnsembleAttack, which evaluates what others trained
    ground, products    where iterates live: in R^d, or as combinations of the weights' columns
    certificates    lower bounds of margins in a ball

Imports spec, streams, losses, data, networks. Public: `bo.PGD`, `bo.APGD`, `bo.Ball`, `bo.EnsembleAttack` and others.
"""
