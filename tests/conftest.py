"""What every test shares: one thread, no window, fixed examples in CI, a reason for each skip."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.checked import lighten

# Before torch is imported, and inherited by subprocesses: two torch threads in each xdist worker
# ran 3 to 4 times slower than one on a machine of 2 cores.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"

lighten()  # before the package is imported

# No deadline: the first call of a torch operation may take a second. In CI the same examples
# every time, so that a red build means a changed program.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, torch sees none"))


@pytest.fixture
def run(capsys):
    """The command line in this process: exit code, stdout, stderr."""

    from benign.cli import main as cli

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run
