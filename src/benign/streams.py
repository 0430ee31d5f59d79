"""Named random streams: every random number of a run, from the run's identity and a purpose.

A stream is named by (experiment seed, seed index, purpose, cell). The first 128 bits of a hash of
that name are its identity, and the numbers are numpy's:

    numpy.random.Philox(key=identity).random_raw(n)

This is Philox4x64-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3" (SC 2011): word i is a function of the key and of i, so there is no
state. A draw depends only on the stream and the position, not on which runs share the batch, on
earlier draws or on the number of threads. Each 64-bit word is two numbers of 32 bits, the low half
first: number j is half j % 2 of word j // 2.

On a CPU numpy computes the words, on one thread, as a unit of a sweep has; on a GPU torch's compiler
of elementwise kernels does (NVRTC, a part of torch: 1 s the first time, then the machine has the
kernel). The integers are the same on every device; normals, formed from them in float64 or float32,
agree to rounding.

All 128 bits of the identity are the key, and Philox is a bijection of its 256-bit counter for each
key. So two streams with different identities never evaluate Philox at the same input, and one stream
never does so twice: training, test, initialisation and attack draws are disjoint.
"""

import functools
import hashlib
import json
import math
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Num, UInt64
from torch import Tensor

# A draw is computed in pieces: it has some words of some runs, and the place of their halves in the result.
Words = Int64[Tensor, "runs words"]
Write = Callable[[Words, Num[Tensor, "runs halves"]], None]

_STEP = 2.0**-32  # between the uniform numbers that 32 bits give


def stream_key(seed: int, index: int, purpose: str, cell: str) -> tuple[int, int]:
    """Return the 128-bit identity of a stream: the start of the SHA-256 of its name, as two 64-bit words."""
    name = f"[{seed},{index},{_quoted(purpose)},{_quoted(cell)}]"
    return struct.unpack_from("<2Q", hashlib.sha256(name.encode()).digest())


@functools.lru_cache(maxsize=1000)  # 1 us less a run: the runs of a batch share the purpose
def _quoted(text: str) -> str:
    return json.dumps(text)


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

    keys: the identities.
    device: where the results are.
    """

    def __init__(self, keys: UInt64[np.ndarray, "runs 2"], device: torch.device):
        self.keys, self.device = keys, device

    def integers(self, count: int, start: int = 0) -> Int64[Tensor, "runs count"]:
        """Draw the numbers from `start` on, each uniform on 0, ..., 2**32 - 1."""
        return self._draw(_write_integers, (count,), torch.int64, start)

    def uniform(
        self, *shape: int, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "runs *shape"]:
        """Draw uniform numbers on the open interval (0, 1): (integer + 1/2) / 2**32 in float64, then cast.

        If the cast would give 0 or 1, the result is the nearest number of `dtype` inside.
        """
        _require_floating(dtype)
        return self._draw(_write_uniform, shape, dtype)

    def normal(
        self, *shape: int, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "runs *shape"]:
        """Draw standard normals, by the Box-Muller transform of neighbouring uniforms.

        float64 is computed in float64, anything else in float32, which differs from it by at most 2e-6.
        With 32 bits no value exceeds sqrt(66 log 2) = 6.77, which a true normal does once in 7e10 draws.
        """
        _require_floating(dtype)
        return self._draw(_write_normal, shape, dtype)

    def signs(self, *shape: int, dtype: torch.dtype = torch.float64) -> Num[Tensor, "runs *shape"]:
        """Draw -1 or +1 with probability 1/2 each: the highest bit of each integer."""
        if not dtype.is_signed:
            raise ValueError(f"`dtype` must be a signed type such as float32, got {dtype}")
        return self._draw(_write_signs, shape, dtype)

    def _draw(
        self, write: Write, shape: tuple[int, ...], dtype: torch.dtype, start: int = 0
    ) -> Num[Tensor, "runs *shape"]:
        """Draw the integers from `start` on and convert them by `write`, piece by piece."""
        count = math.prod(shape)
        if min(start, *shape, 0) < 0 or start + count > 2**63:
            raise ValueError(
                "sizes and `start` must be 0 or more, and `start` and the number of draws at most "
                f"2**63 together, got {shape} and {start}"
            )
        runs, device = len(self.keys), self.device
        first, last = start // 2, -(-(start + count) // 2)
        out = torch.empty(runs, 2 * (last - first), dtype=dtype, device=device)

        for run, word in _pieces(runs, first, last, _piece_size(device)):
            words = _words(self.keys[run], word.start, word.stop, device)
            write(words, out[run, 2 * (word.start - first) : 2 * (word.stop - first)])
        return out[:, start % 2 : start % 2 + count].reshape(runs, *shape)


class Streams:
    """The streams of a batch of runs: `streams("train/noise").normal(samples, tokens, dim)`."""

    def __init__(self, runs: Sequence[RunId], device: torch.device | str = "cpu", within: str = ""):
        self.runs = tuple(runs)
        self.device = torch.device(device)
        self._within = within

    def __call__(self, purpose: str) -> Stream:
        """Return the streams of this purpose, one per run."""
        name = self._within + purpose
        keys = [stream_key(run.seed, run.index, name, run.cell) for run in self.runs]
        return Stream(np.array(keys, np.uint64).reshape(-1, 2), self.device)

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


def _words(
    keys: UInt64[np.ndarray, "runs 2"], first: int, last: int, device: torch.device
) -> Words:
    """Return words first, ..., last - 1 of the streams with these keys."""
    if device.type != "cuda":
        return torch.from_numpy(_numpy_words(keys, first, last).view(np.int64)).to(device)
    number = torch.arange(first, last, device=device)
    low, high = torch.from_numpy(keys.view(np.int64)).to(device).split(1, dim=1)
    return _cuda_kernel()(number, low, high)


class _Generator(threading.local):
    """numpy's generator, one a thread: to set its state takes 1 us, to make a new one 9."""

    def __init__(self):
        self.philox = np.random.Philox(key=0)
        self.state: Any = self.philox.state
        self.state["buffer"] = (0, 0, 0, 0)  # numpy reads a tuple faster than an array

    def words(self, key: Sequence[int], block: int, count: int) -> UInt64[np.ndarray, "count"]:
        self.state["state"] = {"key": key, "counter": (block, 0, 0, 0)}
        self.philox.state = self.state
        return self.philox.random_raw(count)


_generator = _Generator()


def _numpy_words(
    keys: UInt64[np.ndarray, "runs 2"], first: int, last: int
) -> UInt64[np.ndarray, "runs words"]:
    """Compute the words by numpy, whose generator starts at any block of four words."""
    block, skip = divmod(first, 4)
    rows = [_generator.words(key, block, skip + last - first) for key in keys.tolist()]
    return (rows[0][None] if len(rows) == 1 else np.array(rows))[:, skip:]


# Elementwise: from the number of a word and the key of its stream. Each thread computes the block of its word
# again for each of four words: 0.01 ns a normal on an H200, where the Box-Muller transform takes 0.03.
_KERNEL = """
template <typename T> T philox_word(T number, T key_0, T key_1) {
  typedef unsigned long long Word;
  const Word multiplier_0 = 0xD2E7470EE14C6C93, multiplier_1 = 0xCA5A826395121157;
  Word k0 = key_0, k1 = key_1, c0 = (Word(number) >> 2) + 1, c1 = 0, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const Word high_0 = __umul64hi(multiplier_0, c0), high_1 = __umul64hi(multiplier_1, c2);
    const Word low_0 = multiplier_0 * c0, low_1 = multiplier_1 * c2;
    c0 = high_1 ^ c1 ^ k0; c1 = low_1; c2 = high_0 ^ c3 ^ k1; c3 = low_0;
    k0 += 0x9E3779B97F4A7C15; k1 += 0xBB67AE8584CAA73B;
  }
  const int place = int(number & 3);
  return T(place == 0 ? c0 : place == 1 ? c1 : place == 2 ? c2 : c3);
}
"""


@functools.cache
def _cuda_kernel() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return torch.cuda.jiterator._create_jit_fn(_KERNEL)  # the documented name


def _piece_size(device: torch.device) -> int:
    """Return the number of words of a piece.

    On a CPU its numbers fit the cache: a float32 normal takes 4.2 ns with 2**15 words, 6 with 2**16. A GPU
    needs large pieces: an H200 takes 0.13 ns a normal with 2**20 words, 0.04 ns with 2**22 or more.
    """
    return 2**15 if device.type == "cpu" else 2**22


def _pieces(runs: int, first: int, last: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Cut runs 0, ..., runs - 1 and words first, ..., last - 1 into pieces of `size` words.

    A piece is a part of one long run, or several short runs together.
    """
    length = max(1, min(last - first, size))
    rows = size // length
    for run in range(0, runs, rows):
        for word in range(first, last, length):
            yield slice(run, min(run + rows, runs)), slice(word, min(word + length, last))


def _write_integers(words: Words, out: Tensor) -> None:
    out.copy_(words.view(torch.int32)).bitwise_and_(2**32 - 1)


def _write_signs(words: Words, out: Tensor) -> None:
    out.copy_(words.view(torch.int32).bitwise_right_shift(31).mul_(-2).sub_(1))


def _write_uniform(words: Words, out: Tensor) -> None:
    limits = torch.finfo(out.dtype)
    uniform = words.view(torch.uint32).to(torch.float64).add_(0.5).mul_(_STEP)
    out.copy_(uniform.clamp_(limits.tiny, 1 - limits.eps / 2))


def _write_normal(words: Words, out: Tensor) -> None:
    dtype = torch.float64 if out.dtype == torch.float64 else torch.float32
    halves, target = words.view(torch.int32), out.to(dtype)
    if out.device.type == "cpu":
        # numpy takes 4.2 ns a float32 normal and 8 a float64 one, torch 6 and 9 to 12; but numpy's
        # sine and cosine in float64 take 8 ns each, torch's 3.
        array, result = halves.numpy(), target.numpy()
        first, second = (array[:, place::2].astype(result.dtype) for place in (0, 1))
        trigonometry = _TorchTrigonometry if dtype == torch.float64 else np
        _box_muller(np, trigonometry, first, second, result)
    else:
        first, second = (halves[:, place::2].to(dtype) for place in (0, 1))
        _box_muller(torch, torch, first, second, target)
    if target is not out:
        out.copy_(target)


class _TorchTrigonometry:
    """The functions of torch on arrays of numpy."""

    @staticmethod
    def cos(angle: np.ndarray, out: np.ndarray) -> np.ndarray:
        return torch.cos(torch.from_numpy(angle), out=torch.from_numpy(out)).numpy()

    @staticmethod
    def sin(angle: np.ndarray, out: np.ndarray) -> np.ndarray:
        return torch.sin(torch.from_numpy(angle), out=torch.from_numpy(out)).numpy()


def _box_muller(library: Any, trigonometry: Any, first: Any, second: Any, out: Any) -> None:
    """Write normals to `out` from 32-bit integers with a sign, given as floating-point numbers, which it changes.

    With t = (integer + 1/2) / 2**32 in (-1/2, 1/2), the uniform number is u = t - floor(t). Where float32
    rounds u, near 1, log(u) would lose the digits of its distance to 1: the rounding error t - floor(t) - u,
    which is exact, is the first-order correction. So the radius is precise at both ends, and never 0.

    library: numpy or torch.
    """
    first *= _STEP
    first += _STEP / 2
    spare = library.floor(first)
    radius = first - spare
    spare += radius
    first -= spare
    library.log(radius, out=radius)
    radius += first
    radius *= -2
    library.sqrt(radius, out=radius)
    second *= 2 * math.pi * _STEP
    second += math.pi * _STEP
    library.multiply(radius, trigonometry.cos(second, out=spare), out=out[:, ::2])
    library.multiply(radius, trigonometry.sin(second, out=spare), out=out[:, 1::2])


def _require_floating(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise ValueError(f"`dtype` must be a floating-point type such as float32, got {dtype}")
