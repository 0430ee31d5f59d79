"""Data models: where training and test points come from.

    model      DataModel, Sample: the interface of every data model
    signal_noise, noisy_copies, mixture, feature_patches    the papers' data models
    images, constructions    pictures as tokens, scaled and covered with noise
    sources, folder, npz, formats    where image sets are and how they are read

Imports spec, streams, losses. Public: `bo.SignalNoise`, `bo.Mixture`, `bo.FeaturePatches`, `bo.Images` and others.
"""
