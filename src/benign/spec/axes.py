"""Fields that may become axes of a grid.

A field declared `PerRun[...]` or `Shape[...]` takes one value or a list of values. A list is an
axis: the grid of an experiment is the product of its axes. The two marks differ in what the
compute core does with the values: `PerRun` values of many runs are stacked into one tensor [runs];
a `Shape` value decides tensor sizes, so runs are grouped by it. `OneOf` marks a component, of
which a list is an axis of labels.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeAlias, TypeVar, overload

import numpy as np
from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

T = TypeVar("T")
Path: TypeAlias = tuple[str, ...]

MAX_CELLS = 1_000_000


@dataclass(frozen=True)
class Axis:
    """The values of one field over the grid; axes of the same `group` move together."""

    values: tuple
    group: str | None = None

    def __len__(self) -> int:
        return len(self.values)


def zipped(group: str, values: Sequence) -> Axis:
    """An axis that moves together with every other axis of the same group.

    >>> zipped("size", [2, 4])
    Axis(values=(2, 4), group='size')
    """
    return Axis(tuple(values), group)


def linspace(low: float, high: float, count: int) -> list[float]:
    """Evenly spaced axis values, rounded to six digits so that every machine writes the same numbers.

    >>> linspace(1, 2, 4)
    [1.0, 1.33333, 1.66667, 2.0]
    """
    return [_six_digits(value) for value in np.linspace(low, high, count)]


def logspace(low: float, high: float, count: int) -> list[float]:
    """Axis values evenly spaced in the logarithm, rounded to six digits.

    >>> logspace(0.16, 16, 3)
    [0.16, 1.6, 16.0]
    """
    return [_six_digits(value) for value in np.geomspace(low, high, count)]


SPACED = {"linspace": linspace, "logspace": logspace}
"""what a file may write in place of values, `{logspace: [0.1, 10, 6]}`"""
MOST_SPACED = 1000


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


@dataclass(frozen=True)
class Mark:
    """Makes a pydantic field accept a list as an axis, each element checked by the rule of one value."""

    role: Literal["run", "shape", "component"]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """One value, or an axis in any of the ways that `_validate` reads: what editors complete and check."""
        one = handler(schema)
        several = {"type": "array", "items": one, "minItems": 1}
        group = {"type": "string", "minLength": 1, "description": "axes of a group move together"}
        forms = [one, several, _form(zipped=group, values=several)]
        if self.role != "component":
            numbers = {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}
            told = {**numbers, "description": "lowest, highest, how many"}
            forms += [_form(**{name: told}) for name in SPACED]
        return {"anyOf": forms}

    def _validate(self, value: Any, one: Any) -> Any:
        if isinstance(value, Mapping) and set(value) == {"zipped", "values"}:
            value = _read_zipped(value["zipped"], value["values"])
        if self.role != "component" and isinstance(value, Mapping) and len(value) == 1:
            [(name, given)] = value.items()
            value = _read_spaced(name, given) if name in SPACED else value
        if isinstance(value, (list, tuple, range, np.ndarray)):
            value = Axis(tuple(value.tolist() if isinstance(value, np.ndarray) else value))
        if not isinstance(value, Axis):
            return self._single(value, one)
        if not value.values:
            raise PydanticCustomError(
                "axis",
                "the axis is empty: give at least one value, or a single value without brackets",
            )
        checked = tuple(self._element(index, each, one) for index, each in enumerate(value.values))
        if value.group is None and len(set(map(_written, checked))) < len(checked):
            raise PydanticCustomError("axis", "the axis repeats a value: give each value once")
        return Axis(checked, value.group)

    def _single(self, value: Any, one: Any) -> Any:
        try:
            return one(value)
        except ValidationError:
            if self.role != "component" and isinstance(value, str) and "," in value:
                told = {"form": f"[{value}]"}
                raise PydanticCustomError(
                    "axis", "several values are written {form}", told
                ) from None
            raise

    def _element(self, index: int, value: Any, one: Any) -> Any:
        if value is None and self.role != "component":
            raise PydanticCustomError("axis", "an axis cannot hold an empty value (null, None)")
        try:
            checked = one(value)
        except ValidationError as error:
            told = {"place": index + 1, "message": error.errors()[0]["msg"], "value": repr(value)}
            raise PydanticCustomError(
                "element", "value {place} of the axis: {message}, got {value}", told
            ) from None
        if isinstance(checked, BaseModel) and axes_of(checked):
            raise PydanticCustomError("axis", "a component inside a list cannot have axes itself")
        return checked


def _form(**properties: Any) -> dict[str, Any]:
    """The schema of an object with these properties, all of them and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _written(value: Any) -> str:
    """Equal for equal values of an axis; -0.0 is 0.0."""
    return repr(value + 0.0 if isinstance(value, float) else value)


def _read_zipped(group: Any, values: Any) -> Axis:
    if not (isinstance(group, str) and group and isinstance(values, list)):
        raise PydanticCustomError(
            "axis", "zipped axes are written {form}", {"form": "{zipped: name, values: [1, 2]}"}
        )
    return Axis(tuple(values), group)


def _read_spaced(name: str, given: Any) -> list[float]:
    """Values from `[lowest, highest, how many]`, not too many: a file may come from a stranger."""
    with suppress(TypeError, ValueError):
        low, high, count = given
        sound = max(abs(low), abs(high)) < 1e300 and 1 < count <= MOST_SPACED
        if sound and (name == "linspace" or min(low, high) > 0):
            return SPACED[name](low, high, count)
    told = {"form": f"{{{name}: [0.1, 10, 6]}}", "most": MOST_SPACED}
    raise PydanticCustomError(
        "axis", "is written {form}: lowest, highest, how many (2 to {most})", told
    )


if TYPE_CHECKING:

    class PerRun(Generic[T]):
        """What a type checker sees of a field that may be an axis: written as one value or several, read as one.

        In a batch of runs a number is a tensor [runs], which has the arithmetic of a number.
        """

        @overload
        def __get__(self, instance: None, owner: Any) -> "PerRun[T]": ...
        @overload
        def __get__(self, instance: object, owner: Any) -> T: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...
        def __set__(
            self,
            instance: object,
            value: "T | Sequence[T] | Axis | Mapping[str, Any] | np.ndarray",
        ) -> None: ...

    Shape: TypeAlias = PerRun[T]
    OneOf: TypeAlias = PerRun[T]
else:
    PerRun = Annotated[T, Mark("run")]
    Shape = Annotated[T, Mark("shape")]
    OneOf = Annotated[T, Mark("component")]


def default(value: Any) -> Any:
    """The default of a field that may be an axis: `snr: PerRun[float] = default(1.0)`.

    It returns its argument; a type checker would refuse the plain number.
    """
    return value


def role_of(spec: BaseModel, name: str) -> str | None:
    """The role of a field: "run", "shape", "component", or None for a field that cannot be an axis."""
    for item in type(spec).model_fields[name].metadata:
        if isinstance(item, Mark):
            return item.role
    return None


def walk(spec: BaseModel, path: Path = ()) -> Iterator[tuple[Path, str | None, Any]]:
    """Every leaf field of a specification, depth first, as (path, role, value)."""
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, BaseModel):
            yield from walk(value, (*path, name))
        else:
            yield (*path, name), role_of(spec, name), value


def settings(spec: BaseModel, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that may be an axis and is not its default, as (path, value); components whole, as plain data."""
    for name, declared in type(spec).model_fields.items():
        value, role = getattr(spec, name), role_of(spec, name)
        if value == declared.default:
            continue
        if role == "component":
            component: Any = value
            yield (*path, name), None if value is None else component.identity()
        elif isinstance(value, BaseModel):
            yield from settings(value, (*path, name))
        elif role:
            yield (*path, name), value


def axes_of(spec: BaseModel) -> dict[Path, Axis]:
    return {path: value for path, _, value in walk(spec) if isinstance(value, Axis)}


def replace(spec: BaseModel, changes: Mapping[Path, Any]) -> Any:
    """A copy with some leaf fields replaced, without validating them again."""
    here: dict[str, Any] = {}
    deeper: dict[str, dict[Path, Any]] = {}
    for path, value in changes.items():
        if len(path) == 1:
            here[path[0]] = value
        else:
            deeper.setdefault(path[0], {})[path[1:]] = value
    for name, inner in deeper.items():
        here[name] = replace(getattr(spec, name), inner)
    return spec.model_copy(update=here)


@dataclass(frozen=True)
class Dimension:
    """One dimension of the grid: its name, its coordinate values, and the fields it sets."""

    name: str
    values: tuple
    fields: dict[Path, tuple] = field(hash=False)

    def at(self, index: int) -> dict[Path, Any]:
        return {path: values[index] for path, values in self.fields.items()}


def dimensions(spec: BaseModel) -> list[Dimension]:
    """The dimensions of the grid, in the order of the fields; zipped ones count 0, 1, ...

    A dimension is named by its field, by the dotted path where two fields collide, or by the group
    of a zipped axis.
    """
    axes = axes_of(spec)
    last_names = [path[-1] for path, axis in axes.items() if axis.group is None]
    dims: dict[str, Dimension] = {}
    for path, axis in axes.items():
        unique = last_names.count(path[-1]) == 1
        name = axis.group or (path[-1] if unique else ".".join(path))
        if axis.group in last_names:
            raise ValueError(f"the group `{name}` has the name of an axis: give it another name")
        if name not in dims:
            values = tuple(range(len(axis))) if axis.group else coordinates(axis.values)
            dims[name] = Dimension(name, values, {path: axis.values})
            continue
        if len(axis) != len(dims[name].values):
            raise ValueError(
                f"the zipped axes of group `{name}` must have equal lengths, "
                f"got {len(dims[name].values)} and {len(axis)} (`{'.'.join(path)}`)"
            )
        known = dims[name]
        dims[name] = Dimension(name, known.values, {**known.fields, path: axis.values})
    return list(dims.values())


def check_rows(dims: Sequence[Dimension]) -> None:
    """Refuse a zipped group with two rows of the same values. For a whole specification: fields of one of its parts
    may repeat where those of another differ."""
    for dim in dims:
        seen: dict[tuple[str, ...], int] = {}
        for row in range(len(dim.values)):
            first = seen.setdefault(tuple(map(_written, dim.at(row).values())), row)
            if first != row:
                raise ValueError(
                    f"rows {first} and {row} of the zipped group `{dim.name}` are the same: give each row once"
                )


def coordinates(values: tuple) -> tuple:
    """Axis values as coordinates: numbers and words as they are, components by a label, no component as `none`."""
    return tuple(_label(value) for value in values)


def _label(value: Any) -> Any:
    if isinstance(value, BaseModel):
        component: Any = value
        return component.label()
    return "none" if value is None else value


def cells(spec: BaseModel) -> Iterator[tuple[dict[str, Any], Any]]:
    """Every cell of the grid as (coordinates by dimension name, specification without axes)."""
    dims = dimensions(spec)
    count = math.prod(len(dim.values) for dim in dims)
    if count > MAX_CELLS:
        raise ValueError(f"the grid has {count:,} cells, more than {MAX_CELLS:,}: shorten an axis")
    for index in itertools.product(*(range(len(dim.values)) for dim in dims)):
        changes: dict[Path, Any] = {}
        for dim, i in zip(dims, index, strict=True):
            changes |= dim.at(i)
        where = {dim.name: dim.values[i] for dim, i in zip(dims, index, strict=True)}
        yield where, replace(spec, changes)


def stack(cells: Sequence[Any], tensor: Any) -> Any:
    """One specification for many runs of the same shape: `PerRun` numbers become tensors [runs].

    `tensor` turns a list of numbers into a tensor, on the device where the runs are computed.
    """
    leaves = [{path: value for path, role, value in walk(cell) if role == "run"} for cell in cells]
    changes = {
        path: tensor([cell[path] for cell in leaves])
        for path, value in leaves[0].items()
        if value is not None
    }
    return replace(cells[0], changes)


def select(stacked: Any, keep: Any) -> Any:
    """The stacked specification of some of its runs."""
    changes = {
        path: value[keep]
        for path, role, value in walk(stacked)
        if role == "run" and value is not None
    }
    return replace(stacked, changes)
