"""Real images as points: a set of pictures, cut into patches, scaled and covered with noise by a construction."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional

from benign.data.constructions import Construction, Pictures, Plain
from benign.data.model import BLOCK, DataModel, Sample
from benign.data.npz import Part
from benign.data.sources import (
    KNOWN,
    absent_message,
    check_name,
    fingerprint,
    image_set,
    part_on,
    where_is,
)
from benign.spec.axes import OneOf, Shape, default
from benign.spec.base import Count, Whole
from benign.streams import Streams


class Images(DataModel):
    """Pictures of an image set, each cut into `tokens` square patches of `dim` numbers (channels, rows, columns).

    `tokens` and `dim` decide the size of a picture: 16 patches of 49 numbers are 28 x 28 pixels of MNIST, one patch of
    25 is a picture of 5 x 5. If that is not the size of the set, pictures are resampled: to fewer pixels by averages
    of areas, to more by linear interpolation. Without `dim`, pictures keep their size.

    A run trains on `samples` training images, drawn without replacement, and is tested on test images. Labels are the
    positions in `classes`, or -1 and +1.

    Latent part: `image` [runs, samples], the index of each picture in the set.

    >>> import benign as bo
    >>> data = bo.Images(source="digits", samples=100, tokens=16)
    >>> data.dim, data.side, data.label_count()  # patches of 2 x 2 pixels
    (4, 8, 10)
    """

    source: Shape[str]
    """digits (shipped), mnist, fashion_mnist, cifar10, svhn, tiny_imagenet, or the name of a set of your own in the
    folder of data (docs/images.md)"""
    tokens: Shape[Count] = default(1)
    """patches of a picture, a square number"""
    dim: Shape[Count] = default(0)
    """numbers of a patch: channels times a square; if not given, it follows from the size of the set's pictures"""
    channels: Literal[1, 3] | None = None
    """1 for grey pictures, 3 for colours; needed if the source is a file of your own"""
    classes: tuple[Whole, ...] | None = None
    """the classes that are used, in the order of their labels; all classes if not given"""
    labels: Literal["classes", "signed"] = "classes"
    """0 to k - 1, or with two classes -1 for the first and +1 for the second"""
    balanced: bool = False
    """equally many training points of every class, instead of a random number"""
    construction: OneOf[Construction] = default(Plain())
    """how a picture is scaled and covered with noise"""

    @model_validator(mode="before")
    @classmethod
    def _natural_size(cls, fields: Any) -> Any:
        """Fill in `dim` if it follows from the other fields."""
        if not isinstance(fields, Mapping) or "dim" in fields:
            return fields
        source, tokens = fields.get("source"), fields.get("tokens", 1)
        facts = KNOWN.get(source) if isinstance(source, str) else None
        if facts is None or type(tokens) is not int or tokens < 1:
            raise ValueError(
                "`dim` must be given, unless `source` is one known set and `tokens` one number"
            )
        side, rest = divmod(facts.side, math.isqrt(tokens))
        if rest or math.isqrt(tokens) ** 2 != tokens:
            raise ValueError(
                f"`tokens` must be the square of a divisor of {facts.side}, the pixels of a side, got {tokens}: "
                "choose another or give `dim`, to which pictures are resampled"
            )
        return {**fields, "dim": facts.channels * side**2}

    def check(self) -> None:
        check_name(self.source)
        if self.channel_count() is None:
            raise ValueError(
                f"`channels` and `classes` must be given with `source` {self.source!r}, a file of your own; known "
                f"sets: {', '.join(KNOWN)}"
            )
        known = KNOWN.get(self.source)
        if known and self.channels not in (None, known.channels):
            raise ValueError(
                f"`channels` must be {known.channels}, as {self.source} has, got {self.channels}"
            )
        self._check_size()
        self._check_classes()
        if known and self.samples > known.train:
            raise ValueError(
                f"`samples` must be at most {known.train:,}, the training images of {self.source}, got {self.samples:,}"
            )

    def _check_size(self) -> None:
        patch = self.dim // self.channel_count()
        if math.isqrt(self.tokens) ** 2 != self.tokens:
            raise ValueError(f"`tokens` must be a square number of patches, got {self.tokens}")
        if patch * self.channel_count() != self.dim or math.isqrt(patch) ** 2 != patch:
            near = self.channel_count() * max(1, round(math.sqrt(patch))) ** 2
            raise ValueError(
                f"`dim` must be {self.channel_count()} (channels) times a square number of pixels, got {self.dim}: "
                f"{near} is the nearest"
            )
        self.construction.check_size(self.side)

    def _check_classes(self) -> None:
        used, known = self.classes, KNOWN.get(self.source)
        if used is not None and (len(set(used)) < len(used) or len(used) < 2):
            raise ValueError(f"`classes` must name two classes or more, each once, got {[*used]}")
        if used is not None and known and max(used) >= known.classes:
            raise ValueError(
                f"`classes` must be between 0 and {known.classes - 1} in {self.source}, got {max(used)}"
            )
        if self.labels == "signed" and self.class_count() != 2:
            raise ValueError(
                f"`labels` is signed, which is for two classes, got {self.class_count()}: "
                "choose `classes`, such as [0, 1]"
            )
        if self.balanced and self.samples % self.class_count():
            raise ValueError(
                f"`samples` must be a multiple of {self.class_count()}, the classes, with `balanced: true`, "
                f"got {self.samples}"
            )

    def require(self, tests: int) -> None:
        images = image_set(self.source)
        channels = images.train.images.shape[1]
        if channels != self.channel_count():
            raise ValueError(
                f"`data.channels` is {self.channel_count()}, but {self.source} has {channels}"
            )
        for split, count in (("train", self.samples), ("test", tests)):
            self._check_counts(getattr(images, split), split, count)

    def _check_counts(self, part: Part, split: str, needed: int) -> None:
        field = "data.samples" if split == "train" else "evaluation.samples"
        counts = [int((part.labels == label).sum()) for label in self._used()]
        if self.balanced and split == "train":
            least, label = min((count, label) for label, count in enumerate(counts))
            if least * len(counts) < needed:
                raise ValueError(
                    f"`data.samples` must be at most {least * len(counts):,} with `balanced: true`: class "
                    f"{self._used()[label]} of {self.source} has {least:,} training images; got {needed:,}"
                )
        if sum(counts) < needed:
            raise ValueError(
                f"`{field}` must be at most {sum(counts):,}, the {split} images of classes "
                f"{', '.join(map(str, self._used()))} in {self.source}, got {needed:,}"
            )

    def absent(self) -> str | None:
        return None if where_is(self.source) else absent_message(self.source)

    def file_set(self) -> str:
        return self.source

    @classmethod
    def fingerprint_of(cls, file_set: str) -> str | None:
        return fingerprint(file_set)

    def picture_shape(self) -> tuple[int, int, int]:
        return self.channel_count(), self.side, self.side

    def channel_count(self) -> Any:
        """Return 1 or 3, or None if the specification leaves it open."""
        known = KNOWN.get(self.source)
        if known is None and self.classes is None:
            return None
        return self.channels or (known.channels if known else None)

    def class_count(self) -> int:
        return len(self._used())

    def _used(self) -> tuple[int, ...]:
        """Return the classes of labels 0, 1, ..."""
        return self.classes or tuple(range(KNOWN[self.source].classes))

    @property
    def side(self) -> int:
        """Pixels of a side of a picture."""
        return math.isqrt(self.tokens) * math.isqrt(self.dim // self.channel_count())

    def label_count(self) -> int | None:
        return None if self.labels == "signed" else self.class_count()

    def signal_norm(self) -> Any:
        return self.construction.signal_norm()

    def most_tests(self) -> int | None:
        known = KNOWN.get(self.source)
        return known.test if known else None

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        kind, _, block = split.partition("/")
        part = part_on(self.source, kind, str(streams.device))
        indices = self._indices(part, streams, kind, int(block or 0) * BLOCK, count)
        pictures = self._resampled(part.images[indices].to(dtype) / 255)
        x = self.patches(self.construction.apply(pictures, streams, split))
        y = self._label(part.labels[indices]).to(dtype)
        return Sample(x, y, y, {"image": indices})

    def _indices(
        self, part: Part, streams: Streams, kind: str, begin: int, count: int
    ) -> Int64[Tensor, "runs samples"]:
        """Return indices of images of the used classes in a random order of each run, from position `begin` on."""
        balanced = self.balanced and kind == "train"
        groups = [[label] for label in self._used()] if balanced else [list(self._used())]
        orders = []
        for group in groups:
            classes = torch.tensor(group, device=part.labels.device)
            indices = torch.isin(part.labels, classes).nonzero()[:, 0]
            name = f"{kind}/images/{group[0]}" if balanced else f"{kind}/images"
            orders.append(indices[streams(name).uniform(len(indices)).argsort(stable=True, dim=1)])
        if balanced:  # one of each class in turn
            fewest = min(order.shape[1] for order in orders)
            orders = [torch.stack([order[:, :fewest] for order in orders], 2).flatten(1)]
        chosen = orders[0][:, begin : begin + count]
        if chosen.shape[1] < count:
            raise ValueError(
                f"{self.source} has {orders[0].shape[1]:,} {kind} images of these classes, "
                f"asked for {begin + count:,}: lower `samples`"
            )
        return chosen

    def _label(self, labels: Int64[Tensor, "runs samples"]) -> Int64[Tensor, "runs samples"]:
        used = torch.tensor(self._used(), device=labels.device)
        position = (labels[..., None] == used).long().argmax(2)
        return 2 * position - 1 if self.labels == "signed" else position

    def _resampled(self, pictures: Pictures) -> Float[Tensor, "runs samples channels side side"]:
        here, side = pictures.shape[-2:], self.side
        if here == (side, side):
            return pictures
        fewer = side < max(here)
        how: Any = {"mode": "area"} if fewer else {"mode": "bilinear", "align_corners": False}
        flat = functional.interpolate(pictures.flatten(0, 1), (side, side), **how)
        return flat.unflatten(0, pictures.shape[:2])

    def patches(self, pictures: Pictures) -> Float[Tensor, "runs samples tokens dim"]:
        """Return pictures as tokens: patches row by row, with the channels, rows and columns of each."""
        across = math.isqrt(self.tokens)
        size = self.side // across
        cut = pictures.unflatten(4, (across, size)).unflatten(3, (across, size))
        return cut.permute(0, 1, 3, 5, 2, 4, 6).flatten(4, 6).flatten(2, 3)

    def pictures(self, x: Float[Tensor, "runs samples tokens dim"]) -> Pictures:
        """Return the pictures of which these tokens are the patches; the inverse of `patches`."""
        across = math.isqrt(self.tokens)
        size = self.side // across
        cut = x.unflatten(3, (self.channel_count(), size, size)).unflatten(2, (across, across))
        return cut.permute(0, 1, 4, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4)
