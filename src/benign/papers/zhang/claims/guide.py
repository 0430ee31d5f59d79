"""The practical guidelines of Zhang et al. that can be judged."""

from benign.claims import Claims, Evidence, Measured, at_least, contains, mean
from benign.papers.zhang.augment import COPIES, INJECTED, worth
from benign.papers.zhang.bounds import augmented_race

CLAIMS = Claims("zhang")


def _real_share(copies: int) -> float:
    """What K N points are worth if copies share their noise, relative to what is told."""
    told, real = augmented_race(1.0, copies, INJECTED)
    return real / told


@CLAIMS.add(
    "guide.augmentation",
    "practical guideline 2",
    {
        **{f"K={copies}": contains(1.0, (_real_share(copies),)) for copies in COPIES},
        "gain": at_least(1.0),
    },
    "zhang/augment",
    informational=("gain",),
)
def augmentation(evidence: Evidence) -> dict[str, Measured]:
    """Noise-injected copies are new data points: K copies of N points, at the SNR that the noise leaves, are worth as
    much N SNR^2 as K N independent points of that SNR."""
    found = worth(evidence.result)
    shares = found.copied / found.independent
    told = {
        f"K={copies}": mean("N SNR^2 of copies / of as many points", shares.sel(copies=copies))
        for copies in COPIES
    }
    gain = (found.copied.isel(copies=-1) / found.original).values
    return {**told, "gain": mean(f"N SNR^2 with K={COPIES[-1]} copies / without", gain)}
