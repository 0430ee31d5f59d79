"""Checks of components on a few points: shapes, repeatable draws, and runs that do not depend on each other.

The package's components are checked in tests/test_components.py, a user's own before work starts.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from benign.attacks.attack import Attack, Target
from benign.data.model import DataModel, Sample
from benign.networks.network import Network, Params, ScaledGradients
from benign.spec import axes, plugins
from benign.spec.base import SpecError
from benign.spec.registry import Component
from benign.streams import RunId, Stream, Streams
from benign.sweep.plan import Run
from benign.training.setup import Setup

POINTS = 4
LABELS = 64
"""points of either split whose labels are checked; four of 0 and 1 are all 1 by chance once in 16"""
RUNS = [RunId(0, index, "tryout") for index in range(3)]
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""between a run alone and in a batch, whose matrix products round differently"""
STREAMS = "draw from the given streams only"
PER_RUN = "fields of runs come as tensors [runs]"


def try_own_parts(cells: Iterable[Setup]) -> None:
    """Raise ValueError if a data model, network or attack that is not the package's is wrong.

    Of all shapes the first and the last are tried, each with the numbers of its first and its last run.
    """
    alike: dict[str, list[Setup]] = {}
    for cell in cells:
        if _own(cell):
            alike.setdefault(Run(cell, 0, {}).shape, []).append(cell)
    for shape in _ends(list(alike)):
        _try_once(_Case((shape, _classes(alike[shape][0])), _ends(alike[shape])))


@dataclass(frozen=True)
class _Case:
    """Runs of one shape to try; equal for the same classes and fields."""

    key: tuple[str, tuple[type, ...]]
    cells: list[Setup] = field(compare=False)


@lru_cache(maxsize=1024)
def _try_once(case: _Case) -> None:
    cells = [cell.reduced() for cell in case.cells]
    data, network = cells[0].data, cells[0].network
    attacks = [cell.attack for cell in cells], [cell.evaluation.attack for cell in cells]
    trials: list[tuple[Any, list, tuple]] = [
        (try_data, [cell.data for cell in cells], ()),
        (try_network, [cell.network for cell in cells], (data,)),
        *((try_attack, each, (network, data)) for each in attacks),
    ]
    for trial, parts, others in trials:
        if parts[0] is not None and _own(parts[0]):
            _tried(trial, parts, others)


def _tried(trial: Any, parts: list, others: tuple) -> None:
    try:
        trial(parts, *others)
    except _Refused as error:
        raise SpecError([("", str(error))]) from None
    except Exception as error:
        problem = f"{type(error).__name__}: {error}{_where(error, parts[0])}{_hint(error, parts)}"
        name = type(parts[0]).__name__
        raise SpecError([("", f"`{name}` fails on {POINTS} points: {problem}")]) from error


def _where(error: Exception, part: BaseModel) -> str:
    """Return the line of the component's own file, or an empty text in a notebook."""
    file = getattr(sys.modules.get(type(part).__module__), "__file__", None)
    return plugins.place(error, Path(file)) if file else ""


def _hint(error: Exception, parts: list) -> str:
    """Return a likely reason for shapes that do not fit: numbers of several runs have the shape [runs]."""
    names = [".".join(path) for path, role, _ in axes.walk(parts[0]) if role == "run"]
    if len(parts) == 1 or not names or "must match" not in str(error):
        return ""
    return f"; {', '.join(names)}: [runs] each, `column(self.{names[0]}, x)` gives it the axes of x"


class _Refused(ValueError):
    """A component is wrong; the message says how."""


def _own(spec: BaseModel) -> bool:
    return any(not each.__module__.startswith("benign.") for each in _classes(spec))


def _classes(spec: BaseModel) -> tuple[type, ...]:
    """Return the component classes of a specification, including components inside others."""
    parts = [getattr(spec, name) for name in type(spec).model_fields]
    inner = [each for part in parts if isinstance(part, BaseModel) for each in _classes(part)]
    return (type(spec), *inner) if isinstance(spec, Component) else tuple(inner)


def _ends(items: list) -> list:
    return items[:1] + items[1:][-1:]


def try_data(cells: Sequence[DataModel], dtype: torch.dtype = torch.float64) -> None:
    """Try the data models of several runs of one shape, stacked and each alone."""
    data, streams = stacked(cells), Streams(RUNS[: len(cells)])
    sample, again = (_drawn(data, streams, dtype) for _ in range(2))
    where = f"`{type(data).__name__}.sample`"
    _check_sample(where, data, sample, len(cells), dtype)
    for split in ("train", "test/0"):
        several = data.sample(streams, split, LABELS, dtype)
        _check_labels(where, data, several)
        _check_flips(where, data, several)
    _same(f"two draws of {where} differ: {STREAMS}", _parts(again), _parts(sample))
    problem = f"{where} gives a run other points in a batch than alone: {PER_RUN}"
    for run, cell in enumerate(cells):
        alone = _parts(_drawn(cell, Streams([RUNS[run]]), dtype))
        _same(problem, _run_of(_parts(sample), run), _run_of(alone, 0), TOLERANCE[dtype])
        own = _numbers(cell, sample.select(torch.tensor([run])), 0)
        _same(problem, _numbers(data, sample, run), own, TOLERANCE[dtype])


def _drawn(data: DataModel, streams: Streams, dtype: torch.dtype) -> Sample:
    before = torch.get_rng_state()
    sample = data.sample(streams, "train", POINTS, dtype)
    own = torch.equal(torch.get_rng_state(), before)
    _expect(own, f"`{type(data).__name__}.sample` draws from torch's own generator: {STREAMS}")
    return sample


def _numbers(data: DataModel, sample: Sample, run: int) -> Params:
    """Return the numbers that a data model declares for a run."""
    numbers = {"least robust error": data.least_robust_error(2, 0.5, "token")}
    if data.signal_norm() is not None:
        numbers["signal norm"] = data.signal_norm()
    values = {
        name: torch.as_tensor(value, dtype=torch.float64).reshape(-1)
        for name, value in numbers.items()
    }
    values = {name: value[run if len(value) > 1 else 0] for name, value in values.items()}
    return values | {"chance of a flip": data.flip_chance(sample)[run]}


def _check_sample(
    where: str, data: DataModel, sample: Sample, runs: int, dtype: torch.dtype
) -> None:
    _check(f"{where}: x", sample.x, (runs, POINTS, data.tokens, data.dim), dtype)
    _check(f"{where}: y", sample.y, (runs, POINTS), dtype)
    _check(f"{where}: clean_y", sample.clean_y, (runs, POINTS), dtype)
    for name, part in sample.latent.items():
        vectors = (part.shape[1], data.dim) if name in data.latent_vectors else part.shape[1:]
        _check(f"{where}: latent part `{name}`", part, (runs, *vectors), part.dtype)


def _check_labels(where: str, data: DataModel, sample: Sample) -> None:
    classes = data.label_count()
    known = {-1.0, 1.0} if classes is None else set(range(classes))
    for name, labels in (("y", sample.y), ("clean_y", sample.clean_y)):
        given = set(labels.unique().tolist())
        _expect(given <= known, f"{where}: {name} holds {given}, expected are {known}")


def _check_flips(where: str, data: DataModel, sample: Sample) -> None:
    """Raise unless every flip is declared: others would not be measured."""
    declared = torch.as_tensor(data.flip_rate(), device=sample.y.device).reshape(-1, 1) > 0
    model = type(data).__name__
    flipped = (sample.y != sample.clean_y) & ~declared
    _expect(not flipped.any(), f"{where} flips labels, but `{model}.flip_rate` is 0: override it")
    chance = (data.flip_chance(sample) > 0) & ~declared
    _expect(
        not chance.any(), f"`{model}.flip_chance` is above 0, but `flip_rate` is 0: override it"
    )


def try_network(
    cells: Sequence[Network], data: DataModel, dtype: torch.dtype = torch.float64
) -> None:
    """Try the networks of several runs of one shape on this data, stacked and each alone."""
    network, streams = stacked(cells), Streams(RUNS[: len(cells)])
    where = type(network).__name__
    x = data.sample(streams, "train", POINTS, dtype).x
    drawn, again = (network.initial_params(data, streams, dtype) for _ in range(2))
    _check_params(f"`{where}.initial_params`", network, drawn, len(cells), dtype)
    _same(f"two draws of `{where}.initial_params` differ: {STREAMS}", again, drawn)
    params = moved(network, drawn, streams)
    before = _copied(params)
    output = _pass(network, params, x)
    classes = network.output_count()
    shape = (len(cells), POINTS) if classes is None else (len(cells), POINTS, classes)
    _check(f"`{where}.run`: outputs", output["outputs"], shape, dtype)
    _same(f"`{where}.run` changes its parameters", params, before)
    if dtype == torch.float64:
        by_autograd = _autograd(network, params, x)
        _same(f"`{where}.run` differs from autograd through `forward`", output, by_autograd, 1e-10)
    problem = f"`{where}` gives a run other values in a batch than alone: {PER_RUN}"
    for run, cell in enumerate(cells):
        lone_streams = Streams([RUNS[run]])
        alone = moved(cell, cell.initial_params(data, lone_streams, dtype), lone_streams)
        alone |= _pass(cell, alone, x[run : run + 1])
        _same(problem, _run_of(params | output, run), _run_of(alone, 0), TOLERANCE[dtype])


def _check_params(
    where: str, network: Network, params: Params, runs: int, dtype: torch.dtype
) -> None:
    for name, part in params.items():
        _expect(
            part.shape[:1] == (runs,),
            f"{where}: `{name}` has shape {list(part.shape)}, expected is [{runs}, ...]: "
            "the first axis is that of the runs, as in what `streams` draw",
        )
        kind = dtype if part.is_floating_point() else part.dtype
        _check(f"{where}: `{name}`", part, (runs, *part.shape[1:]), kind)
    trained = set(network.trained(params))
    _expect(
        bool(trained) and trained <= set(params),
        f"{where} gives {sorted(params)}, `trained` names {sorted(trained)}: one of the former at least is expected",
    )


def moved(network: Network, params: Params, streams: Streams) -> Params:
    """Return parameters away from their start, where outputs and gradients may vanish."""
    trained = network.trained(params)
    return {
        name: part + _direction(streams(f"tryout/{name}"), part) if name in trained else part
        for name, part in params.items()
    }


def _direction(stream: Stream, part: Tensor) -> Tensor:
    """Return a random direction, of length about 1 in every run."""
    return stream.normal(*part.shape[1:], dtype=part.dtype) / part[0].numel() ** 0.5


def _pass(network: Network, params: Params, x: Tensor) -> Params:
    """Return the outputs of one pass and its gradients for some weights on them."""
    forward_pass = network.run(params, x)
    c = _weights(forward_pass.outputs)
    gradients = {"inputs": forward_pass.inputs_gradient(c), **forward_pass.params_gradient(c)}
    return {"outputs": forward_pass.outputs} | _gradients(gradients)


def _autograd(network: Network, params: Params, x: Tensor) -> Params:
    """Return the same by autograd through `forward`, times the factors that the network declares."""
    leaves = {"inputs": x, **{name: params[name] for name in network.trained(params)}}
    leaves = {name: part.clone().requires_grad_() for name, part in leaves.items()}
    with torch.enable_grad():
        outputs = network.forward(params | leaves, leaves["inputs"])
    slopes = torch.autograd.grad(
        outputs, list(leaves.values()), _weights(outputs), materialize_grads=True
    )
    gradients = dict(zip(leaves, slopes, strict=True))
    if isinstance(network, ScaledGradients):
        for name, scale in network.gradient_scale(params).items():
            gradients[name] = gradients[name] * scale
    return {"outputs": outputs.detach()} | _gradients(gradients)


def _gradients(by_name: Params) -> Params:
    return {f"gradient of {name}": part for name, part in by_name.items()}


def _weights(outputs: Tensor) -> Tensor:
    """Return weights on the outputs, the same in every run."""
    one_run = torch.linspace(-1, 2, outputs[0].numel(), dtype=outputs.dtype)
    return one_run.reshape(outputs[0].shape).expand_as(outputs)


def try_attack(
    cells: Sequence[Attack], network: Network, data: DataModel, dtype: torch.dtype = torch.float64
) -> None:
    """Try the attacks of several runs of one shape on this network and data, stacked and each alone."""
    attack, target = stacked(cells), _target(network, data, len(cells), dtype)
    where = f"`{type(attack).__name__}.perturb`"
    before = _copied(_tensors(target))
    points = _attacked(attack, target)
    _check_points(where, attack, target, points)
    _same(f"{where} changes its target", _tensors(target), before)
    again = _attacked(attack, target)
    _same(f"two calls of {where} differ: {STREAMS}", {"points": again}, {"points": points})
    problem = f"{where} gives a run other points in a batch than alone: {PER_RUN}"
    tolerance = 1000 * TOLERANCE[dtype]  # rounding grows in many steps
    for run, cell in enumerate(cells):
        alone = _attacked(cell, _lone(target, run))
        _same(problem, {"points": points[run]}, {"points": alone[0]}, tolerance)


def _target(network: Network, data: DataModel, runs: int, dtype: torch.dtype) -> Target:
    streams = Streams(RUNS[:runs])
    params = moved(network, network.initial_params(data, streams, dtype), streams)
    return Target(network, params, data, data.sample(streams, "train", POINTS, dtype), streams)


def _lone(target: Target, run: int) -> Target:
    """Return one run of a target."""
    keep = torch.tensor([run])
    params = {name: part[keep] for name, part in target.params.items()}
    streams = Streams([target.streams.runs[run]])
    return Target(target.network, params, target.data, target.sample.select(keep), streams)


def _tensors(target: Target) -> Params:
    return _parts(target.sample) | target.params


def _attacked(attack: Attack, target: Target) -> Tensor:
    before = torch.get_rng_state()
    points = attack.perturb(target)
    own = torch.equal(torch.get_rng_state(), before)
    _expect(own, f"`{type(attack).__name__}.perturb` draws from torch's own generator: {STREAMS}")
    return points


def _check_points(where: str, attack: Attack, target: Target, points: Tensor) -> None:
    """Raise unless shape and type are right and points lie in one of the balls that the attack declares."""
    sets = max(1, points.shape[1] // POINTS)
    x = torch.cat([target.x] * sets, dim=1)
    _check(f"{where}: points", points, tuple(x.shape), x.dtype)
    if threat := attack.threat():
        slack = 1 + torch.finfo(x.dtype).eps ** 0.5
        inside = [
            (ball.norm(points - x) <= slack * ball.radii(target.data, x)).flatten(2).all(2)
            for ball in threat.each()
        ]
        _expect(
            bool(torch.stack(inside).any(0).all()),
            f"{where} leaves the ball that `threat` declares",
        )


def stacked(cells: Sequence[Any]) -> Any:
    """Return the component of many runs, as the engine makes it."""
    return axes.stack(cells, lambda numbers: torch.tensor(numbers, dtype=torch.float64))


def _parts(sample: Sample) -> Params:
    latent = {f"latent part {name}": part for name, part in sample.latent.items()}
    return {"x": sample.x, "y": sample.y, "clean_y": sample.clean_y, **latent}


def _run_of(parts: Params, run: int) -> Params:
    return {name: part[run] for name, part in parts.items()}


def _copied(parts: Params) -> Params:
    return {name: part.clone() for name, part in parts.items()}


def _check(what: str, part: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise if a tensor has another shape or type, or numbers that are not finite."""
    given, expected = f"{list(part.shape)} of {part.dtype}", f"{list(shape)} of {dtype}"
    _expect(given == expected, f"{what} has shape {given}, expected is {expected}")
    _expect(bool(part.isfinite().all()), f"{what} is not finite")


def _same(problem: str, given: Params, expected: Params, tolerance: float = 0.0) -> None:
    """Raise if tensors differ by more than this share of the largest number expected."""
    _expect(
        set(given) == set(expected), f"{problem} ({sorted(given)}, expected {sorted(expected)})"
    )
    for name, part in expected.items():
        shapes = f"`{name}` has shape {list(given[name].shape)}, expected is {list(part.shape)}"
        _expect(given[name].shape == part.shape, f"{problem} ({shapes})")
        away, size = _largest(given[name].double() - part.double()), _largest(part.double())
        _expect(
            away <= tolerance * size, f"{problem} (`{name}` by {away:.2g}; its size is {size:.2g})"
        )


def _largest(part: Tensor) -> float:
    return float(part.abs().max()) if part.numel() else 0.0


def _expect(condition: bool, problem: str) -> None:
    if not condition:
        raise _Refused(problem)
