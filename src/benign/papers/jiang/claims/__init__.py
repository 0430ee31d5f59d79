"""The claims of Jiang et al., chapter by chapter."""

from benign.papers.jiang.claims import identities, phase, stages, theorems

CLAIMS = [*identities.CLAIMS, *stages.CLAIMS, *theorems.CLAIMS, *phase.CLAIMS]
