"""A folder of results as a page shows it: what it holds, how its runs ended, and the command that makes it again."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import xarray as xr

from benign.claims.study import Reading
from benign.experiment import Experiment
from benign.papers.recipes import Recipe
from benign.papers.registry import papers, recipes
from benign.papers.requests import RunOptions, plans
from benign.plot.caption import describe
from benign.report.atlas import Atlas
from benign.report.cells import ENDED
from benign.sweep.audits import flagged, with_rate_audit
from benign.sweep.dataset import counts_of
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.results import RETRIED
from benign.sweep.status import stores_in
from benign.sweep.store import Store
from benign.sweep.text import shown
from benign.training.descent import Status


@dataclass(frozen=True, eq=False)
class ResultFolder:
    """The results of one experiment, opened to be looked at."""

    path: Path
    experiment: Experiment
    result: xr.Dataset
    made: dict[str, Any]
    """what was asked for to make it"""
    warnings: tuple[str, ...]
    """what opening it complained of"""

    @classmethod
    def open(cls, path: Path) -> ResultFolder:
        """Open a folder; ValueError in one line where it is none of results."""
        made = Store.open(path, writing=False).about.made
        experiment = open_experiment(path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = with_rate_audit(open_result(path), path)
        told = tuple(dict.fromkeys(str(each.message) for each in caught))
        return cls(path, experiment, result, made, told)

    @cached_property
    def recipe(self) -> Recipe | None:
        return recipes().get(str(self.made.get("target")))

    @cached_property
    def atlas(self) -> Atlas:
        return Atlas(self.result, self.recipe, self.made.get("changes") or ())

    @property
    def reading(self) -> Reading:
        """The answers it was made with; a folder keeps them in another order than the recipe asks."""
        known = self.made.get("reading") or {}
        asked = self.recipe.questions if self.recipe else ()
        return {each.name: known.get(each.name, each.default) for each in asked}

    @property
    def paper(self) -> str:
        """The paper in a line."""
        if self.recipe is None:
            return ""
        return papers()[self.recipe.name.partition("/")[0]].title

    @property
    def scale(self) -> str:
        return str(self.made.get("scale") or "")

    @property
    def label(self) -> str:
        """What sets it apart from other folders of one recipe."""
        if self.recipe is None:
            return self.path.resolve().name
        told = self.recipe.label(self.reading)
        changed = ", ".join(self.made.get("changes") or ())
        return f"reading {told}" + (f", changed: {changed}" if changed else "")

    @property
    def title(self) -> str:
        return self.recipe.title if self.recipe else f"The experiment {self.path.resolve().name}"

    @property
    def setting(self) -> str:
        """Sizes, seeds and attacks in a sentence."""
        return describe(self.experiment)

    @property
    def yaml(self) -> str:
        return self.experiment.to_yaml()

    @property
    def file_name(self) -> str:
        """A name for the specification as a file."""
        target = Path(str(self.made.get("target") or self.path.resolve().name))
        return f"{target.stem}.yaml"

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many runs ended in each way."""
        counts = counts_of(self.result["status"])
        return {ENDED[each]: number for each, number in counts.items() if number}

    @cached_property
    def notices(self) -> list[str]:
        """What one must know before believing a picture."""
        counts, runs = counts_of(self.result["status"]), self.result["status"].size
        told = []
        if missing := counts[Status.MISSING]:
            told.append(
                f"Not finished: {missing} of {runs} runs have not been computed yet; their cells are empty. "
                f"`benign resume {shown(self.path)}` computes them."
            )
        if failed := sum(counts[each] for each in RETRIED):
            error = self.result.attrs.get("first_error", "")
            told.append(f"{failed} of {runs} runs failed and have no value: {error}".rstrip(": "))
        if diverged := counts[Status.DIVERGED]:
            told.append(f"{diverged} of {runs} runs diverged: their training grew without bound.")
        if capped := counts[Status.STEP_CAP]:
            told.append(
                f"{capped} of {runs} runs stopped at the step cap before they reached their loss: "
                "they may not have converged."
            )
        if doubts := flagged(self.result):
            told.append(
                f"Robust accuracy is doubtful where attacks may have been misled: {doubts}. "
                f"`benign audit {shown(self.path)}` tells more."
            )
        if self.atlas.note:
            told.append(self.atlas.note)
        return told + [each for each in self.warnings if "runs failed" not in each]

    @cached_property
    def command(self) -> str:
        """The command that makes it again; of an experiment that is no recipe, from its specification as a file."""
        if self.recipe is None:
            return shlex.join(["benign", "run", self.file_name])
        words = [*_with(self.recipe), "run", self.recipe.name, "--scale", self.scale or "quick"]
        default = self.recipe.reading()
        answers = [f"{q}={a}" for q, a in self.reading.items() if a != default[q]]
        changes = list(self.made.get("changes") or ())
        for option, values in (("--reading", answers), ("--set", changes)):
            words += [word for value in values for word in (option, value)]
        seeds = self.experiment.seeds
        for more, asked in (([], None), (["--seeds", str(seeds)], seeds)):
            choices = RunOptions(self.scale or None, answers, None, changes, asked)
            if self._is(choices):
                return shlex.join(["benign", *words, *more])
        return shlex.join(["benign", "run", self.file_name])

    @property
    def from_file(self) -> bool:
        """Whether the command starts from the specification as a file."""
        return self.command.endswith(self.file_name)

    def _is(self, choices: RunOptions) -> bool:
        """Whether these options give this very experiment: recipes change with time, and folders grow."""
        try:
            (plan,) = plans(str(self.made["target"]), choices)
        except ValueError:
            return False
        return plan.experiment.as_dict() == self.experiment.as_dict()

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Where the numbers come from."""
        attrs = self.result.attrs
        return [
            ("folder", shown(self.path)),
            ("runs", ", ".join(f"{number} {word}" for word, number in self.counts.items())),
            ("computed on", str(attrs.get("devices") or "nothing yet")),
            ("made by", f"benign {self.made.get('benign', 'unknown')}"),
            ("numerics", str(attrs["numerics"])),
            (
                "step size",
                str(
                    attrs.get(
                        "rate_audit",
                        "no smaller one was tried (`benign audit` of the recipe does it)",
                    )
                ),
            ),
        ]


def _with(recipe: Recipe) -> list[str]:
    """What loads a recipe from outside the package."""
    paper = papers().get(recipe.name.partition("/")[0])
    return ["--plugin", shown(paper.plugin)] if paper and isinstance(paper.plugin, Path) else []


def _check(path: Path) -> None:
    """Refuse what is no folder of results, with what was probably meant."""
    if path.is_file():
        raise ValueError(f"{path} is a file: name a folder of results, which `benign run` makes")
    if not path.exists() and (meant := Path("runs") / path).is_dir():
        raise ValueError(f"{path} does not exist: did you mean {meant}?")
    inside = next((each for each in path.parents if (each / "experiment.json").is_file()), None)
    if inside is not None and not (path / "experiment.json").is_file():
        raise ValueError(f"{path} lies inside the results {inside}: name that folder")


def folders(paths: Iterable[Path]) -> list[ResultFolder]:
    """The folders of results among these and below them, each once."""
    found = {place.resolve(): place for path in paths for place in _stores(path)}
    return [ResultFolder.open(place) for place in found.values()]


def _stores(path: Path) -> Iterator[Path]:
    """The stores in a folder; what lies inside one, as an audit does, belongs to it."""
    _check(path)
    known: list[Path] = []
    for place in stores_in(path):
        if not any(place.is_relative_to(each) for each in known):
            known.append(place)
            yield place
