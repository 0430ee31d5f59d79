"""Published numbers: the figures that were computed at large scale, as datasets to draw over or to compare with.

    published_figures/NAME.json.gz     the format is that of `sweep/figure_file.py`

`bo.published("zhang/fig1")` returns one. `benign export FOLDER NAME.json.gz` writes such a file of your own results,
and `bo.published("NAME.json.gz")` reads it. The gallery is made from the same files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import xarray as xr

from benign.experiment import Experiment
from benign.papers.recipes import Recipe
from benign.papers.registry import claims, recipes, study_of
from benign.papers.requests import RequestOptions, RunRequest, requests_of
from benign.sweep import figure_file
from benign.sweep.audits import with_rate_audit
from benign.sweep.dataset import counts_of
from benign.sweep.estimate import operations
from benign.sweep.figure_file import ENDING, FigureFileError
from benign.sweep.folders import open_result
from benign.sweep.plan import runs_of
from benign.sweep.store import Store, request_text

FOLDER = Path(__file__).parent / "published_figures"
LARGEST_FOLDER = 10_000_000
"""bytes of all figures of the package"""


@dataclass(frozen=True)
class Made:
    """How the numbers of a figure were made. Fields that were not recorded for older figures are empty."""

    target: str
    """name of the recipe"""
    scale: str
    reading: dict[str, str]
    command: str
    """the command that makes it again"""
    numerics: int
    changes: list[str] = field(default_factory=list)
    benign: str = ""
    """version"""
    device: str = ""
    host: str = ""
    """the machine, described by the person who ran the command"""
    torch: str = ""
    seeds: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    """number of runs that ended in each way"""
    work_seconds: float | None = None
    """of all runs, added up"""
    wall_seconds: float | None = None
    """of the whole command"""
    operations: float | None = None
    """additions and multiplications of all matrix products"""
    precision: str = ""
    """of these products"""
    recipe_changed: bool = False
    """whether the recipe built a different experiment when the numbers were stored"""
    summary: list[str] = field(default_factory=list)
    """the summary that `benign run` prints"""
    claims: list[str] = field(default_factory=list)
    """ids of the claims that are judged on the figure"""

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Made:
        """Return what a file says; unknown fields are of a newer version, and are left out."""
        like = asdict(cls("", "", {}, "", 0))
        made = cls(**{name: value for name, value in stored.items() if name in like})
        for name, value in asdict(made).items():
            kind = type(like[name]) if like[name] is not None else (int, float, type(None))
            if not isinstance(value, kind):
                raise TypeError(f"{name} is {value!r:.60}")
        return made

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not empty."""
        return {key: value for key, value in asdict(self).items() if value or key == "reading"}


def published(name: str | os.PathLike[str], **reading: str) -> xr.Dataset:
    """Return the stored numbers of a figure, with the names and attributes of a result of your own.

    name: a recipe, or a file that `benign export` wrote (`.json.gz`). reading: answers that differ from the default.

    Numbers have four significant digits. `attrs["content"]` says whether they are of every run, with the dimension
    `seed`, or means over seeds with variables `..._standard_error` (figures from before numerics 7); `attrs` also say
    how they were made: `numerics`, `command`, `device`, `scale`, `claims`, ...

    >>> import benign as bo
    >>> zhang = bo.published("zhang/fig1")
    >>> dict(zhang.robust_accuracy.sizes), zhang.attrs["scale"], zhang.attrs["seeds"]
    ({'samples': 11, 'snr': 12}, 'paper', 5)
    >>> figure = bo.plot.phase(zhang, "robust_accuracy")
    """
    if str(name).endswith(ENDING):
        return _with_origin(*_opened(Path(name)))
    result, made = _opened(_find(str(name), reading))
    if not len(result):
        raise ValueError(
            f"of {name} only the picture was stored, no numbers (numerics {made.numerics}): `{made.command}` "
            "computes them"
        )
    return _with_origin(result, made)


def figures() -> dict[str, Made]:
    """Return how each stored figure was made, by the name of its file; the default reading comes first."""
    return {name: _opened(file)[1] for name, file in _files()}


def numbers(name: str) -> xr.Dataset:
    """Return the numbers of a file of the package; there may be none."""
    return _opened(file_of(name))[0]


def file_of(name: str) -> Path:
    """Return the file of a figure of the package."""
    return FOLDER / f"{name}{ENDING}"


def store(
    folder: Path, file: Path, seconds: float | None = None, host: str = ""
) -> tuple[xr.Dataset, xr.Dataset]:
    """Write the figure file of a folder of results; return the result and what was written of it."""
    [request] = requests_of(str(folder), RequestOptions())
    result = with_rate_audit(open_result(folder), folder)
    made = replace(_made(request, result), wall_seconds=seconds, host=host)
    kept = result.assign_attrs(content="runs", digits=figure_file.DIGITS)
    content = figure_file.encode(kept, made.as_dict())
    figure_file.write(file, content)
    return result, figure_file.decode(content)[0]


def _files() -> Iterator[tuple[str, Path]]:
    names = sorted(file.name.removesuffix(ENDING) for file in FOLDER.glob(f"*{ENDING}"))
    for name in names:
        yield name, file_of(name)


def _opened(file: Path) -> tuple[xr.Dataset, Made]:
    result, stored = figure_file.read(file)
    try:
        return result, Made.of(stored)
    except TypeError as error:
        raise FigureFileError(f"{file} does not say how it was made: {error}") from error


def _find(target: str, reading: dict[str, str]) -> Path:
    """Return the file of a figure in a reading. Raise ValueError with those that exist."""
    default = file_of(target.replace("/", "-"))
    if not reading and default.is_file():
        return default
    known = figures()
    of_target = {name: made for name, made in known.items() if made.target == target}
    if not of_target:
        there = ", ".join(dict.fromkeys(made.target for made in known.values()))
        raise ValueError(f"no numbers of {target!r} are published: there are {there}")
    recipe = recipes().get(target)
    wanted = {**(recipe.reading() if recipe else {}), **reading}
    fitting = [name for name, made in of_target.items() if made.reading == wanted]
    if len(fitting) != 1:
        calls = "; ".join(call_of(name, made) for name, made in of_target.items())
        raise ValueError(f"no numbers of {target} are published in this reading: there are {calls}")
    return file_of(fitting[0])


def call_of(name: str, made: Made) -> str:
    """Return how Python reads a figure of the package, by the name of its file."""
    answers = dict(each.split("=", 1) for each in answers_that_differ(made))
    if name == made.target.replace("/", "-"):
        answers = {}
    more = "".join(f", {question}={answer!r}" for question, answer in answers.items())
    return f'bo.published("{made.target}"{more})'.replace("'", '"')


def answers_that_differ(made: Made) -> list[str]:
    """Return the answers `question=answer` that differ from the default of the recipe."""
    recipe = recipes().get(made.target)
    default = recipe.reading() if recipe else {}
    return [f"{q}={a}" for q, a in made.reading.items() if default.get(q) != a]


def _with_origin(result: xr.Dataset, made: Made) -> xr.Dataset:
    """Return the numbers with how they were made, as attributes."""
    origin = made.as_dict()
    counts = origin.pop("runs", {})
    runs = {"runs": sum(counts.values())} | {f"runs_{name}": n for name, n in counts.items()}
    listed = {"reading": answers_that_differ(made), "recipe": request_text(origin)}
    return result.assign_attrs({**result.attrs, **origin, **(runs if counts else {}), **listed})


def _made(request: RunRequest, result: xr.Dataset) -> Made:
    records = [record.meta for _, record in Store.open(request.folder, writing=False).records()]
    if not records:
        raise ValueError(f"{request.folder} holds no runs yet: run its experiment first")
    origin = {
        key: sorted({str(meta[key]) for meta in records}) for key in ("benign", "device", "torch")
    }
    recipe, asked = request.recipe, request.made
    made = Made(
        target=str(asked.get("target", "")),
        scale=str(asked.get("scale", "")),
        reading=dict(asked.get("reading", {})),
        changes=list(asked.get("changes", [])),
        command="",
        numerics=min(meta["numerics"] for meta in records),
        benign=", ".join(origin["benign"]),
        device=", ".join(origin["device"]),
        torch=", ".join(origin["torch"]),
        seeds=result.sizes.get("seed", 1),
        runs={s.name.lower(): count for s, count in counts_of(result["status"]).items() if count},
        work_seconds=round(sum(meta["seconds"] for meta in records), 1),
        operations=float(f"{_operations(request.experiment, result):.3g}"),
        precision=request.experiment.precision,
        summary=request.summarise(result).splitlines(),
    )
    if recipe is None:
        return replace(made, command=f"benign run {made.target}")
    answers = [f"{q}={a}" for q, a in made.reading.items()]
    options = RequestOptions(made.scale, answers, changes=made.changes)
    return replace(
        made,
        command=_command(recipe, request, made, origin["device"]),
        recipe_changed=_today(recipe.name, options, request.experiment.seeds) != request.experiment,
        claims=judged_on(recipe.name),
    )


def judged_on(recipe: str) -> list[str]:
    """Return the ids of the claims that are judged on a recipe."""
    return sorted(
        claim.id
        for claim in claims().values()
        if any(study and study.name == recipe for study in map(study_of, claim.studies))
    )


def _operations(experiment: Experiment, result: xr.Dataset) -> float:
    """Return the operations of all runs, from the steps they took."""
    steps_of_runs = result["steps"].fillna(0).values.ravel()  # in the order of the runs
    runs = runs_of(experiment)
    return sum(operations(run.cell, steps) for run, steps in zip(runs, steps_of_runs, strict=True))


def _today(target: str, options: RequestOptions, seeds: int) -> Experiment | None:
    """Return the experiment that the recipe builds now; None if it does not have this reading any more."""
    try:
        [request] = requests_of(target, replace(options, seeds=seeds))
    except ValueError:
        return None
    return request.experiment


def _command(recipe: Recipe, request: RunRequest, made: Made, devices: list[str]) -> str:
    """Return `benign run ...` with the options that differ from the defaults."""
    words = ["benign run", recipe.name, "--scale", made.scale]
    for answer in answers_that_differ(made):
        words += ["--reading", answer]
    for change in made.changes:
        words += ["--set", change]
    seeds_changed = any(change.startswith("seeds=") for change in made.changes)
    if not seeds_changed and request.experiment.seeds != recipe.experiment(made.scale).seeds:
        words += ["--seeds", str(request.experiment.seeds)]
    if any(device.startswith("cuda") for device in devices):
        words += ["--device cuda"]
    return " ".join(words)
