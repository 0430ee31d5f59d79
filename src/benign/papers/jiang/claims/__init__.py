"""The claims of Jiang et al., by chapter."""

from benign.papers.jiang.claims import concentration, identities, late, phase, stages, theorems

CLAIMS = [
    *identities.CLAIMS,
    *concentration.CLAIMS,
    *stages.CLAIMS,
    *late.CLAIMS,
    *theorems.CLAIMS,
    *phase.CLAIMS,
]
