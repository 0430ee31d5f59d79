"""The registry of components: data models, networks, attacks and other parts that a file names by their `kind`.

A component registers itself by being defined: its `kind` in a file is its class name in snake case. Components come
from Python code only, never from a file.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from benign.spec import plugins
from benign.spec.base import Spec, shortened, snake_case


class Component(Spec):
    """A registered part. A direct subclass is a family (data models, networks ...); its subclasses are the choices."""

    families: ClassVar[dict[type, dict[str, type]]] = {}
    unfinished: ClassVar[dict[str, type]] = {}
    """classes of a user's own that lack methods, by what their kind would be"""
    kind: ClassVar[str] = ""
    default_kind: ClassVar[str | None] = None
    """of a family: what is meant, and not told, where a file names no kind"""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if Component in cls.__bases__:
            Component.families[cls] = {}
            return
        if inspect.isabstract(cls):
            if not cls.__module__.startswith("benign."):  # the package's are bases for others
                Component.unfinished[snake_case(cls.__name__)] = cls
            return
        cls.kind = vars(cls).get("kind") or snake_case(cls.__name__)
        if known := cls.choices().get(cls.kind):
            check_unique(cls.kind, cls, known)
        cls.choices()[cls.kind] = cls

    @classmethod
    def family(cls) -> type:
        return next(base for base in cls.__mro__ if base in Component.families)

    @classmethod
    def choices(cls) -> dict[str, type]:
        return Component.families[cls.family()]

    @model_validator(mode="wrap")
    @classmethod
    def _choose(cls, value: Any, build: Any) -> Any:
        if isinstance(value, str):
            told = {"form": f"{{kind: {value}, ...}}", "got": repr(value)}
            raise PydanticCustomError(
                "kind", "must be written {form} with its fields, got {got}", told
            )
        if not isinstance(value, Mapping):
            return build(value)
        fields = dict(value)
        kind = fields.pop("kind", cls.kind or cls.default_kind)
        if isinstance(kind, str) and kind not in cls.choices():
            plugins.load_installed()
        chosen = cls.choices().get(kind) if isinstance(kind, str) else None
        if chosen is None or not issubclass(chosen, cls):
            raise cls._unknown(kind)
        return build(fields) if chosen is cls else chosen.model_validate(fields)

    @classmethod
    def _unknown(cls, kind: Any) -> PydanticCustomError:
        """What to say of a kind that cannot be chosen."""
        unfinished = Component.unfinished.get(kind) if isinstance(kind, str) else None
        if unfinished and issubclass(unfinished, cls):
            lacking = ", ".join(f"`{name}`" for name in sorted(unfinished.__abstractmethods__))
            told = {
                "place": f"{unfinished.__module__}.{unfinished.__qualname__}",
                "lacking": lacking,
            }
            return PydanticCustomError("kind", "`{place}` lacks {lacking}: define it", told)
        return PydanticCustomError(
            "kind",
            "`kind` must be one of {known}, got {kind}; a class of your own: load its file first, "
            "benign.load(path) or benign --plugin PATH",
            {"known": ", ".join(sorted(cls.choices())), "kind": shortened(kind)},
        )

    def as_dict(self) -> dict[str, Any]:
        return self._kind() | super().as_dict()

    def identity(self) -> dict[str, Any]:
        return self._kind() | super().identity()

    def _kind(self) -> dict[str, Any]:
        return {} if self.kind == self.default_kind else {"kind": self.kind}


def check_unique(name: str, new: Any, known: Any) -> None:
    """Refuse a second definition of a registered name; the same one again (a notebook cell) may replace the first."""
    places = [f"{each.__module__}.{each.__qualname__}" for each in (new, known)]
    if places[0] != places[1]:
        raise ValueError(f"`{name}` is the name of {places[1]}: call {places[0]} otherwise")


def load_components(package: ModuleType) -> None:
    """Import every module of a package, so that what it defines is registered: a new file needs no other edit."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
