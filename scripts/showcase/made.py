"""How pictures of the gallery were made: `made.json`, one entry a picture, and the numbers behind it."""

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
from benign.papers.requests import RunOptions, RunRequest, plans
from benign.sweep.audits import with_rate_audit
from benign.sweep.dataset import counts_of
from benign.sweep.estimate import operations
from benign.sweep.folders import open_result
from benign.sweep.plan import runs_of
from benign.sweep.store import Store
from benign.training.descent import Status

COLOURS = 256
"""of a picture: enough for a heat map, and a third of the bytes"""
LARGEST_DATA = 60_000
"""bytes of the numbers behind one picture"""
MOST_STEPS = 50
"""points of a curve along training that are kept"""


@dataclass(frozen=True)
class Picture:
    """How a picture was made. What older pictures do not know of themselves is empty."""

    target: str
    """the recipe"""
    scale: str
    reading: dict[str, str]
    command: str
    """makes it again"""
    numerics: int
    changes: list[str] = field(default_factory=list)
    benign: str = ""
    """version"""
    device: str = ""
    host: str = ""
    """the machine, in words of whoever added the picture"""
    torch: str = ""
    runs: dict[str, int] = field(default_factory=dict)
    """how many ended in each way"""
    work_seconds: float | None = None
    """of all runs, one after another"""
    wall_seconds: float | None = None
    """of the whole command"""
    operations: float | None = None
    """additions and multiplications of all matrix products"""
    precision: str = ""
    """of these products"""
    recipe_changed: bool = False
    """whether the recipe builds another experiment than the one that was run"""
    summary: list[str] = field(default_factory=list)
    """what `benign run` says of the result"""


def read(gallery: Path) -> dict[str, Picture]:
    """Every picture of `made.json` by name."""
    path = gallery / "made.json"
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: Picture(**entries[name]) for name in sorted(entries)}


def write(gallery: Path, pictures: dict[str, Picture]) -> None:
    """Replace `made.json`; what is empty is left out."""
    entries = {
        name: {key: value for key, value in asdict(picture).items() if value or key == "reading"}
        for name, picture in sorted(pictures.items())
    }
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    (gallery / "made.json").write_text(text + "\n", encoding="utf-8")


def add(
    gallery: Path, folder: Path, name: str = "", seconds: float | None = None, host: str = ""
) -> str:
    """Draw a folder of results again and take the picture, its numbers and how it was made; returns its name."""
    [plan] = plans(str(folder), RunOptions())
    if plan.recipe is None:
        raise ValueError(f"{folder} was not made from a recipe: the gallery shows recipes")
    result = with_rate_audit(open_result(folder), folder)
    made = replace(_made(plan, plan.recipe, result), wall_seconds=seconds, host=host)
    name = name or _name(made, plan.recipe)
    _copy_picture(plan, result, gallery / f"{name}.png")
    (gallery / "data").mkdir(exist_ok=True)
    (gallery / "data" / f"{name}.json").write_text(numbers(result), encoding="utf-8")
    write(gallery, {**read(gallery), name: made})
    return name


def _made(plan: RunRequest, recipe: Recipe, result: xr.Dataset) -> Picture:
    store = Store.open(plan.folder, writing=False)
    records = [record.meta for _, record in store.records()]
    told = {
        key: sorted({str(meta[key]) for meta in records}) for key in ("benign", "device", "torch")
    }
    asked = plan.made
    choices = RunOptions(
        asked["scale"], [f"{q}={a}" for q, a in asked["reading"].items()], changes=asked["changes"]
    )
    today = _today(recipe.name, choices, plan.experiment.seeds)
    return Picture(
        target=recipe.name,
        scale=asked["scale"],
        reading=asked["reading"],
        changes=asked["changes"],
        command=_command(recipe, plan, told["device"]),
        numerics=min(meta["numerics"] for meta in records),
        benign=", ".join(told["benign"]),
        device=", ".join(told["device"]),
        torch=", ".join(told["torch"]),
        runs={s.name.lower(): count for s, count in counts_of(result["status"]).items() if count},
        work_seconds=round(sum(meta["seconds"] for meta in records), 1),
        operations=float(f"{_operations(plan.experiment, result):.3g}"),
        precision=plan.experiment.precision,
        recipe_changed=today != plan.experiment,
        summary=plan.summarise(result).splitlines(),
    )


def _operations(experiment: Experiment, result: xr.Dataset) -> float:
    """Of all runs, by the steps they took."""
    taken = result["steps"].fillna(0).values.ravel()  # in the order of the runs
    runs = runs_of(experiment)
    return sum(operations(run.cell, steps) for run, steps in zip(runs, taken, strict=True))


def _today(target: str, choices: RunOptions, seeds: int) -> Experiment | None:
    """What the recipe builds today; None where it no longer knows the reading."""
    try:
        [plan] = plans(target, replace(choices, seeds=seeds))
    except ValueError:
        return None
    return plan.experiment


def _command(recipe: Recipe, plan: RunRequest, devices: list[str]) -> str:
    """`benign run ...`, with what differs from the defaults."""
    scale, reading = plan.made["scale"], plan.made["reading"]
    words = ["benign run", recipe.name, "--scale", scale]
    for answer in _answers(recipe, reading):
        words += ["--reading", answer]
    for change in plan.made["changes"]:
        words += ["--set", change]
    told = any(change.startswith("seeds=") for change in plan.made["changes"])
    if not told and plan.experiment.seeds != recipe.experiment(scale).seeds:
        words += ["--seeds", str(plan.experiment.seeds)]
    if any(device.startswith("cuda") for device in devices):
        words += ["--device cuda"]
    return " ".join(words)


def _answers(recipe: Recipe, reading: dict[str, str]) -> list[str]:
    """The answers that differ from the default."""
    return [f"{q}={a}" for q, a in reading.items() if recipe.reading().get(q) != a]


def label(picture: Picture) -> str:
    """The reading in words: `default`, or the answers that differ; then what was changed."""
    answers = _answers(recipes()[picture.target], picture.reading)
    return ", ".join([*(answers or ["default"]), *picture.changes])


def _name(made: Picture, recipe: Recipe) -> str:
    """Figure, what differs from the default, and the scale unless it is the paper's."""
    told = [recipe.name, *_answers(recipe, made.reading), *made.changes]
    return re.sub(r"[^\w.]+", "-", "-".join(told + [made.scale] * (made.scale != "paper")))


def _copy_picture(plan: RunRequest, result: xr.Dataset, path: Path) -> None:
    """Draw elsewhere, for the folder may be read-only, and keep few colours."""
    with tempfile.TemporaryDirectory() as place:
        drawn = replace(plan, folder=Path(place)).draw(result)
        files = [file for file in drawn if file.suffix == ".png"]
        parts = [Image.open(file).convert("RGB") for file in files]
        few = _below_each_other(parts).quantize(
            palette=few_colours(parts), dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


def few_colours(parts: list[Image.Image]) -> Image.Image:
    """Few colours, most of them for the first picture: photographs beside it would take those of its colour bar.

    Maximum coverage keeps rare ones: no channel of zhang/fig1 is off by more than 7 of 255, where median cut is off
    by 60.
    """
    figure, *others = parts
    photographs = COLOURS // 4 if others else 0
    kept = figure.quantize(COLOURS - photographs, Image.Quantize.MAXCOVERAGE).getpalette() or []
    if others:
        rest = _below_each_other(others).quantize(photographs, Image.Quantize.MAXCOVERAGE)
        kept = kept[: 3 * (COLOURS - photographs)] + (rest.getpalette() or [])[: 3 * photographs]
    palette = Image.new("P", (1, 1))
    palette.putpalette(kept)
    return palette


def _below_each_other(parts: list[Image.Image]) -> Image.Image:
    """The pictures of a recipe as one: figures on images have samples, or a table, beside them."""
    whole = Image.new(
        "RGB", (max(each.width for each in parts), sum(p.height for p in parts)), "white"
    )
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    return whole


def numbers(result: xr.Dataset) -> str:
    """Means over seeds and their standard errors as JSON, as far as they fit.

    End values come before curves, and among each losses and accuracies before the rest.
    """
    sound = result.where(result["status"].isin([Status.CONVERGED, Status.STEP_CAP]))
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
        line = f'"{name}": {json.dumps(_told(sound[name]))}'
        if (size := size + len(line)) > LARGEST_DATA:
            left_out, size = [*left_out, name], size - len(line)
        else:
            lines.append(line)
    lines.append(f'"left_out": {json.dumps(left_out)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _told(values: xr.DataArray) -> dict[str, Any]:
    """One variable: what it means, its axes, mean and standard error over seeds."""
    if "step" in values.dims and values.sizes["step"] > MOST_STEPS:
        places = np.unique(np.linspace(0, values.sizes["step"] - 1, MOST_STEPS).round().astype(int))
        values = values.isel(step=places)
    with warnings.catch_warnings(action="ignore"):  # a cell without runs, or with one
        mean = values.mean("seed")
        error = values.std("seed", ddof=1) / np.sqrt(values.count("seed"))
    told = {"meaning": values.attrs.get("long_name", ""), "axes": [str(dim) for dim in mean.dims]}
    if "step" in mean.dims:
        told["steps"] = _plain(mean["step"].values)
    return told | {"mean": _plain(mean.values), "standard_error": _plain(error.values)}


def _plain(values: Any) -> Any:
    """Numbers of four digits in lists; what is not finite is null."""
    if isinstance(values, np.ndarray):
        return _plain(values.item()) if not values.ndim else [_plain(each) for each in values]
    if isinstance(values, float | np.floating):
        return float(f"{values:.4g}") if np.isfinite(values) else None
    return values.item() if isinstance(values, np.generic) else values
