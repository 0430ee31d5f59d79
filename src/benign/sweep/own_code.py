"""Code of the user's own: components and probes that are defined outside the package.

`NUMERICS` tells when results of the package's code may move. Of other code a record keeps digests of its
source, so that results of an earlier version are not taken for results of today's. Comments and layout do not
count. What a class or a function calls elsewhere is not seen, nor is code typed at a prompt, whose source Python
does not have. Image sets are told apart likewise, as far as they are on this machine.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from typing import Any

from pydantic import BaseModel

from benign.data.model import DataModel
from benign.spec.axes import Axis
from benign.spec.base import digest, snake_case
from benign.spec.registry import Component
from benign.training.metrics import METRICS, RUNNING_METRICS, metrics_for, running_metrics_for
from benign.training.metrics.metric import Metric, RunningMetric
from benign.training.setup import Setup

Code = dict[str, str | None]
"""digests by name, such as `network mine`, `probe my_margin` or `images mnist`; None where the source is not known"""


def own_code(cells: Iterable[Setup]) -> Code:
    """The user's own components and probes that have a part in these cells, and the image sets."""
    found: Code = {}
    for cell in cells:
        if mark := cell.data.fingerprint():
            found[f"{cell.data.kind} {cell.data.file_set()}"] = mark
        for part in _components(cell):
            found |= _told(_name(type(part)), _classes(type(part)))
        for probe in [*metrics_for(cell), *running_metrics_for(cell)]:
            found |= _told(f"probe {probe.name}", _functions(probe))
    return found


def changed(recorded: Mapping[str, str | None]) -> frozenset[str]:
    """Which of these are defined otherwise today; what is not defined or has no source cannot be told."""
    if not recorded:
        return frozenset()
    today: Code = {}
    for choices in Component.families.values():
        for component in choices.values():
            today |= _told(_name(component), _classes(component))
    for probe in [*METRICS.values(), *RUNNING_METRICS.values()]:
        today |= _told(f"probe {probe.name}", _functions(probe))
    for name in recorded:
        kind, _, files = name.partition(" ")
        model = Component.families[DataModel].get(kind)
        if model and issubclass(model, DataModel):
            today[name] = model.fingerprint_of(files)
    return frozenset(
        name for name, code in recorded.items() if code and today.get(name) not in (None, code)
    )


def _components(value: Any) -> Iterator[Component]:
    """Every component inside a specification, itself included."""
    if isinstance(value, Component):
        yield value
    if isinstance(value, BaseModel):
        value = [each for _, each in value]
    elif isinstance(value, Axis):
        value = value.values
    if isinstance(value, list | tuple):
        for each in value:
            yield from _components(each)


def _name(component: type[Component]) -> str:
    return f"{snake_case(component.family().__name__)} {component.kind}"


def _classes(component: type) -> tuple[Any, ...]:
    """A class and its bases, up to the first of the package."""
    return tuple(takewhile(_is_own, component.__mro__))


def _functions(probe: Metric | RunningMetric) -> tuple[Any, ...]:
    parts = (probe.measure,) if isinstance(probe, Metric) else (probe.update, probe.finish)
    return tuple(each for each in parts if inspect.isfunction(each) and _is_own(each))


def _is_own(thing: Any) -> bool:
    return thing.__module__.partition(".")[0] != "benign"


def _told(name: str, things: tuple[Any, ...]) -> Code:
    return {name: _digest(things)} if things else {}


@cache  # what was imported counts, not what a file has become since
def _digest(things: tuple[Any, ...]) -> str | None:
    try:
        return digest([_source(thing) for thing in things])
    except (OSError, TypeError):
        return None


def _source(thing: Any) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        # In a notebook functions have a source and classes have none.
        methods = [each for each in vars(thing).values() if inspect.isfunction(each)]
        if not methods:
            raise
        return "\n".join(map(_source, methods))
    try:
        return ast.unparse(ast.parse(text))
    except SyntaxError:  # a lambda inside a call
        return text
