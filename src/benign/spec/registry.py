"""The registry of components: data models, networks, attacks and other parts that a file names by their `kind`.

A component registers itself by being defined: its `kind` in a file is its class name in snake case. Components come
from Python code only, never from a file.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from benign.spec import plugins
from benign.spec.base import Spec, shortened, snake_case

Guarantee: TypeAlias = Literal[
    "recordable",
    "token_products",
    "carried_products",
    "own_class_gradient",
    "rotation_invariant",
    "ball_starts",
    "plain_update",
    "separate_points",
]
"""What a class promises about its methods, so that an exact shortcut may be used:

- `recordable`: no value decides which operations a pass of the network consists of, so that a GPU can record them
- `token_products`: the network is a `SeesProducts` (benign.networks.products), so that attacks ascend on products
- `carried_products`: the network is a `CarriesProducts`, so that training can carry its products
- `own_class_gradient`: the gradient of a point's own output needs the filters of its own class only
- `rotation_invariant`: the attack acts alike in every orthonormal basis if its ball does (benign.reduction)
- `ball_starts`: all random starts of the attack are drawn by `Target.uniform` in its field `ball`, as those of R^d
- `plain_update`: every step of the training is one update w <- w - rate_at(step) g, with the gradient g on all points
- `separate_points`: what the network returns at a point, or the attack makes of it, depends on that point alone, by the
  same operations whatever the points are (benign.training.slots)
"""


class Component(Spec):
    """A registered part. A direct subclass is a family (data models, networks ...); its subclasses are the choices."""

    families: ClassVar[dict[type, dict[str, type]]] = {}
    unfinished: ClassVar[dict[str, type]] = {}
    """classes of a user's own that lack methods, by the kind they would have"""
    kind: ClassVar[str] = ""
    default_kind: ClassVar[str | None] = None
    """of a family: the kind of a part for which a file names none"""
    guaranteed: ClassVar[frozenset[str]] = frozenset()
    """set by `@guarantees`"""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if Component in cls.__bases__:
            Component.families[cls] = {}
            return
        if inspect.isabstract(cls):
            if not cls.__module__.startswith("benign."):  # those of the package are base classes
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
            raise PydanticCustomError(
                "kind",
                "must be written {form} with its fields, got {got}",
                {"form": f"{{kind: {value}, ...}}", "got": repr(value)},
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
        """Return the error for a kind that is not registered."""
        unfinished = Component.unfinished.get(kind) if isinstance(kind, str) else None
        if unfinished and issubclass(unfinished, cls):
            place = f"{unfinished.__module__}.{unfinished.__qualname__}"
            lacking = ", ".join(f"`{name}`" for name in sorted(unfinished.__abstractmethods__))
            return PydanticCustomError(
                "kind",
                "`{place}` lacks {lacking}: define it",
                {"place": place, "lacking": lacking},
            )
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


AnyComponent = TypeVar("AnyComponent", bound=Component)


def guarantees(*names: Guarantee) -> Callable[[type[AnyComponent]], type[AnyComponent]]:
    """Return a decorator by which a class of components declares its guarantees.

    A subclass does not inherit them, because it may override any method: it repeats the decorator if they still hold.

    >>> import benign as bo
    >>> class TwiceLinear(bo.Linear):
    ...     def forward(self, params, x):
    ...         return 2 * super().forward(params, x)
    >>> [has_guarantee(network, "recordable") for network in (bo.Linear(), TwiceLinear())]
    [True, False]
    >>> del bo.Linear.choices()["twice_linear"]  # this example is a test, which leaves no trace
    """

    def declare(component: type[AnyComponent]) -> type[AnyComponent]:
        component.guaranteed = frozenset(names)
        return component

    return declare


def has_guarantee(component: Component | type[Component], name: Guarantee) -> bool:
    """Return whether the component's own class, not only a base class, declares the guarantee."""
    own_class = component if isinstance(component, type) else type(component)
    return name in vars(own_class).get("guaranteed", ())


def check_unique(name: str, new: Any, known: Any) -> None:
    """Raise ValueError if another definition has this registered name.

    The same definition again, as in a notebook cell, may replace the first.
    """
    places = [f"{defined.__module__}.{defined.__qualname__}" for defined in (new, known)]
    if places[0] != places[1]:
        raise ValueError(f"`{name}` is the name of {places[1]}: rename {places[0]}")


def load_components(package: ModuleType) -> None:
    """Import every module of a package, which registers its components: a new file needs no other edit."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
