"""Fields that may become axes of a grid.

A field declared `PerRun[...]`, `Shape[...]` or `OneOf[...]` takes one value or a list of values. A
list is an axis: the grid of an experiment is the product of its axes, and a cell of the grid is a
specification without axes. The three marks say how the values of many runs are batched:

- `PerRun`: numbers, stacked into one tensor [runs]
- `Shape`: values that decide tensor sizes; runs are grouped by them
- `OneOf`: components; runs are grouped by them, and the axis has labels

`dimensions` and `cells` make the grid, `stack` makes one specification of many cells for the compute
core, and `replace` changes fields by their paths.
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
    """Return an axis that moves together with every other axis of the same group.

    >>> zipped("size", [2, 4])
    Axis(values=(2, 4), group='size')
    """
    return Axis(tuple(values), group)


def linspace(low: float, high: float, count: int) -> list[float]:
    """Return evenly spaced axis values, rounded to six digits so that every machine writes the same numbers.

    >>> linspace(1, 2, 4)
    [1.0, 1.33333, 1.66667, 2.0]
    """
    return [_six_digits(value) for value in np.linspace(low, high, count)]


def logspace(low: float, high: float, count: int) -> list[float]:
    """Return axis values evenly spaced in the logarithm, rounded to six digits.

    >>> logspace(0.16, 16, 3)
    [0.16, 1.6, 16.0]
    """
    return [_six_digits(value) for value in np.geomspace(low, high, count)]


SPACED = {"linspace": linspace, "logspace": logspace}
"""forms that a file may have in place of values, `{logspace: [0.1, 10, 6]}`"""
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
        """Return the schema of one value or of an axis, in any form that `_validate` reads, for editors."""
        one = handler(schema)
        several = {"type": "array", "items": one, "minItems": 1}
        group = {"type": "string", "minLength": 1, "description": "axes of a group move together"}
        forms = [one, several, _form(zipped=group, values=several)]
        if self.role != "component":
            numbers = {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}
            numbers["description"] = "lowest, highest, how many"
            forms += [_form(**{name: numbers}) for name in SPACED]
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
        checked = tuple(self._element(index, part, one) for index, part in enumerate(value.values))
        if value.group is None and len(set(map(_comparable, checked))) < len(checked):
            raise PydanticCustomError("axis", "the axis repeats a value: give each value once")
        return Axis(checked, value.group)

    def _single(self, value: Any, one: Any) -> Any:
        try:
            return one(value)
        except ValidationError:
            if self.role != "component" and isinstance(value, str) and "," in value:
                raise PydanticCustomError(
                    "axis", "several values are written {form}", {"form": f"[{value}]"}
                ) from None
            raise

    def _element(self, index: int, value: Any, one: Any) -> Any:
        if value is None and self.role != "component":
            raise PydanticCustomError("axis", "an axis cannot hold an empty value (null, None)")
        try:
            checked = one(value)
        except ValidationError as error:
            raise PydanticCustomError(
                "element",
                "value {place} of the axis: {message}, got {value}",
                {"place": index + 1, "message": error.errors()[0]["msg"], "value": repr(value)},
            ) from None
        if isinstance(checked, BaseModel) and axes_of(checked):
            raise PydanticCustomError("axis", "a component inside a list cannot have axes itself")
        return checked


def _form(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _comparable(value: Any) -> str:
    """Return a text that is equal for equal values of an axis, also for -0.0 and 0.0."""
    return repr(value + 0.0 if isinstance(value, float) else value)


def _read_zipped(group: Any, values: Any) -> Axis:
    if not (isinstance(group, str) and group and isinstance(values, list)):
        raise PydanticCustomError(
            "axis", "zipped axes are written {form}", {"form": "{zipped: name, values: [1, 2]}"}
        )
    return Axis(tuple(values), group)


def _read_spaced(name: str, given: Any) -> list[float]:
    """Return the values of `[lowest, highest, how many]`, of limited number: a file may come from a stranger."""
    with suppress(TypeError, ValueError):
        low, high, count = given
        valid = max(abs(low), abs(high)) < 1e300 and 1 < count <= MOST_SPACED
        if valid and (name == "linspace" or min(low, high) > 0):
            return SPACED[name](low, high, count)
    raise PydanticCustomError(
        "axis",
        "is written {form}: lowest, highest, how many (2 to {most})",
        {"form": f"{{{name}: [0.1, 10, 6]}}", "most": MOST_SPACED},
    )


if TYPE_CHECKING:

    class PerRun(Generic[T]):
        """The type, for a type checker, of a field that may be an axis: set to one value or several, read as one value.

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
    """Return its argument, typed as default of a field that may be an axis: `snr: PerRun[float] = default(1.0)`.

    A type checker would refuse the plain number.
    """
    return value


def role_of(spec: BaseModel, name: str) -> str | None:
    """Return the role of a field, "run", "shape" or "component", or None if the field cannot be an axis."""
    for item in type(spec).model_fields[name].metadata:
        if isinstance(item, Mark):
            return item.role
    return None


def walk(spec: BaseModel, path: Path = ()) -> Iterator[tuple[Path, str | None, Any]]:
    """Yield every leaf field of a specification, depth first, as (path, role, value)."""
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, BaseModel):
            yield from walk(value, (*path, name))
        else:
            yield (*path, name), role_of(spec, name), value


def settings(spec: BaseModel, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value that may be an axis and is not its default, as (path, value); a component as plain data."""
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
    """Return a copy with some leaf fields replaced, without validating them again."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[Path, Any]] = {}
    for path, value in changes.items():
        if len(path) == 1:
            own[path[0]] = value
        else:
            inner.setdefault(path[0], {})[path[1:]] = value
    for name, inner_changes in inner.items():
        own[name] = replace(getattr(spec, name), inner_changes)
    return spec.model_copy(update=own)


@dataclass(frozen=True)
class Dimension:
    """One dimension of the grid: its name, its coordinate values, and the fields it sets."""

    name: str
    values: tuple
    fields: dict[Path, tuple] = field(hash=False)

    def at(self, index: int) -> dict[Path, Any]:
        return {path: values[index] for path, values in self.fields.items()}


def dimensions(spec: BaseModel) -> list[Dimension]:
    """Return the dimensions of the grid, in the order of the fields; the coordinates of a zipped group are 0, 1, ...

    A dimension is named by its field, by the dotted path if two fields have that name, or by the group
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
    """Raise ValueError if a zipped group has two rows of the same values.

    Only for a whole specification: the fields of one part may repeat while those of another part differ.
    """
    for dim in dims:
        first_rows: dict[tuple[str, ...], int] = {}
        for row in range(len(dim.values)):
            first = first_rows.setdefault(tuple(map(_comparable, dim.at(row).values())), row)
            if first != row:
                raise ValueError(
                    f"rows {first} and {row} of the zipped group `{dim.name}` are the same: give each row once"
                )


def coordinates(values: tuple) -> tuple:
    """Return axis values as coordinates: numbers and words unchanged, components by their labels, None as `none`."""
    return tuple(_label(value) for value in values)


def _label(value: Any) -> Any:
    if isinstance(value, BaseModel):
        component: Any = value
        return component.label()
    return "none" if value is None else value


def cells(spec: BaseModel) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield every cell of the grid as (coordinates by dimension name, specification without axes)."""
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
    """Return one specification for many runs of the same shape: `PerRun` numbers become tensors [runs].

    tensor: function from a list of numbers to a tensor, on the device where the runs are computed.
    """
    leaves = [{path: value for path, role, value in walk(cell) if role == "run"} for cell in cells]
    changes = {
        path: tensor([cell[path] for cell in leaves])
        for path, value in leaves[0].items()
        if value is not None
    }
    return replace(cells[0], changes)


def select(stacked: Any, keep: Any) -> Any:
    """Return the stacked specification of some of its runs; a number for all runs stays."""
    changes = {
        path: value[keep]
        for path, role, value in walk(stacked)
        if role == "run" and hasattr(value, "__getitem__")
    }
    return replace(stacked, changes)
