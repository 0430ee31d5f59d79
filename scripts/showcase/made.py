"""How the pictures of the gallery were made: `made.json` with an entry for each picture, and their numbers."""

import json
import re
import tempfile
import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from PIL import Image

from benign.experiment import Experiment
from benign.papers.recipes import Recipe
from benign.papers.registry import recipes
from benign.papers.requests import RequestOptions, RunRequest, requests_of
from benign.sweep.audits import with_rate_audit
from benign.sweep.dataset import counts_of
from benign.sweep.estimate import operations
from benign.sweep.folders import open_result
from benign.sweep.plan import runs_of
from benign.sweep.store import Store
from benign.training.descent import Status

COLOURS = 256
"""colours of a picture: enough for a heat map, and a third of the bytes"""
LARGEST_DATA = 60_000
"""bytes of the numbers of one picture"""
MOST_STEPS = 50
"""points of a curve along training in these numbers"""


@dataclass(frozen=True)
class Picture:
    """How a picture was made. Fields that were not recorded for older pictures are empty."""

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
    """the machine, described by the person who added the picture"""
    torch: str = ""
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
    """whether the recipe now builds a different experiment"""
    summary: list[str] = field(default_factory=list)
    """the summary that `benign run` prints"""


def read(gallery: Path) -> dict[str, Picture]:
    """Return the pictures of `made.json` by name."""
    path = gallery / "made.json"
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: Picture(**entries[name]) for name in sorted(entries)}


def write(gallery: Path, pictures: dict[str, Picture]) -> None:
    """Replace `made.json`; empty fields are left out."""
    entries = {
        name: {key: value for key, value in asdict(picture).items() if value or key == "reading"}
        for name, picture in sorted(pictures.items())
    }
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    (gallery / "made.json").write_text(text + "\n", encoding="utf-8")


def add(
    gallery: Path, folder: Path, name: str = "", seconds: float | None = None, host: str = ""
) -> str:
    """Draw a folder of results again and add picture, numbers and origin to the gallery; return its name."""
    [request] = requests_of(str(folder), RequestOptions())
    if request.recipe is None:
        raise ValueError(f"{folder} was not made from a recipe: the gallery shows recipes")
    result = with_rate_audit(open_result(folder), folder)
    made = replace(_made(request, request.recipe, result), wall_seconds=seconds, host=host)
    name = name or _name(made, request.recipe)
    _copy_picture(request, result, gallery / f"{name}.png")
    (gallery / "data").mkdir(exist_ok=True)
    (gallery / "data" / f"{name}.json").write_text(numbers(result), encoding="utf-8")
    write(gallery, {**read(gallery), name: made})
    return name


def _made(request: RunRequest, recipe: Recipe, result: xr.Dataset) -> Picture:
    store = Store.open(request.folder, writing=False)
    records = [record.meta for _, record in store.records()]
    origin = {
        key: sorted({str(meta[key]) for meta in records}) for key in ("benign", "device", "torch")
    }
    made = request.made
    answers = [f"{q}={a}" for q, a in made["reading"].items()]
    options = RequestOptions(made["scale"], answers, changes=made["changes"])
    today = _today(recipe.name, options, request.experiment.seeds)
    return Picture(
        target=recipe.name,
        scale=made["scale"],
        reading=made["reading"],
        changes=made["changes"],
        command=_command(recipe, request, origin["device"]),
        numerics=min(meta["numerics"] for meta in records),
        benign=", ".join(origin["benign"]),
        device=", ".join(origin["device"]),
        torch=", ".join(origin["torch"]),
        runs={s.name.lower(): count for s, count in counts_of(result["status"]).items() if count},
        work_seconds=round(sum(meta["seconds"] for meta in records), 1),
        operations=float(f"{_operations(request.experiment, result):.3g}"),
        precision=request.experiment.precision,
        recipe_changed=today != request.experiment,
        summary=request.summarise(result).splitlines(),
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


def _command(recipe: Recipe, request: RunRequest, devices: list[str]) -> str:
    """Return `benign run ...` with the options that differ from the defaults."""
    scale, reading = request.made["scale"], request.made["reading"]
    words = ["benign run", recipe.name, "--scale", scale]
    for answer in _answers(recipe, reading):
        words += ["--reading", answer]
    for change in request.made["changes"]:
        words += ["--set", change]
    seeds_changed = any(change.startswith("seeds=") for change in request.made["changes"])
    if not seeds_changed and request.experiment.seeds != recipe.experiment(scale).seeds:
        words += ["--seeds", str(request.experiment.seeds)]
    if any(device.startswith("cuda") for device in devices):
        words += ["--device cuda"]
    return " ".join(words)


def _answers(recipe: Recipe, reading: dict[str, str]) -> list[str]:
    """Return the answers that differ from the default."""
    return [f"{q}={a}" for q, a in reading.items() if recipe.reading().get(q) != a]


def label(picture: Picture) -> str:
    """Return the reading, `default` or the answers that differ from it, and the changed fields."""
    answers = _answers(recipes()[picture.target], picture.reading)
    return ", ".join([*(answers or ["default"]), *picture.changes])


def _name(made: Picture, recipe: Recipe) -> str:
    """Return a name: recipe, differences from the default, and the scale unless it is `paper`."""
    parts = [recipe.name, *_answers(recipe, made.reading), *made.changes]
    return re.sub(r"[^\w.]+", "-", "-".join(parts + [made.scale] * (made.scale != "paper")))


def _copy_picture(request: RunRequest, result: xr.Dataset, path: Path) -> None:
    """Draw in a temporary folder, since the results may be read-only, and reduce the colours."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = replace(request, folder=Path(folder)).draw(result)
        files = [file for file in drawn if file.suffix == ".png"]
        parts = [Image.open(file).convert("RGB") for file in files]
        few = _stacked(parts).quantize(palette=few_colours(parts), dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def few_colours(parts: list[Image.Image]) -> Image.Image:
    """Return a palette with most colours for the first picture: photographs would use up those of its colour bar.

    Maximum coverage keeps rare colours: no channel of zhang/fig1 is off by more than 7 of 255, where median cut is off
    by 60.
    """
    figure, *others = parts
    photographs = COLOURS // 4 if others else 0
    palette_colours = (
        figure.quantize(COLOURS - photographs, Image.Quantize.MAXCOVERAGE).getpalette() or []
    )
    if others:
        rest = _stacked(others).quantize(photographs, Image.Quantize.MAXCOVERAGE)
        palette_colours = (
            palette_colours[: 3 * (COLOURS - photographs)]
            + (rest.getpalette() or [])[: 3 * photographs]
        )
    palette = Image.new("P", (1, 1))
    palette.putpalette(palette_colours)
    return palette


def _stacked(parts: list[Image.Image]) -> Image.Image:
    """Return the pictures of a recipe as one, below each other: some recipes also draw samples or a table."""
    whole = Image.new(
        "RGB", (max(each.width for each in parts), sum(p.height for p in parts)), "white"
    )
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    return whole


def numbers(result: xr.Dataset) -> str:
    """Return means over seeds and their standard errors as JSON, as many as fit.

    Final values come before curves; in both, losses and accuracies come before the rest.
    """
    finished = result.where(result["status"].isin([Status.CONVERGED, Status.STEP_CAP]))
    names = [str(name) for name in result if name not in ("status", "audit")]
    names.sort(
        key=lambda n: ("step" in result[n].dims, not n.startswith(("test_", "robust_", "train_")))
    )
    head = {
        "axes": {str(dim): _plain(result[dim].values) for dim in result.dims},
        "beside": {
            str(n): _plain(c.values) for n, c in result.coords.items() if n not in result.dims
        },
    }
    lines = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    left_out, size = [], sum(map(len, lines))
    for name in names:
        line = f'"{name}": {json.dumps(_statistics(finished[name]))}'
        if (size := size + len(line)) > LARGEST_DATA:
            left_out, size = [*left_out, name], size - len(line)
        else:
            lines.append(line)
    lines.append(f'"left_out": {json.dumps(left_out)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _statistics(values: xr.DataArray) -> dict[str, Any]:
    """Return the definition of a variable, its axes, and mean and standard error over seeds."""
    if "step" in values.dims and values.sizes["step"] > MOST_STEPS:
        steps = np.unique(np.linspace(0, values.sizes["step"] - 1, MOST_STEPS).round().astype(int))
        values = values.isel(step=steps)
    with warnings.catch_warnings(action="ignore"):  # cells with no run or one run
        mean = values.mean("seed")
        error = values.std("seed", ddof=1) / np.sqrt(values.count("seed"))
    entry = {"meaning": values.attrs.get("long_name", ""), "axes": [str(dim) for dim in mean.dims]}
    if "step" in mean.dims:
        entry["steps"] = _plain(mean["step"].values)
    return entry | {"mean": _plain(mean.values), "standard_error": _plain(error.values)}


def _plain(values: Any) -> Any:
    """Return numbers of four digits in lists; None for NaN and infinity."""
    if isinstance(values, np.ndarray):
        return _plain(values.item()) if not values.ndim else [_plain(each) for each in values]
    if isinstance(values, float | np.floating):
        return float(f"{values:.4g}") if np.isfinite(values) else None
    return values.item() if isinstance(values, np.generic) else values
