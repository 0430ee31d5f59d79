"""The claims of Zhang et al., by what they need: nothing but draws, or runs."""

from benign.papers.zhang.claims import bounds, cases, dynamics, figures, texts

CLAIMS = [*bounds.CLAIMS, *dynamics.CLAIMS, *cases.CLAIMS, *figures.CLAIMS, *texts.CLAIMS]
