"""Image sets on the command line: what there is, one of them, downloads, and experiments whose images are absent."""

import re
from pathlib import Path

import pytest
import yaml

from benign.data import sources
from benign.data.folder import VARIABLE
from benign.data.npz import write_npz
from benign.sweep.store import Store
from tests import image_files
from tests.says import holds

FIELDS = {
    "data": {"kind": "images", "source": "mine", "samples": 6, "dim": 16, "channels": 1}
    | {"classes": [0, 1], "labels": "signed"},
    "network": {"kind": "linear"},
    "training": {"rate": 0.1, "max_steps": 3},
    "evaluation": {"samples": 4},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of data, named as a user does; results lie next to it."""
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv(VARIABLE, str(place))
    monkeypatch.chdir(tmp_path)
    return place


def written(**changes) -> Path:
    """An experiment of a file of arrays."""
    file = Path("mine.yaml")
    file.write_text(yaml.safe_dump(FIELDS | {"data": FIELDS["data"] | changes}))
    return file


# benign data


def test_help_has_examples(run):
    code, out, _ = run("data", "--help")
    assert code == 0
    assert "benign data cifar10 --download" in out.partition("Examples:")[2]


def test_the_table_names_every_set_and_where_it_is(run, folder, monkeypatch):
    image_files.mnist(monkeypatch, folder)
    write_npz(folder / "mine.npz", image_files.arrays(3, 4))
    write_npz(folder / "svhn.npz", image_files.arrays(3, 28))  # fewer and smaller than the set has
    (folder / "bad.npz").write_bytes(b"no arrays")
    code, out, err = run("data")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: re.split(r"\s{2,}", line) for line in out.splitlines()}
    assert rows["digits"][1:5] == ["1,500", "297", "8 x 8 x 1", "10"]
    assert rows["cifar10"][1:] == ["50,000", "10,000", "32 x 32 x 3", "10", "not here"]
    assert rows["mnist"][-1] == str(folder / "MNIST")
    assert rows["mine"][1:] == ["9", "6", "4 x 4 x 3", "3", str(folder / "mine.npz")]
    assert rows["svhn"][1:] == ["9", "6", "28 x 28 x 3", "3", str(folder / "svhn.npz")]
    assert rows["bad"][1] == "damaged"
    assert out.splitlines()[-1].startswith(f"folder: {folder}")


def test_one_set_is_described_with_its_classes_and_whether_it_is_checked(run, folder, monkeypatch):
    image_files.mnist(monkeypatch, folder)
    code, out, _ = run("data", "mnist")
    assert code == 0
    assert holds(out, "4 x 4", "1 channel", "10 classes")
    [line] = [line for line in out.splitlines() if "1 - one" in line]
    assert line.split()[0] == "1"
    assert holds(line, "3 training", "2 test")
    assert holds(out, str(folder / "MNIST"), "md5", "torchvision")
    for file in folder.rglob("*.gz"):
        file.unlink()
    image_files.mnist(monkeypatch, folder / "other", packed=False)
    code, out, _ = run("data", "mnist", "--data", folder / "other")
    assert holds(out, "unpacked", "no md5", "torchvision")
    assert "package" in run("data", "digits")[1]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["mnist"], ("images", "'mnist'", "benign data mnist --download")),
        (["mine"], ("'mine'", "mine.npz")),
        (["../x"], ("`source`", "digits, mnist", "'../x'")),
        (["--download"], ("--download", "name")),
        (["digits", "--download"], ("digits", "package")),
        (["mine", "--download"], ("mine", "known set")),
    ],
)
def test_bad_input_is_one_line(run, arguments, parts):
    code, out, err = run("data", *arguments)
    assert (code, out) == (2, "")
    assert holds(err, *parts)
    assert err.count("\n") == 1


def test_a_download_without_network_is_one_line(run, folder, monkeypatch):
    """No host of this name exists anywhere (RFC 2606)."""
    monkeypatch.setattr(image_files.datasets("MNIST"), "mirrors", ["http://nowhere.invalid/"])
    code, out, err = run("data", "mnist", "--download")
    assert (code, out) == (2, "")
    assert holds(err, "benign: mnist ", "download", "<urlopen error")
    assert err.count("\n") == 1
    assert not list(folder.iterdir())


def test_a_download_goes_into_the_folder_that_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        sources.KNOWN_FORMATS["mnist"].__class__, "fetch", lambda self, place: offered(place)
    )

    def offered(place: Path) -> None:
        image_files.mnist(monkeypatch, place)

    code, out, _ = run("data", "mnist", "--download", "--data", tmp_path / "new")
    assert code == 0
    first, second = out.splitlines()[:2]
    assert holds(first, "mnist", str(tmp_path / "new" / "MNIST"))
    assert holds(second, "mnist", "4 x 4")


# Experiments


def test_an_experiment_runs_on_a_file_of_arrays(run, folder):
    write_npz(folder / "mine.npz", image_files.arrays(1, 4))
    code, _, err = run("run", written(), "--out", "there")
    assert code == 0, err
    _, record = next(Store.open("there", writing=False).records())
    assert record.meta["code"] == {"images mine": sources.fingerprint("mine")}


def test_the_option_names_the_folder_for_worker_processes_too(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_npz(other / "mine.npz", image_files.arrays(1, 4))
    code, _, err = run("run", written(), "--data", other, "--seeds", "2", "--workers", "2")
    assert code == 0, err
    assert run("show", "runs/mine", "--data", other)[0] == 0
    assert run("resume", "runs/mine", "--data", other)[0] == 0
    assert run("verify", "zhang", "--list", "--data", other)[0] == 0


def test_absent_images_are_reported_before_work_and_shown_in_a_line(run, folder):
    file = written()
    code, out, err = run("run", file)
    assert (code, out) == (2, "")
    assert holds(err, "images", "'mine'", "mine.npz", str(folder))
    assert not Path("runs").exists()
    code, out, err = run("show", file)
    assert (code, err) == (0, "")
    text = "".join(out.split())  # lines are broken
    assert re.search(
        rf"data[^;]*images[^;]*'mine'[^;]*mine\.npz[^;]*{re.escape(str(folder))}", text
    )
    write_npz(folder / "mine.npz", image_files.arrays(1, 4))
    assert "mine.npz" not in run("show", file)[1]


def test_too_many_points_are_refused_by_the_name_of_their_field(run, folder):
    write_npz(folder / "mine.npz", image_files.arrays(1, 4))
    code, _, err = run("run", written(samples=7))
    assert code == 2
    assert holds(err, "`data.samples`", "6", "7")
    code, _, err = run("run", written(source="digits"), "--set", "evaluation.samples=298")
    assert code == 2
    assert holds(err, "`evaluation.samples`", "297", "298")


def test_finished_results_are_opened_and_drawn_without_their_images(run, folder):
    write_npz(folder / "mine.npz", image_files.arrays(1, 4))
    file = written()
    assert run("run", file)[0] == 0
    (folder / "mine.npz").unlink()
    assert run("run", file)[0] == 0
    assert run("show", "runs/mine")[0] == 0
    code, _, err = run("run", file, "--seeds", "2")
    assert code == 2
    assert holds(err, "images", "'mine'", "mine.npz")


def test_results_of_images_that_have_changed_are_refused_or_computed_again(run, folder):
    write_npz(folder / "mine.npz", image_files.arrays(1, 4))
    file = written()
    assert run("run", file)[0] == 0
    write_npz(folder / "mine.npz", image_files.arrays(1, 4, seed=1))
    code, _, err = run("run", file)
    assert code == 2
    assert holds(err, "runs/mine", "`images mine`", "1 run", "--recompute")
    assert re.search(r"images mine .*\b1 run", " ".join(run("show", "runs/mine")[1].split()))
    assert run("run", file, "--recompute")[0] == 0
    assert run("run", file)[0] == 0
