"""The claims of Jiang et al., by chapter."""

from benign.papers.jiang.claims import concentration, identities, stages

CLAIMS = [*identities.CLAIMS, *concentration.CLAIMS, *stages.CLAIMS]
