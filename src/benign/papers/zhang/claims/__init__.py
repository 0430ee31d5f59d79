"""The claims of Zhang et al., by what they need: nothing but draws, or runs."""

from benign.papers.zhang.claims import bounds, identities, starts

CLAIMS = [*identities.CLAIMS, *starts.CLAIMS, *bounds.CLAIMS]
