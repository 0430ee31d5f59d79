"""Named random streams: every random number of a run, from the run's identity and a purpose.

A stream is named by (experiment seed, seed index, purpose, cell). The first 128 bits of a hash of
that name, four 32-bit words w0 w1 w2 w3, are its identity. Number j of the stream is word j % 4 of

    Philox4x32-10(counter = (i low, i high, w2, w3), key = (w0, w1)),   block number i = j // 4,

the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3" (SC 2011). There is no state: a draw depends only on the stream and the position, not on
which runs share the batch, on earlier draws or on the number of threads. The integers are the same
on every device; normals, formed from them in float64, agree to rounding.

All 128 bits of the identity enter every evaluation of Philox, and the block number fills the rest
of its input. So two streams with different identities never evaluate Philox at the same input, and
one stream never does so twice: training, test, initialisation and attack draws are disjoint.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64, Num
from torch import Tensor

# Constants are tensors without dimensions: a Python number costs 1 us more in every operation.
_MULTIPLIER_0, _MULTIPLIER_2, _LOW_WORD, _WORD_BITS = torch.tensor(
    [0xD2511F53, 0xCD9E8D57, 0xFFFFFFFF, 32], device="cpu"
).unbind()
_HALF, _UNIT, _FULL_TURN, _MINUS_TWO = torch.tensor(
    [0.5, 2.0**-32, 2 * math.pi, -2.0], dtype=torch.float64, device="cpu"
).unbind()
_KEY_STEP = torch.tensor([0x9E3779B9, 0xBB67AE85], device="cpu")[:, None, None]

# A draw is computed in pieces. A piece has words 0 and 2 of every block ("even") and words 1 and 3
# ("odd"); `places` are the places of both in the result.
Pair = Int64[Tensor, "2 runs blocks"]
Places = Num[Tensor, "2 2 runs blocks"]
Write = Callable[[Pair, Pair, Places], None]


def stream_words(seed: int, index: int, purpose: str, cell: str) -> tuple[int, int, int, int]:
    """Return the 128-bit identity of a stream: the start of the SHA-256 of its name, as four 32-bit words."""
    name = json.dumps([seed, index, purpose, cell], separators=(",", ":"))
    digest = hashlib.sha256(name.encode()).digest()
    return struct.unpack_from("<4I", digest)


@dataclass(frozen=True)
class RunId:
    """The identity of a run for its draws.

    seed: seed of the experiment.
    index: number of the repetition.
    cell: name of the point of the grid, or "" if all cells share their draws (`pairing: common`).
    """

    seed: int
    index: int
    cell: str


class Stream:
    """One stream per run. Every draw starts at the stream's beginning, so equal calls are equal.

    A shorter draw is the beginning of a longer one: `normal(10, 5)` is `normal(20, 5)[:, :10]`.
    """

    def __init__(self, words: Int64[Tensor, "runs 4"]):
        self.words = words

    def integers(self, count: int, start: int = 0) -> Int64[Tensor, "runs count"]:
        """Draw the words from `start` on, each uniform on 0, ..., 2**32 - 1."""
        return self._draw(_write_integers, (count,), torch.int64, start)

    def uniform(
        self, *shape: int, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "runs *shape"]:
        """Draw uniform numbers on the open interval (0, 1): (word + 1/2) / 2**32 in float64, then cast.

        If the cast would give 0 or 1, the result is the nearest number of `dtype` inside.
        """
        _require_floating(dtype)
        return self._draw(_write_uniform, shape, dtype)

    def normal(
        self, *shape: int, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "runs *shape"]:
        """Draw standard normals, by the Box-Muller transform in float64 of neighbouring uniforms.

        With 32 bits no value exceeds sqrt(66 log 2) = 6.77, which a true normal does once in 7e10 draws.
        """
        _require_floating(dtype)
        return self._draw(_write_normal, shape, dtype)

    def signs(self, *shape: int, dtype: torch.dtype = torch.float64) -> Num[Tensor, "runs *shape"]:
        """Draw -1 or +1 with probability 1/2 each: the highest bit of each word."""
        if not dtype.is_signed:
            raise ValueError(f"`dtype` must be a signed type such as float32, got {dtype}")
        return self._draw(_write_signs, shape, dtype)

    def _draw(
        self, write: Write, shape: tuple[int, ...], dtype: torch.dtype, start: int = 0
    ) -> Num[Tensor, "runs *shape"]:
        """Draw the words from `start` on and convert them by `write`, piece by piece.

        Measured on one CPU thread: pieces that fit the cache, changed in place, take 18 ns per
        normal; plain expressions with an allocation each take 22 to 33 ns; a piece of 1e6 blocks
        takes 36 ns. Reusing the buffers of a piece for the next one is no faster.
        """
        count = math.prod(shape)
        if min(start, *shape, 0) < 0 or start + count > 2**63:
            raise ValueError(
                "sizes and `start` must be 0 or more, and `start` and the number of draws at most "
                f"2**63 together, got {shape} and {start}"
            )
        runs, device = len(self.words), self.words.device
        out = torch.empty(runs, count, dtype=dtype, device=device)
        first, last = start // 4, -(-(start + count) // 4)
        for run, block in _pieces(runs, first, last, _piece_size(device)):
            even, odd = _words(self.words[run], block)
            left, right = 4 * block.start - start, 4 * block.stop - start
            inside = left >= 0 and right <= count
            target = out[run, left:right] if inside else out.new_empty(even.shape[1], right - left)
            places = target.unflatten(1, (-1, 2, 2)).permute(3, 2, 0, 1)
            write(even, odd, places)
            if not inside:
                out[run, max(left, 0) : right] = target[:, max(-left, 0) : count - left]
        return out.view(runs, *shape)


class Streams:
    """The streams of a batch of runs: `streams("train/noise").normal(samples, tokens, dim)`."""

    def __init__(self, runs: Sequence[RunId], device: torch.device | str = "cpu", within: str = ""):
        self.runs = tuple(runs)
        self.device = torch.device(device)
        self._within = within

    def __call__(self, purpose: str) -> Stream:
        """Return the streams of this purpose, one per run."""
        name = self._within + purpose
        words = [stream_words(run.seed, run.index, name, run.cell) for run in self.runs]
        words = torch.tensor(words, dtype=torch.int64, device=self.device)
        return Stream(words.reshape(len(self), 4))

    def __getitem__(self, keep: slice | Sequence[int]) -> "Streams":
        """Return the streams of some of the runs."""
        if isinstance(keep, slice):
            return Streams(self.runs[keep], self.device, self._within)
        if any(isinstance(run, bool) for run in keep):
            raise ValueError("`keep` must list indices of runs, got booleans; list the kept runs")
        return Streams([self.runs[run] for run in keep], self.device, self._within)

    def within(self, part: str) -> "Streams":
        """Return the streams whose purposes begin with `part`: `within("a")("b")` are those of purpose "a/b"."""
        return Streams(self.runs, self.device, f"{self._within}{part}/")

    def __len__(self) -> int:
        return len(self.runs)


def _philox(even: Pair, odd: Pair, key: Int64[Tensor, "2 runs 1"]) -> tuple[Pair, Pair]:
    """Apply Philox4x32-10, in place, to counters whose words are (even[0], odd[0], even[1], odd[1]).

    One round multiplies the even words by constants, to 64 bits. The low halves of the products
    are the new odd words; the high halves, mixed with the old odd words and the key, are the new
    even words; the two products are exchanged. The int64 product wraps, and its shift copies the
    sign, but the low 32 bits are right, and the mask, which the next product needs, keeps only
    these. So the odd words are masked once, at the end.
    """
    step, spare = _KEY_STEP.to(key.device), torch.empty_like(even)
    word_0, word_2 = even.unbind()
    odd_words, products = (odd, *odd.unbind()), (spare, *spare.unbind())
    for _ in range(10):
        both, from_2, from_0 = products
        torch.mul(word_2, _MULTIPLIER_2, out=from_2)
        torch.mul(word_0, _MULTIPLIER_0, out=from_0)
        torch.bitwise_right_shift(both, _WORD_BITS, out=even)
        even.bitwise_xor_(odd_words[0]).bitwise_xor_(key).bitwise_and_(_LOW_WORD)
        odd_words, products = products, odd_words
        key = (key + step).bitwise_and_(_LOW_WORD)
    return even, odd_words[0].bitwise_and_(_LOW_WORD)


def _words(words: Int64[Tensor, "runs 4"], block: slice) -> tuple[Pair, Pair]:
    """Return the words of these blocks of the streams with identities `words`."""
    key, upper = words.T[:, :, None].split(2)
    number = torch.arange(block.start, block.stop, device=words.device)
    even, odd = torch.empty(2, 2, len(words), len(number), dtype=torch.int64, device=words.device)
    even[0], even[1] = number & _LOW_WORD, upper[0]
    odd[0], odd[1] = number >> _WORD_BITS, upper[1]
    return _philox(even, odd, key)


def _piece_size(device: torch.device) -> int:
    """Return the number of blocks of a piece: on a CPU a few MB; more would not fit the cache, less needs more calls.

    Close to the best of 2**14 to 2**24 on an AMD and an Intel CPU with 1 to 16 threads. A GPU
    needs large pieces: an H200 takes 0.8 ns per normal with 2**18 blocks, 0.17 ns with 2**22.
    """
    return 2**16 * min(torch.get_num_threads(), 4) if device.type == "cpu" else 2**22


def _pieces(runs: int, first: int, last: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Cut runs 0, ..., runs - 1 and blocks first, ..., last - 1 into pieces of `size` blocks.

    A piece is a part of one long run, or several short runs together.
    """
    length = max(1, min(last - first, size))
    rows = size // length
    for run in range(0, runs, rows):
        for block in range(first, last, length):
            yield slice(run, min(run + rows, runs)), slice(block, min(block + length, last))


def _write_integers(even: Pair, odd: Pair, places: Places) -> None:
    places[0], places[1] = even, odd


def _write_signs(even: Pair, odd: Pair, places: Places) -> None:
    for place, word in zip(places, (even, odd), strict=True):
        place.copy_(word.bitwise_right_shift_(31).mul_(2).sub_(1))


def _write_uniform(even: Pair, odd: Pair, places: Places) -> None:
    limits = torch.finfo(places.dtype)
    for place, word in zip(places, (even, odd), strict=True):
        place.copy_(_to_unit_interval(word).clamp_(limits.tiny, 1 - limits.eps / 2))


def _write_normal(even: Pair, odd: Pair, places: Places) -> None:
    radius = _to_unit_interval(even).log_().mul_(_MINUS_TWO).sqrt_()
    angle = _to_unit_interval(odd).mul_(_FULL_TURN)
    torch.mul(radius, angle.cos(), out=places[0])
    torch.mul(radius, angle.sin_(), out=places[1])


def _to_unit_interval(word: Pair) -> Float64[Tensor, "2 runs blocks"]:
    """Return (word + 1/2) / 2**32, exactly."""
    return word.to(torch.float64).add_(_HALF).mul_(_UNIT)


def _require_floating(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise ValueError(f"`dtype` must be a floating-point type such as float32, got {dtype}")
