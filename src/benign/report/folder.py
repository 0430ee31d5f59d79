"""A folder of results on a page: its result, how its runs ended, warnings, and the command that makes it again."""

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
from benign.papers.requests import RequestOptions, requests_of
from benign.plot.caption import describe
from benign.report.atlas import Atlas
from benign.report.cells import STATUS_TEXT
from benign.sweep.audits import with_rate_audit
from benign.sweep.dataset import counts_of
from benign.sweep.ends import doubts
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.results import RETRIED
from benign.sweep.status import stores_in
from benign.sweep.store import Store
from benign.sweep.text import shown
from benign.training.descent import Status

NO_RATE_AUDIT = "no smaller step size was tried (`benign audit` of the recipe tries one)"


@dataclass(frozen=True, eq=False)
class ResultFolder:
    """The results of one experiment, opened to be shown."""

    path: Path
    experiment: Experiment
    result: xr.Dataset
    made: dict[str, Any]
    """the target and options of the command that made it"""
    warnings: tuple[str, ...]
    """warnings from opening it"""

    @classmethod
    def open(cls, path: Path) -> ResultFolder:
        """Open a folder; raise ValueError if it is no folder of results."""
        made = Store.open(path, writing=False).about.made
        experiment = open_experiment(path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = with_rate_audit(open_result(path), path)
        messages = tuple(dict.fromkeys(str(each.message) for each in caught))
        return cls(path, experiment, result, made, messages)

    @cached_property
    def recipe(self) -> Recipe | None:
        return recipes().get(str(self.made.get("target")))

    @cached_property
    def atlas(self) -> Atlas:
        return Atlas(self.result, self.recipe, self.made.get("changes") or ())

    @property
    def reading(self) -> Reading:
        """The answers with which it was made, in the order of the recipe's questions."""
        answers = self.made.get("reading") or {}
        questions = self.recipe.questions if self.recipe else ()
        return {each.name: answers.get(each.name, each.default) for each in questions}

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
        """Its difference from other folders of one recipe: reading and changes; or its name."""
        if self.recipe is None:
            return self.path.resolve().name
        reading = self.recipe.label(self.reading)
        changed = ", ".join(self.made.get("changes") or ())
        return f"reading {reading}" + (f", changed: {changed}" if changed else "")

    @property
    def title(self) -> str:
        return self.recipe.title if self.recipe else f"The experiment {self.path.resolve().name}"

    @property
    def setting(self) -> str:
        """Sizes, training, seeds and attacks in a sentence."""
        return describe(self.experiment)

    @property
    def yaml(self) -> str:
        return self.experiment.to_yaml()

    @property
    def file_name(self) -> str:
        """A name for a file with the specification."""
        target = Path(str(self.made.get("target") or self.path.resolve().name))
        return f"{target.stem}.yaml"

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of runs that ended in each way."""
        counts = counts_of(self.result["status"])
        return {STATUS_TEXT[each]: number for each, number in counts.items() if number}

    @cached_property
    def notices(self) -> list[str]:
        """Warnings to read before the pictures."""
        counts, runs = counts_of(self.result["status"]), self.result["status"].size
        notices = []
        if missing := counts[Status.MISSING]:
            notices.append(
                f"Not finished: {missing} of {runs} runs have not been computed yet; their cells are empty. "
                f"`benign resume {shown(self.path)}` computes them."
            )
        if failed := sum(counts[each] for each in RETRIED):
            error = self.result.attrs.get("first_error", "")
            notices.append(
                f"{failed} of {runs} runs failed and have no value: {error}".rstrip(": ")
            )
        if diverged := counts[Status.DIVERGED]:
            notices.append(
                f"{diverged} of {runs} runs diverged: their training grew without bound."
            )
        if capped := counts[Status.STEP_CAP]:
            notices.append(
                f"{capped} of {runs} runs stopped at the step cap before they reached their loss: "
                "they may not have converged."
            )
        if found := doubts(self.result):
            notices.append(
                f"Robust numbers are doubtful. {' '.join(found)} `benign audit {shown(self.path)}` shows details."
            )
        if self.atlas.note:
            notices.append(self.atlas.note)
        return notices + [each for each in self.warnings if "runs failed" not in each]

    @cached_property
    def command(self) -> str:
        """The command that makes it again: from a recipe, or, if no options give this experiment, from a file."""
        if self.recipe is None:
            return shlex.join(["benign", "run", self.file_name])
        words = [
            *_plugin_option(self.recipe),
            "run",
            self.recipe.name,
            "--scale",
            self.scale or "quick",
        ]
        default = self.recipe.reading()
        answers = [f"{q}={a}" for q, a in self.reading.items() if a != default[q]]
        changes = list(self.made.get("changes") or ())
        for option, values in (("--reading", answers), ("--set", changes)):
            words += [word for value in values for word in (option, value)]
        seeds = self.experiment.seeds
        for more, value in (([], None), (["--seeds", str(seeds)], seeds)):
            if self._made_by(RequestOptions(self.scale or None, answers, None, changes, value)):
                return shlex.join(["benign", *words, *more])
        return shlex.join(["benign", "run", self.file_name])

    @property
    def from_file(self) -> bool:
        """Whether the command runs a file with the specification."""
        return self.command.endswith(self.file_name)

    def _made_by(self, options: RequestOptions) -> bool:
        """Return whether these options give exactly this experiment: recipes change with time, and folders grow."""
        try:
            (request,) = requests_of(str(self.made["target"]), options)
        except ValueError:
            return False
        return request.experiment.as_dict() == self.experiment.as_dict()

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The origin of the numbers, as names and values."""
        attrs = self.result.attrs
        return [
            ("folder", shown(self.path)),
            ("runs", ", ".join(f"{number} {word}" for word, number in self.counts.items())),
            ("computed on", str(attrs.get("devices") or "nothing yet")),
            ("made by", f"benign {self.made.get('benign', 'unknown')}"),
            ("numerics", str(attrs["numerics"])),
            ("step size", str(attrs.get("rate_audit", NO_RATE_AUDIT))),
        ]


def _plugin_option(recipe: Recipe) -> list[str]:
    """Return the option that loads a recipe from outside the package."""
    paper = papers().get(recipe.name.partition("/")[0])
    return ["--plugin", shown(paper.plugin)] if paper and isinstance(paper.plugin, Path) else []


def _check(path: Path) -> None:
    """Raise ValueError for a path that cannot be a folder of results, with what was probably meant."""
    if path.is_file():
        raise ValueError(f"{path} is a file: name a folder of results, which `benign run` makes")
    if not path.exists() and (meant := Path("runs") / path).is_dir():
        raise ValueError(f"{path} does not exist: did you mean {meant}?")
    outer = next((each for each in path.parents if (each / "experiment.json").is_file()), None)
    if outer is not None and not (path / "experiment.json").is_file():
        raise ValueError(f"{path} is inside the results {outer}: name that folder")


def open_folders(paths: Iterable[Path]) -> list[ResultFolder]:
    """Open the folders of results among these paths and below them, each once."""
    stores = {store.resolve(): store for path in paths for store in _stores(path)}
    return [ResultFolder.open(store) for store in stores.values()]


def _stores(path: Path) -> Iterator[Path]:
    """Yield the stores in a folder, without those inside another store, such as those of an audit."""
    _check(path)
    outer: list[Path] = []
    for store in stores_in(path):
        if not any(store.is_relative_to(each) for each in outer):
            outer.append(store)
            yield store
