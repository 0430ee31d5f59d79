"""Final weights that a sweep kept (`--keep-weights`), and networks with them."""

from pathlib import Path
from typing import Any

from benign.experiment import Folder
from benign.networks.network import Params
from benign.sweep.folders import open_experiment
from benign.sweep.plan import NUMERICS
from benign.training.checkpoint import read_weights
from benign.training.engine import weights_name


def weights(folder: Folder, seed: int = 0, **where: Any) -> Params:
    """The final weights of a run in a folder, by name, with a runs axis of length one.

    They are there where the sweep was run with `keep_weights`.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=[1.0, 2.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sweep.run(folder, keep_weights=True)
    ...     {name: list(part.shape) for name, part in bo.weights(folder, signal=2.0).items()}
    {'output_norm': [1], 'u': [1, 5]}
    """
    run = open_experiment(folder).find(where, seed)
    file = Path(folder) / "weights" / f"{weights_name(run.cell, run.id)}.safetensors"
    if not file.exists():
        raise ValueError(
            f"{folder} holds no weights of this run: they are kept by keep_weights=True (--keep-weights); "
            "what is there already is computed again in another folder"
        )
    return {name: part[None] for name, part in read_weights(file, NUMERICS).items()}
