"""Digests of the user's own code: components and metrics that are defined outside the package, and image sets.

`NUMERICS` says when results of the package's code may move. Of other code a record has digests of the source, so that
results of an earlier version are not mistaken for results of today's. Comments and layout do not count, nor does the
text of a metric's definition. What a class or a function calls elsewhere is not part of its digest. Code typed at a
prompt has no digest: Python does not have its source. Image sets count if their files are on this machine.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from types import FunctionType
from typing import Any

from pydantic import BaseModel

from benign.data.model import DataModel
from benign.spec.axes import Axis
from benign.spec.base import digest, snake_case
from benign.spec.registry import Component
from benign.training.metrics import METRICS, Declared
from benign.training.setup import Setup

Code = dict[str, str | None]
"""digests by name, such as `network mine`, `metric my_margin` or `images mnist`; None if the source is not known"""
PROBE = "probe"
"""how records made before version 0.2 named metrics; their digests included the definitions"""
DECORATORS = {"metric", "running_metric", "point_metric", "evaluation_metric"}


def own_code(cells: Iterable[Setup]) -> Code:
    """Return the digests of the user's own components and metrics that take part in these cells, and of image sets."""
    digests: Code = {}
    metrics = [each for each in METRICS.values() if _own_functions(each)]
    for cell in cells:
        if fingerprint := cell.data.fingerprint():
            digests[f"{cell.data.kind} {cell.data.file_set()}"] = fingerprint
        for part in _components(cell):
            digests |= _component_digest(type(part))
        for metric in metrics:
            if metric.variables(cell):
                digests[f"metric {metric.name}"] = _metric_digest(_own_functions(metric))
    return digests


def changed(recorded: Mapping[str, str | None]) -> frozenset[str]:
    """Return the names that are defined otherwise today; a name that is undefined or has no source is left out."""
    if not recorded:
        return frozenset()
    today: Code = {}
    for choices in Component.families.values():
        for component in choices.values():
            today |= _component_digest(component)
    for metric in METRICS.values():
        if functions := _own_functions(metric):
            today[f"metric {metric.name}"] = _metric_digest(functions)
            today[f"{PROBE} {metric.name}"] = _digest(functions)
    for name in recorded:
        kind, _, files = name.partition(" ")
        model = Component.families[DataModel].get(kind)
        if model and issubclass(model, DataModel):
            today[name] = model.fingerprint_of(files)
    return frozenset(
        name for name, code in recorded.items() if code and today.get(name) not in (None, code)
    )


def _components(value: Any) -> Iterator[Component]:
    """Yield every component inside a specification, itself included."""
    if isinstance(value, Component):
        yield value
    if isinstance(value, BaseModel):
        value = [each for _, each in value]
    elif isinstance(value, Axis):
        value = value.values
    if isinstance(value, list | tuple):
        for each in value:
            yield from _components(each)


def _component_digest(component: type[Component]) -> Code:
    """Return the digest of a class and its bases, up to the first of the package; nothing for the package's own."""
    classes = tuple(takewhile(_is_own, component.__mro__))
    name = f"{snake_case(component.family().__name__)} {component.kind}"
    return {name: _digest(classes)} if classes else {}


def _own_functions(metric: Declared) -> tuple[FunctionType, ...]:
    functions = (metric.function, getattr(metric, "finish", None))
    return tuple(each for each in functions if isinstance(each, FunctionType) and _is_own(each))


def _is_own(thing: Any) -> bool:
    return thing.__module__.partition(".")[0] != "benign"


@cache  # the imported code counts, not a file that was edited since
def _digest(things: tuple[Any, ...]) -> str | None:
    try:
        return digest([_source(thing) for thing in things])
    except (OSError, TypeError):
        return None


@cache
def _metric_digest(functions: tuple[FunctionType, ...]) -> str | None:
    try:
        return digest([_computation(function) for function in functions])
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


def _computation(function: FunctionType) -> str:
    """Return the source of a metric's function without its declaration: the decorator and the docstring."""
    lines, _ = inspect.findsource(function)
    first = function.__code__.co_firstlineno
    kinds = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    try:
        nodes = list(ast.walk(ast.parse("".join(lines))))
    except SyntaxError:
        return _source(function)
    texts = []
    for node in nodes:
        if isinstance(node, kinds) and _first_line(node) == first:
            if isinstance(node, ast.FunctionDef):
                _drop_declaration(node)
            texts.append(ast.unparse(node))
    return "\n".join(texts) or _source(function)


def _first_line(node: ast.FunctionDef | ast.Lambda) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def _drop_declaration(node: ast.FunctionDef) -> None:
    node.decorator_list = [each for each in node.decorator_list if not _declares_metric(each)]
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]


def _declares_metric(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] in DECORATORS
