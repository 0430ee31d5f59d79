"""How an experiment may change in the folder of its results: it may grow; a part of it is there already."""

from collections.abc import Sequence
from typing import Any

from benign.sweep.plan import keys_of


class OtherExperiment(ValueError):
    """A folder holds another experiment; the message says in what it differs."""


def is_superset(new: Any, old: Any) -> bool:
    """Whether every run of the old experiment is a run of the new one."""
    return set(keys_of(old)) <= set(keys_of(new))


def extend_history(history: Sequence[Any], new: Any, folder: str = "the folder") -> list[Any]:
    """The history of an experiment after `new`, an extension or a part of it; OtherExperiment with the difference
    if `new` is neither."""
    if not history:
        return [new]
    old = history[-1]
    if new.as_dict() == old.as_dict():
        return list(history)
    if is_superset(new, old):
        return [*history, new]
    if is_superset(old, new):
        return list(history)
    there, here = ({**each.as_dict(), "seeds": None} for each in (old, new))  # seeds may differ
    raise OtherExperiment(
        f"{folder} holds another experiment: choose another folder (on the command line: --out FOLDER), or undo the "
        "difference; more seeds and longer axes would be added, but this differs:\n"
        + "\n".join(f"  {line}" for line in differences(there, here))
    )


def merge_history(target: Sequence[Any], source: Sequence[Any]) -> list[Any]:
    """The history of two stores merged: one of the experiments must be the other or extend it."""
    if is_superset(target[-1], source[-1]):
        return list(target)
    return extend_history(target, source[-1])


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Every leaf that differs, as `field: old value there, new value here`."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = list(old) + [name for name in new if name not in old]
        return [
            line
            for name in names
            for line in differences(
                old.get(name), new.get(name), f"{path}.{name}" if path else name
            )
        ]
    return [] if old == new else [f"{path}: {old} in the folder, {new} here"]
