"""A claim: what a paper says in our words, the runs it needs, the statistic and the rule that judge it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import xarray as xr

from benign.claims.conditions import Conditions
from benign.claims.measure import Measured, Undecided
from benign.claims.replays import Replays, by_cell, by_unit
from benign.claims.rule import Rule
from benign.claims.study import Question, Reading, Study, at
from benign.experiment import Experiment
from benign.training.setup import Setup

Statistic = Callable[["Evidence"], Measured | Mapping[str, Measured]]


@dataclass(frozen=True)
class Evidence:
    """What a statistic sees: the results of the studies a claim needs, in their order, and the scale."""

    scale: str = "quick"
    """smoke, quick or paper"""
    reading: Reading = field(default_factory=dict)
    """the answers the runs were made with"""
    results: tuple[xr.Dataset, ...] = ()
    """of each study"""
    experiments: tuple[Experiment, ...] = ()
    """of each study"""
    changes: tuple[str, ...] = ()
    """how the runs differ from those of the scale, where they were made otherwise"""

    @property
    def result(self) -> xr.Dataset:
        """Of the only study."""
        (only,) = self.results
        return only

    @property
    def experiment(self) -> Experiment:
        """Of the only study."""
        (only,) = self.experiments
        return only

    def replays(self, study: int = 0) -> tuple[Replays, ...]:
        """The runs of a study, to be trained again in the units of its experiment.

        Without those that are missing, failed or diverged; undecided where these are more than a fifth.
        """
        return by_unit(self.experiments[study], self.results[study])

    def replays_by_cell(self, study: int = 0) -> tuple[Replays, ...]:
        """The same, the runs of each cell together, in the order of the grid."""
        return by_cell(self.experiments[study], self.results[study])

    def replay(self, study: int = 0, **where: Any) -> Replays:
        """The same for the one cell at these coordinates."""
        found = by_cell(self.experiments[study], self.results[study], where)
        if len(found) != 1:
            raise Undecided(f"the result has {len(found)} cells where one is asked for")
        return found[0]

    def size(self, smoke: Any, quick: Any, paper: Any) -> Any:
        """The number that belongs to the scale."""
        return at(self.scale, smoke, quick, paper)

    @staticmethod
    def generator(number: int = 0) -> torch.Generator:
        """Draws of a statistic's own, the same at every call."""
        return torch.Generator().manual_seed(number)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper, and how runs decide about it."""

    id: str
    """`paper/statement.aspect`"""
    statement: str
    """in our own words"""
    source: str
    """where the paper says it; `derived` where it is ours"""
    statistic: Statistic
    """a number with its interval, or several by name; raises `Undecided` where runs say nothing"""
    rule: Rule | Mapping[str, Rule]
    """for every number of the statistic, or by its name"""
    studies: tuple[Study | str, ...] = ()
    """studies, or recipes by name; none where the statistic computes what it needs itself"""
    conditions: Callable[[Setup], Conditions | None] | None = None
    """of the theorem, at one cell; None at cells it says nothing about. None: the claim is unconditional"""
    informational: tuple[str, ...] = ()
    """numbers that are judged and told, but do not decide about the claim"""
    robust: bool = False
    """whether it rests on attacks, so that doubts about them are doubts about it"""

    @property
    def questions(self) -> tuple[Question, ...]:
        """What its studies leave open."""
        found = {
            q.name: q for need in self.studies if isinstance(need, Study) for q in need.questions
        }
        return tuple(found.values())

    @property
    def of_a_figure(self) -> bool:
        """Whether it is about what a figure or a table shows, which has a size of its own."""
        return any(word in self.source for word in ("Figure", "figure", "Table"))

    def rule_for(self, part: str) -> Rule:
        return self.rule[part] if isinstance(self.rule, Mapping) else self.rule


class Claims:
    """The claims of one paper, or of one chapter of it; a function added to them is a statistic.

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
        """Make a function the statistic of a claim; its docstring is the statement, `more` are fields of `Claim`."""

        def added(statistic: Statistic) -> Statistic:
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

        return added
