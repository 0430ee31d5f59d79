"""The base class of every specification: validated once, immutable, the same in Python and in YAML."""

import ast
import difflib
import hashlib
import inspect
import json
import re
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from benign.spec.axes import Axis, Mark, axes_of, cells


class SpecError(ValueError):
    """The problems of a specification, one line each, with field, value and remedy.

    >>> import benign as bo
    >>> bo.GradientDescent(rate=-1, max_step=50)
    Traceback (most recent call last):
    benign.spec.base.SpecError: rate: must be greater than 0, got -1
    max_step: is not a field here: did you mean `max_steps`?
    """

    def __init__(self, problems: list[tuple[str, str]]):
        self.problems = problems
        super().__init__(
            "\n".join(f"{path}: {message}" if path else message for path, message in problems)
        )


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "Input should be a number, not true or false")
    return value


PLAIN = (
    "must be plain data (number, word, list, component), so that a file can hold it: "
    'name what it stands for, `Literal["relu", "tanh"]`, and choose where it is used'
)
LARGEST = 10**30  # beyond every theorem, and still a float
Count = Annotated[int, Field(ge=1, le=LARGEST), BeforeValidator(_no_bool)]
Whole = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(_no_bool)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(_no_bool)]
NonNegative = Annotated[float, Field(ge=0), BeforeValidator(_no_bool)]
FlipRate = Annotated[float, Field(ge=0, lt=0.5), BeforeValidator(_no_bool)]


class Spec(BaseModel):
    """A frozen, validated part of an experiment; unknown fields are refused.

    A subclass declares fields, by types of this module, `PerRun`, `Shape` or `OneOf`, and rules across fields in
    `check`. Every problem is reported at once, as SpecError.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        arbitrary_types_allowed=True,  # so that `_check_plain` refuses them, by the name of their field
    )

    if not TYPE_CHECKING:

        def __init__(self, /, *values, **fields):
            if values:
                names = ", ".join(f"{name}=..." for name in type(self).model_fields)
                raise SpecError(
                    [("", f"give every field by its name: {type(self).__name__}({names})")]
                )
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise SpecError(_problems(error, type(self))) from None
            except TypeError as error:
                if problems := _bad_names(fields):
                    raise SpecError(problems) from error
                raise

    @model_validator(mode="before")
    @classmethod
    def _check_lists(cls, value: Any) -> Any:
        """Raise SpecError if a field that cannot be an axis has a list; the message names the fields that can."""
        if not isinstance(value, Mapping):
            return value
        marked = [name for name, field in cls.model_fields.items() if _marked(field)]
        lists = [
            name
            for name, field in cls.model_fields.items()
            if isinstance(value.get(name), (list, tuple, Axis))
            and name not in marked
            and not _holds_several(field.annotation)
        ]
        if lists:
            can = f"fields here that can: {', '.join(marked) or 'none'}"
            if kind := getattr(cls, "kind", ""):  # a component: several of them may be an axis
                can += f"; or list the whole: [{{kind: {kind}, ...}}, {{kind: {kind}, ...}}]"
            raise SpecError(
                [
                    (name, f"cannot be an axis, got {shortened(value[name])}; {can}")
                    for name in lists
                ]
            )
        return value

    @model_validator(mode="after")
    def _check_cells(self) -> "Spec":
        _check_plain(self)
        if axes_of(self):
            for where, cell in cells(self):
                try:
                    cell.check()
                except ValueError as error:
                    at = ", ".join(f"{name}={value}" for name, value in where.items())
                    raise ValueError(f"{error} (at {at})") from None
        else:
            self.check()
        return self

    def check(self) -> None:
        """Raise ValueError if fields do not fit together. Called on every cell, where each field holds one value."""

    def label(self) -> str:
        """Return a short name, for an axis of components: the fields that differ from their defaults."""
        fields = type(self).model_fields
        settings = [
            f"{name}={_range(getattr(self, name))}"
            for name in fields
            if getattr(self, name) != fields[name].default
        ]
        name = getattr(self, "kind", "") or snake_case(type(self).__name__)
        return f"{name}({', '.join(settings)})"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain numbers, words, lists and dictionaries, as in a YAML or JSON file."""
        return {name: _plain(getattr(self, name)) for name in type(self).model_fields}

    def identity(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as plain data, by which runs are identified.

        A component may thus get a new field without a change of the identity of earlier runs.
        """
        fields = type(self).model_fields
        values = {name: getattr(self, name) for name in fields}
        return {
            name: value.identity() if isinstance(value, Spec) else _plain(value)
            for name, value in values.items()
            if value != fields[name].default
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Any:
        try:
            return cls.model_validate(dict(fields))
        except ValidationError as error:
            raise SpecError(_problems(error, cls)) from None
        except TypeError as error:
            if problems := _bad_names(fields):
                raise SpecError(problems) from error
            raise


@cache
def descriptions(spec: type[Spec]) -> dict[str, str]:
    """Return the docstring of every field that has one.

    They are read from the source here: while classes are made (`use_attribute_docstrings`) that takes 0.2 s of every
    start of a program, which needs few of them.
    """
    found: dict[str, str] = {}
    for owner in reversed(spec.__mro__):
        if issubclass(owner, Spec):
            found |= _docstrings(owner)
    given = {name: info.description for name, info in spec.model_fields.items()}
    return {name: text for name in given if (text := given[name] or found.get(name))}


def _docstrings(owner: type) -> dict[str, str]:
    """Return the docstring after every field in the source of a class; nothing if the source is not there."""
    try:
        [node] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    assert isinstance(node, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _bad_names(fields: Any, path: str = "") -> list[tuple[str, str]]:
    """Return a problem for every name of a field that is no word; for these, pydantic raises TypeError."""
    if isinstance(fields, (list, tuple)):
        return [problem for part in fields for problem in _bad_names(part, path)]
    problems = []
    for name, value in fields.items() if isinstance(fields, Mapping) else ():
        if not isinstance(name, str):
            problems.append((path, f"the name of a field must be a word, got {shortened(name)}"))
        problems += _bad_names(value, f"{path}.{name}" if path else str(name))
    return problems


def _check_plain(spec: Spec) -> None:
    """Raise SpecError if a field has a value that no file could hold.

    Fields that may be axes are checked by their types, and are tensors in a batch of runs.
    """
    fields = [name for name, field in type(spec).model_fields.items() if not _marked(field)]
    values = {name: getattr(spec, name) for name in fields}
    wrong = [(name, value) for name, value in values.items() if not _is_plain(value)]
    if wrong:
        raise SpecError([(name, f"{PLAIN}, got {shortened(value)}") for name, value in wrong])


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, (bool, int, float, str, Spec))


def _marked(field: FieldInfo) -> bool:
    return any(isinstance(item, Mark) for item in field.metadata)


def _holds_several(annotation: Any) -> bool:
    """Return whether a field of this type takes a list as one value."""
    origin = get_origin(annotation) or annotation
    several = origin is Any or (isinstance(origin, type) and issubclass(origin, (list, tuple)))
    return several or any(_holds_several(part) for part in get_args(annotation))


def _range(value: Any) -> str:
    """Return a value as text, or the ends of an axis."""
    if not isinstance(value, Axis):
        return str(value)
    first, last = value.values[0], value.values[-1]
    return f"{first:g} to {last:g}" if isinstance(first, float) else f"{first} to {last}"


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.as_dict()
    if isinstance(value, Axis):
        values = [_plain(part) for part in value.values]
        return {"zipped": value.group, "values": values} if value.group else values
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value


def canonical(value: Any) -> str:
    """Return plain data as JSON in a canonical form, for hashing and comparing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Return 32 hex digits that identify plain data."""
    return text_digest(canonical(value))


def text_digest(text: str) -> str:
    """Return the digest of plain data in canonical form."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def snake_case(name: str) -> str:
    """Return a name in snake case: `signal_noise` of `SignalNoise`, `patch_cnn` of `PatchCNN`, `pgd` of `PGD`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _problems(error: ValidationError, model: type[BaseModel]) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, SpecError):
            problems += [
                (".".join(filter(None, (path, deeper))), text) for deeper, text in inner.problems
            ]
        elif item["type"] == "extra_forbidden":
            problems.append((path, _unknown_field(str(item["loc"][-1]), model, item["loc"])))
        elif item["type"] == "missing":
            problems.append((path, "is required"))
        elif item["type"] == "value_error":
            problems.append((path, str(inner)))
        elif item["type"] in ("kind", "element"):
            problems.append((path, _reword(item["msg"])))
        elif item["type"] in ("is_instance_of", "callable_type"):
            problems.append((path, f"{PLAIN}; its type is not plain"))
        else:
            problems.append((path, f"{_reword(item['msg'])}, got {shortened(item['input'])}"))
    return problems


def _reword(message: str) -> str:
    message = re.sub(", unable to parse string as an? (number|integer)", "", message)
    return message.replace("Input should be", "must be")


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown_field(name: str, model: type[BaseModel], path: tuple) -> str:
    known = list(model.model_fields) if len(path) == 1 else []
    close = difflib.get_close_matches(name, known, 1)
    hint = (
        f": did you mean `{close[0]}`?"
        if close
        else (f"; fields: {', '.join(known)}" if known else "")
    )
    return f"is not a field here{hint}"
