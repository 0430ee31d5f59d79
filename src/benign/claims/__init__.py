"""Claims as code: what a paper says, the runs it is judged on, a statistic, a rule, and the verdict."""

from benign.claims.claim import Claim, Claims, Evidence
from benign.claims.measure import (
    Measured,
    Undecided,
    exact,
    mean,
    share,
    slope,
    slope_by_seed,
    worst,
)
from benign.claims.rule import Rule, at_least, at_most, between, contains
from benign.claims.study import SCALES, Question, Reading, Study
from benign.claims.verdict import Outcome, Verdict, judge

__all__ = [
    "SCALES",
    "Claim",
    "Claims",
    "Evidence",
    "Measured",
    "Outcome",
    "Question",
    "Reading",
    "Rule",
    "Study",
    "Undecided",
    "Verdict",
    "at_least",
    "at_most",
    "between",
    "contains",
    "exact",
    "judge",
    "mean",
    "share",
    "slope",
    "slope_by_seed",
    "worst",
]
