"""A claim: a statement of a paper, the runs it needs, and the statistic and rule that judge it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import xarray as xr

from benign.claims.conditions import Conditions
from benign.claims.measure import Measured, Undecided
from benign.claims.replays import Replays, by_cell, by_unit
from benign.claims.rule import Rule
from benign.claims.study import Reading, Scaled, Study
from benign.experiment import Experiment
from benign.training.setup import Setup

Statistic = Callable[["Evidence"], Measured | Mapping[str, Measured]]


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
        return by_unit(self.experiments[study], self.results[study])

    def replays_by_cell(self, study: int = 0) -> tuple[Replays, ...]:
        """Return the same runs, grouped by cell, in the order of the grid."""
        return by_cell(self.experiments[study], self.results[study])

    def replay(self, study: int = 0, **where: Any) -> Replays:
        """Return the runs of the one cell at these coordinates."""
        cells = by_cell(self.experiments[study], self.results[study], where)
        if len(cells) != 1:
            raise Undecided(f"{len(cells)} cells of the result have these coordinates, not one")
        return cells[0]

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
    rule: Rule | Mapping[str, Rule]
    """one for all numbers of the statistic, or one for each by name"""
    studies: tuple[Study | str, ...] = ()
    """studies, or names of recipes; empty if the statistic needs no runs"""
    conditions: Callable[[Setup], Conditions | None] | None = None
    """the theorem's conditions at a cell; the function returns None for a cell that the theorem does not cover.
    None if the claim is unconditional"""
    informational: tuple[str, ...] = ()
    """names of numbers that are judged and shown but do not decide"""
    robust: bool = False
    """whether it rests on attacks: a doubt about the attacks is then a doubt about the claim"""

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
