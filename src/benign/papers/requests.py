"""From a request, a recipe, a file or a folder with options, to experiments in folders."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from benign.claims.study import Reading
from benign.experiment import Experiment
from benign.papers.recipes import Recipe
from benign.papers.registry import recipes
from benign.plot.caption import endings, origin
from benign.plot.maps import pictures
from benign.spec.base import SpecError
from benign.spec.plugins import loading_hint
from benign.spec.yaml import read_source, with_overrides
from benign.sweep.folders import current_experiment
from benign.sweep.status_text import result_text
from benign.sweep.store import Store

TargetKind = Literal["file", "recipe", "folder"]


@dataclass(frozen=True)
class RunRequest:
    """One experiment to run in one folder, and the recipe that draws it."""

    title: str
    experiment: Experiment
    folder: Path
    recipe: Recipe | None = None
    made: dict[str, Any] = field(default_factory=dict)
    """the request; kept in the folder"""

    def summarise(self, result: xr.Dataset) -> str:
        """Return a summary of the result: that of the recipe, with the distance from its theorem, or a table."""
        if self.recipe is None:
            return result_text(result)
        lines = [self.recipe.summarise(result), self.recipe.distance(self.experiment)]
        return "\n".join(filter(None, lines))

    def draw(self, result: xr.Dataset) -> list[Path]:
        """Draw the figure of the recipe, or for a file the accuracies over its axes."""
        if self.recipe is None:
            return pictures(result, self.folder)
        sentences = [
            _caption(self.recipe, self.experiment, self.made),
            endings(result),
            origin(result),
        ]
        return self.recipe.draw(result, self.folder, " ".join(filter(None, sentences)))


@dataclass(frozen=True)
class RequestOptions:
    """The options that select the experiments and their folder."""

    scale: str | None = None
    """size of a recipe; quick if not given"""
    answers: Sequence[str] = ()
    """`question=answer`, each"""
    readings: str | None = None
    """`default`, `all` or `product`"""
    changes: Sequence[str] = ()
    """`field=value`, each"""
    seeds: int | None = None
    """repetitions, instead of the experiment's own"""
    out: Path | None = None
    """folder of the results, or of several readings' folders"""

    def applied(self, fields: dict[str, Any]) -> Experiment:
        """Return the experiment with these fields after `changes` and `seeds`.

        A change may name a field that has its default.
        """
        changed = with_overrides(_completed(fields), self.changes) if self.changes else fields
        return Experiment.from_dict(
            changed if self.seeds is None else {**changed, "seeds": self.seeds}
        )

    def named(self) -> list[str]:
        """Return the names of the fields that `changes` and `seeds` set."""
        seeds = [] if self.seeds is None else ["seeds"]
        return [*seeds, *(text.partition("=")[0] for text in self.changes)]


def target_kind(target: str) -> TargetKind:
    """Return whether a target is a file, a recipe or a folder of results. Raise if it is nothing of the kind."""
    if Path(target).suffix in (".yaml", ".yml") or os.path.isfile(target):
        return "file"
    if target in recipes():
        return "recipe"
    if os.path.isdir(target):
        return "folder"
    hint = loading_hint(os.path.dirname(target))
    raise ValueError(f"no recipe or file {target!r}; the recipes are {', '.join(recipes())}{hint}")


def requests_of(target: str, options: RequestOptions) -> list[RunRequest]:
    """Return the experiments that a target and its options name, all of them checked."""
    kind = target_kind(target)
    if kind == "recipe":
        return _of_recipe(recipes()[target], options)
    for option in ("scale", "answers", "readings"):
        if getattr(options, option):
            name = "reading" if option == "answers" else option
            raise ValueError(
                f"--{name} is for recipes, and {target} is a {kind}: use --set instead"
            )
    return [_of_file(target, options) if kind == "file" else _of_folder(Path(target), options)]


def _of_file(target: str, options: RequestOptions) -> RunRequest:
    source = read_source(Path(target))
    with source.naming_lines(elsewhere=options.named()):
        experiment = options.applied(source.fields())
    made = {"target": target, "changes": list(options.changes)}
    return RunRequest(
        target, experiment, options.out or Path("runs") / Path(target).stem, made=made
    )


def _of_folder(folder: Path, options: RequestOptions) -> RunRequest:
    """Return a request for the experiment of a folder, to resume it there or to run it elsewhere."""
    store = Store.open(folder, writing=False)
    experiment, made = options.applied(current_experiment(store).as_dict()), store.about.made
    if options.changes:
        made = {**made, "changes": [*made.get("changes", []), *options.changes]}
    recipe = recipes().get(str(made.get("target")))
    return RunRequest(str(folder), experiment, options.out or folder, recipe, made)


def _completed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with their defaults; unchanged if they are not valid before a change."""
    try:
        return Experiment.from_dict(fields).as_dict()
    except SpecError:
        return fields


def _of_recipe(chosen: Recipe, options: RequestOptions) -> list[RunRequest]:
    if options.answers and options.readings:
        raise ValueError("--reading and --readings: give one of them")
    which = options.readings
    readings = (
        chosen.readings(which) if which else [chosen.reading(parsed_answers(options.answers))]
    )
    return [_of_reading(chosen, options, reading, len(readings) > 1) for reading in readings]


def _of_reading(
    chosen: Recipe, options: RequestOptions, reading: Reading, one_of_several: bool
) -> RunRequest:
    scale, label = options.scale or "quick", chosen.label(reading)
    experiment = options.applied(chosen.experiment(scale, reading).as_dict())
    folder = options.out or Path("runs") / chosen.name / scale
    if one_of_several or options.out is None:
        folder = folder / label
    made = {
        "target": chosen.name,
        "scale": scale,
        "reading": dict(reading),
        "changes": list(options.changes),
    }
    title = f"{chosen.name}, {scale} scale, reading {label}"
    return RunRequest(title, experiment, folder, chosen, made)


def _caption(recipe: Recipe, experiment: Experiment, made: dict[str, Any]) -> str:
    """Return the caption of a figure. A folder keeps the answers in another order than the questions of the recipe."""
    known = made.get("reading") or {}
    reading = {each.name: known[each.name] for each in recipe.questions if each.name in known}
    under = recipe.caption(experiment, str(made.get("scale")), reading)
    return under + (f" Changed: {', '.join(made['changes'])}." if made.get("changes") else "")


def parsed_answers(answers: Sequence[str]) -> Reading:
    """Return the answers by question, from texts `question=answer`."""
    parsed = {}
    for text in answers:
        question, equals, answer = text.partition("=")
        if not equals:
            raise ValueError(f"--reading {text!r}: write question=answer, for example w_O=divided")
        parsed[question] = answer
    return parsed
