"""The command about image sets: `benign data`."""

from typing import TYPE_CHECKING, Annotated

import typer

from benign.cli.options import Data, examples, words
from benign.sweep.text import echo

if TYPE_CHECKING:
    from benign.data.npz import ImageSet


IMAGE_SETS = ("digits", "mnist", "fashion_mnist", "cifar10", "svhn", "tiny_imagenet")
"""names for shells to complete: importing `benign.data.sources` takes seconds (a test compares them)"""

app = typer.Typer()


@app.command(
    epilog=examples(
        "benign data                          list the image sets",
        "benign data mnist                    describe one set and check its files",
        "benign data cifar10 --download       download a set into the folder of image sets",
        "benign data --data /shared/images    use another folder of image sets",
    )
)
def data(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An image set, for its details.  [default: all image sets]",
            autocompletion=words(*IMAGE_SETS),
        ),
    ] = None,
    get: Annotated[
        bool,
        typer.Option(
            "--download", help="Download the set into the folder of image sets; checks its md5."
        ),
    ] = False,
    folder: Data = None,
) -> None:
    """List the image sets, describe one, or download it."""
    from benign.data.sources import download

    if name is None:
        if get:
            raise ValueError("--download needs the name of a set: benign data mnist --download")
        echo(_table())
        return
    if get:
        echo(f"{name} is in {download(name)}")
    echo(_details(name))


def _table() -> str:
    """Return a table of the known sets and of the user's own in the folder of image sets."""
    from benign.data.folder import data_folder
    from benign.data.sources import KNOWN, own_names, where_is

    rows = [("name", "training", "test", "size", "classes", "where")]
    rows += [
        (name, *_sizes(name), str(where_is(name) or "not here")) for name in [*KNOWN, *own_names()]
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*map(str.rstrip, table), f"folder: {data_folder()} (--data or BENIGN_DATA)"])


def _sizes(name: str) -> tuple[str, str, str, str]:
    """Return the numbers of training and test images, their size and the number of classes, as text."""
    from benign.data.sources import sizes

    try:
        train, test, shape, classes = sizes(name)
    except ValueError:
        return ("damaged", "", "", "")
    return (f"{train:,}", f"{test:,}", " x ".join(map(str, shape)), str(classes))


def _details(name: str) -> str:
    from benign.data.sources import assurance, fingerprint, image_set, where_is

    images = image_set(name)
    channels, height, width = images.train.images.shape[1:]
    counts = [
        f"  {number} {label}: {train:,} training, {test:,} test"
        for number, (label, train, test) in enumerate(_counts(images))
    ]
    return "\n".join(
        [
            f"{name}: {height} x {width} pixels, {channels} channels, {len(images.class_names)} classes",
            f"training: {len(images.train.labels):,} images, test: {len(images.test.labels):,}",
            *counts,
            f"where: {where_is(name)} ({assurance(name)})",
            *([f"fingerprint: {mark}"] if (mark := fingerprint(name)) else []),
        ]
    )


def _counts(images: "ImageSet") -> list[tuple[str, int, int]]:
    """Return every class with its numbers of training and test images."""
    numbers = range(len(images.class_names))
    train, test = (
        part.labels.bincount(minlength=len(numbers)).tolist()
        for part in (images.train, images.test)
    )
    return [(images.class_names[k], train[k], test[k]) for k in numbers]
