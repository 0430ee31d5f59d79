"""What `benign advise` says: advice for a file, a recipe or plain numbers, and the command that tests it."""

import shlex
from collections.abc import Mapping

from benign.papers.advice import advise
from benign.papers.numbers import experiment_for
from benign.papers.requests import RunOptions, plans


def advice_text(
    target: str | None, network: str, given: Mapping[str, str], alone: bool, whole: bool
) -> str:
    """The advice; `alone` is nothing but the experiment that tests it, `whole` every condition."""
    if target and given:
        raise ValueError(f"give {target} or numbers (--{next(iter(given))}), not both")
    if target:
        experiment = plans(target, RunOptions())[0].experiment
        found, test = advise(experiment), f"benign run {shlex.quote(target)}"
    else:
        numbers = {name: _number(name, text) for name, text in given.items()}
        experiment, found = experiment_for(network, numbers), advise(network=network, **numbers)
        words = " ".join(f"--{name} {shlex.quote(text)}" for name, text in given.items())
        test = f"benign advise --network {network} {words} --yaml > my.yaml && benign run my.yaml"
    if alone:
        return experiment.to_yaml()
    return f"{found.text(whole)}\n\nto test it: {test}"


def _number(name: str, text: str) -> float | int:
    """Whole where it is: `1e9` is a dimension."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"--{name}: must be a number, got {text!r}") from None
    return int(value) if value.is_integer() else value
