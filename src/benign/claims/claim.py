"""A claim: a statement of a paper, the runs it needs, and the statistic and rule that judge it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
import xarray as xr

from benign.claims.conditions import Conditions
from benign.claims.measure import Measured, Undecided
from benign.claims.replays import Replays, by_cell, by_unit
from benign.claims.rule import Rule
from benign.claims.study import Reading, Scaled, Study
from benign.experiment import Experiment
from benign.sweep.ends import End
from benign.training.setup import Setup

Statistic = Callable[["Evidence"], Measured | Mapping[str, Measured]]


class Kind(Enum):
    """What it means that a claim holds."""

    MEASURED = "measured"
    """runs decide: they could have contradicted it"""
    CALIBRATED = "calibrated"
    """an answer to an open question was chosen by this number: agreement is no evidence"""
    BY_CONSTRUCTION = "by construction"
    """it follows from how the runs are made, stopped or evaluated: it fails only if the code is wrong"""
    IDENTITY = "identity"
    """algebra, or a bound that is proven for all points: it fails only if the code, or the algebra, is wrong"""


class Direction(Enum):
    """How a number moves when points turn out to be more robust: which end attacks bound, and which certificates."""

    RISES = "rises"
    """a robust accuracy: attacks bound it from above, certificates from below"""
    FALLS = "falls"
    """a robust error or loss: attacks bound it from below, certificates from above"""
    MIXED = "mixed"
    """a slope, a difference, a boundary: attacks bound it on neither side"""


@dataclass(frozen=True)
class Evidence:
    """What a statistic is computed from: the results of the claim's studies, in their order, and the scale."""

    scale: str = "quick"
    """smoke, quick or paper"""
    reading: Reading = field(default_factory=dict)
    """the answers to open questions with which the runs were made"""
    results: tuple[xr.Dataset, ...] = ()
    """one for each study"""
    experiments: tuple[Experiment, ...] = ()
    """one for each study"""
    changes: tuple[str, ...] = ()
    """changes that a user made to the experiments of the scale, one line each"""
    levels: Mapping[str, float] = field(default_factory=dict)
    """numbers that the claim fixes in advance, such as the level of a boundary"""
    end: End = "attacked"
    """which end of robust numbers the results contain"""

    @property
    def result(self) -> xr.Dataset:
        """The result of the only study."""
        (only,) = self.results
        return only

    @property
    def experiment(self) -> Experiment:
        """The experiment of the only study."""
        (only,) = self.experiments
        return only

    def replays(self, study: int = 0) -> tuple[Replays, ...]:
        """Return the runs of a study, to be trained again in the units of its experiment.

        Missing, failed and diverged runs are left out. Raise Undecided if they are more than a fifth.
        """
        return by_unit(self.experiments[study], self._attacked(study))

    def replays_by_cell(self, study: int = 0) -> tuple[Replays, ...]:
        """Return the same runs, grouped by cell, in the order of the grid."""
        return by_cell(self.experiments[study], self._attacked(study))

    def replay(self, study: int = 0, **where: Any) -> Replays:
        """Return the runs of the one cell at these coordinates."""
        cells = by_cell(self.experiments[study], self._attacked(study), where)
        if len(cells) != 1:
            raise Undecided(f"{len(cells)} cells of the result have these coordinates, not one")
        return cells[0]

    def _attacked(self, study: int) -> xr.Dataset:
        """Return the result of a study as it was computed. Raise Undecided at another end, which cannot be replayed."""
        if self.end != "attacked":
            raise Undecided("runs that are trained again have no certified end")
        return self.results[study]

    def size(self, smoke: Any, quick: Any, paper: Any) -> Any:
        """Return the value for the scale."""
        return Scaled(smoke, quick, paper)[self.scale]

    @staticmethod
    def generator(number: int = 0) -> torch.Generator:
        """Return a generator for the draws of a statistic; the same at every call."""
        return torch.Generator().manual_seed(number)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper, and how runs decide about it."""

    id: str
    """`paper/statement.aspect`"""
    statement: str
    """in our words"""
    source: str
    """where the paper states it; contains `derived` if we derived it"""
    statistic: Statistic
    """gives a number with its interval, or several by name; raises `Undecided` if the runs cannot decide"""
    rule: Rule | Mapping[str, Rule] = field(hash=False)
    """one for all numbers of the statistic, or one for each by name"""
    studies: tuple[Study | str, ...] = ()
    """studies, or names of recipes; empty if the statistic needs no runs"""
    conditions: Callable[[Setup], Conditions | None] | None = None
    """the theorem's conditions at a cell; the function returns None for a cell that the theorem does not cover.
    None if the claim is unconditional"""
    informational: tuple[str, ...] = ()
    """names of numbers that are judged and shown but do not decide"""
    robust: Direction | Mapping[str, Direction] | None = field(default=None, hash=False)
    """how its numbers move with robust accuracy: one for all, or by name for those that rest on attacks"""
    kind: Kind = Kind.MEASURED
    levels: Mapping[str, float] = field(default_factory=dict, hash=False)
    """numbers that the statistic uses, by name: it reads them as `evidence.levels`, so that a change is noticed"""
    version: int = 1
    """of the statistic: to be raised by hand if it comes to mean something else"""
    misprint: str = ""
    """what is wrong in the printed statement, if that is evident and the corrected one is judged; the printed one is
    then a part that does not decide"""

    @property
    def derived(self) -> bool:
        """Whether it is a statement of ours, which the paper does not print."""
        return "derived" in self.source

    def direction(self, part: str) -> Direction | None:
        """Return how a number moves with robust accuracy; None if it does not rest on attacks."""
        return self.robust.get(part) if isinstance(self.robust, Mapping) else self.robust

    @property
    def of_a_figure(self) -> bool:
        """Whether it is about a figure or a table, whose runs have a size given in the paper."""
        return any(word in self.source for word in ("Figure", "figure", "Table"))

    def rule_for(self, part: str) -> Rule:
        return self.rule[part] if isinstance(self.rule, Mapping) else self.rule


class Claims:
    """The claims of a paper, or of one chapter of it. Each is a function, added with a decorator.

    >>> from benign.claims import Claims, at_most, exact
    >>> CLAIMS = Claims("me")
    >>> @CLAIMS.add("lem1.square", "Lemma 1", at_most(1e-12))
    ... def square(evidence):
    ...     \"\"\"(a + b)^2 = a^2 + 2 a b + b^2.\"\"\"
    ...     return exact("error at a = 2, b = 3", (2 + 3) ** 2 - (4 + 12 + 9))
    >>> [claim.id for claim in CLAIMS]
    ['me/lem1.square']
    """

    def __init__(self, paper: str) -> None:
        self.paper = paper
        self._claims: list[Claim] = []

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims)

    def add(
        self,
        name: str,
        source: str,
        rule: Rule | Mapping[str, Rule],
        *studies: Study | str,
        **more: Any,
    ) -> Callable[[Statistic], Statistic]:
        """Return a decorator that makes a function the statistic of a claim.

        The docstring of the function is the statement; `more` are further fields of `Claim`.
        """

        def add_claim(statistic: Statistic) -> Statistic:
            statement = " ".join((statistic.__doc__ or "").split())
            if not statement:
                raise ValueError(f"{self.paper}/{name} needs a docstring: it is the statement")
            self._claims.append(
                Claim(
                    id=f"{self.paper}/{name}",
                    statement=statement,
                    source=source,
                    statistic=statistic,
                    rule=rule,
                    studies=studies,
                    **more,
                )
            )
            return statistic

        return add_claim
