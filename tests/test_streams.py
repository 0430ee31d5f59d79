"""Random streams: the generator itself, what a draw may depend on, and the laws of the draws."""

import hashlib
import itertools
import json
import math
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benign import streams as module
from benign.streams import RunId, Stream, Streams, stream_key
from tests.says import says

WORD = st.integers(0, 2**64 - 1)
KEY = st.tuples(WORD, WORD)
CPU = torch.device("cpu")
RUNS = [RunId(7, 0, ""), RunId(7, 1, ""), RunId(8, 0, ""), RunId(7, 0, "snr=4"), RunId(7, 300, "")]
DRAWS = {
    "integers": lambda stream, count: stream.integers(count),
    "uniform": lambda stream, count: stream.uniform(count),
    "normal": lambda stream, count: stream.normal(count),
    "normal32": lambda stream, count: stream.normal(count, dtype=torch.float32),
    "signs": lambda stream, count: stream.signs(count),
}
each_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())


def slow_philox(counter, key):
    """Philox4x64-10 one block at a time in Python integers, straight from its definition."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c0, 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * c2, 2**64)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % 2**64, (k1 + 0xBB67AE8584CAA73B) % 2**64
    return [c0, c1, c2, c3]


def slow_integer(key, position):
    """Number `position` of the stream with this identity. numpy's first block has counter 1."""
    word, half = divmod(position, 2)
    block, place = divmod(word, 4)
    return slow_philox((block + 1, 0, 0, 0), key)[place] >> 32 * half & 2**32 - 1


def stream_of(key):
    return Stream(np.array([key], np.uint64), CPU)


@pytest.fixture
def small_pieces(monkeypatch):
    """Cut every draw into pieces of at most 6 words, which are not whole blocks."""
    monkeypatch.setattr(module, "_piece_size", lambda device: 6)


# The known answers published with the Random123 library.
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        (
            "0000000000000000 " * 4,
            "0000000000000000 " * 2,
            "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
        ),
        (
            "ffffffffffffffff " * 4,
            "ffffffffffffffff " * 2,
            "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
        ),
        (
            "243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89",
            "452821e638d01377 be5466cf34e90c6c",
            "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
        ),
    ],
)
def test_philox_known_answers(counter, key, answer):
    counter, key, answer = (
        [int(word, 16) for word in text.split()] for text in (counter, key, answer)
    )
    assert slow_philox(counter, key) == answer
    before = sum(word << 64 * place for place, word in enumerate(counter)) - 1
    numpy_philox = np.random.Philox(key=key[0] + (key[1] << 64), counter=before % 2**256)
    assert numpy_philox.random_raw(4).tolist() == answer


@given(KEY, st.integers(0, 2**62), st.integers(0, 19))
@settings(max_examples=60, deadline=None)
def test_integers_follow_the_definition_from_any_start(key, start, count):
    drawn = stream_of(key).integers(count, start)
    assert drawn.tolist() == [[slow_integer(key, start + j) for j in range(count)]]


def test_a_stream_is_what_numpy_draws_from_its_identity():
    key = stream_key(3, 1, "train/noise", "")
    words = np.random.Philox(key=key[0] + (key[1] << 64)).random_raw(50)
    drawn = Streams([RunId(3, 1, "")])("train/noise").integers(100)[0]
    assert torch.equal(drawn[::2] + (drawn[1::2] << 32), torch.from_numpy(words.view(np.int64)))


def test_identity_and_draws_are_pinned():
    """A change here changes every result of every experiment: raise the numerics version."""
    key = (9805820930095121173, 1262254718658025618)
    assert stream_key(0, 0, "train/noise", "") == key
    stream = Streams([RunId(0, 0, "")])("train/noise")
    assert stream.integers(4).tolist() == [[3935718174, 1235387994, 2345803533, 2111236357]]
    normal = [
        -0.09792149989778776,
        0.4063403900214091,
        -1.098286743352234,
        0.05829329716063764,
        -0.35252644140422823,
    ]
    expected = torch.tensor([normal], dtype=torch.float64)
    torch.testing.assert_close(stream.normal(5), expected, rtol=0, atol=1e-14)


def test_formulas_of_uniform_normal_and_signs():
    stream = Streams(RUNS)("formulas")
    words = stream.integers(1002).double()
    uniform = (words + 0.5) / 2**32
    assert torch.equal(stream.uniform(1002), uniform)
    assert torch.equal(stream.signs(1002), torch.where(words >= 2**31, 1.0, -1.0).double())
    radius, angle = (-2 * uniform[:, ::2].log()).sqrt(), 2 * math.pi * uniform[:, 1::2]
    normal = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1).flatten(1)
    torch.testing.assert_close(stream.normal(1002), normal, rtol=0, atol=1e-14)


@each_draw
@pytest.mark.parametrize("count", [0, 1, 3, 8, 1021])
def test_batch_equals_each_run_alone(draw, count):
    together = draw(Streams(RUNS)("train/noise"), count)
    alone = [draw(Streams([run])("train/noise"), count) for run in RUNS]
    assert together.shape == (len(RUNS), count)
    assert torch.equal(together, torch.cat(alone))


@each_draw
def test_short_draw_is_the_beginning_of_a_long_one(draw):
    stream = Streams(RUNS)("train/noise")
    long = draw(stream, 1000)
    for count in (0, 1, 2, 3, 4, 5, 63, 64, 999):
        assert torch.equal(draw(stream, count), long[:, :count])


def test_rows_of_a_shape_are_a_prefix_too():
    stream = Streams(RUNS)("train/noise")
    assert stream.normal(20, 5).shape == (len(RUNS), 20, 5)
    assert torch.equal(stream.normal(10, 5), stream.normal(20, 5)[:, :10])
    assert torch.equal(stream.normal(), stream.normal(1)[:, 0])


@each_draw
@pytest.mark.parametrize("count", [1, 12, 13, 50])
def test_pieces_change_nothing(draw, count, request):
    whole = draw(Streams(RUNS)("train/noise"), count)
    request.getfixturevalue("small_pieces")
    assert torch.equal(draw(Streams(RUNS)("train/noise"), count), whole)


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 11, 13])
def test_pieces_change_nothing_from_any_start(start, small_pieces):
    stream = Streams(RUNS)("train/noise")
    expected = [
        [slow_integer(k, j) for j in range(start, start + 30)] for k in stream.keys.tolist()
    ]
    assert stream.integers(30, start).tolist() == expected


def test_threads_and_large_draws_change_nothing():
    """A draw of several full-size pieces, against its parts drawn in other positions."""
    stream = Streams(RUNS[:2])("train/noise")
    threads, count = torch.get_num_threads(), 4 * module._piece_size(CPU) + 7
    try:
        torch.set_num_threads(1)
        one = stream.normal(count, dtype=torch.float32), stream.integers(count)
        torch.set_num_threads(3)
        three = stream.normal(count, dtype=torch.float32), stream.integers(count)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one[0], three[0])
    assert torch.equal(one[1], three[1])
    assert torch.equal(one[1][:, count - 100 :], stream.integers(100, count - 100))


def test_sub_batch_and_order_of_runs_and_calls():
    streams = Streams(RUNS)
    noise, labels = streams("train/noise").normal(9), streams("train/labels").signs(9)
    assert len(streams[[3, 0]]) == 2
    assert torch.equal(streams[[3, 0]]("train/noise").normal(9), noise[[3, 0]])
    assert torch.equal(streams[1:4][[-1]]("train/labels").signs(9), labels[[3]])
    assert torch.equal(Streams(RUNS[::-1])("train/noise").normal(9), noise.flip(0))
    assert torch.equal(streams("train/noise").normal(9), noise)
    assert streams[[]]("train/noise").normal(2, 3).shape == (0, 2, 3)


def test_distinct_names_have_disjoint_inputs():
    """Every purpose, seed, index and cell gets its own key."""
    purposes = ["train/noise", "train/labels", "test/noise", "init/query", "attack/start", "a", ""]
    names = list(itertools.product([0, 1, 10, -1, 2**70], [0, 1, 10], purposes, ["", "snr=4", "a"]))
    identities = {stream_key(*name) for name in names}
    assert len(identities) == len(names)
    assert all(0 <= word < 2**64 for identity in identities for word in identity)


@pytest.mark.parametrize("text", ['a "quoted" \\ one', "snr=4, dim=ö", "\n"])
def test_names_that_need_quoting_stay_unambiguous(text):
    """The name is the JSON list, however it is put together."""
    name = json.dumps([5, 2, text, text], separators=(",", ":"))
    digest = hashlib.sha256(name.encode()).digest()
    assert stream_key(5, 2, text, text) == struct.unpack_from("<2Q", digest)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_every_part_of_the_identity_enters(place, bit):
    """A bit of the key changes about half the bits of the words: 256 of 512, within 6 deviations."""
    key = stream_key(0, 0, "a", "")
    other = tuple(
        word ^ (bit_of << bit) for word, bit_of in zip(key, (1 - place, place), strict=True)
    )
    one, two = (stream_of(each).integers(16)[0].tolist() for each in (key, other))
    changed = sum((a ^ b).bit_count() for a, b in zip(one, two, strict=True))
    assert abs(changed - 256) < 6 * math.sqrt(128)


def test_train_test_init_and_attack_evaluate_philox_at_disjoint_inputs(monkeypatch):
    """Recorded at the generator itself: all inputs (block, key) of a batch's draws differ."""
    inputs = []
    words = module._generator.words

    def recording(key, block, count):
        inputs.extend((*key, block + more) for more in range(-(-count // 4)))
        return words(key, block, count)

    monkeypatch.setattr(module._generator, "words", recording)
    streams = Streams(RUNS)
    for purpose in ("train/noise", "test/noise", "init/query", "attack/start"):
        streams(purpose).normal(100)
    assert len(inputs) == 4 * len(RUNS) * 13
    assert len(set(inputs)) == len(inputs)


# Seeds are fixed, so the tests of laws below cannot flicker. Over a random choice of seeds each
# comparison would fail a correct generator with this probability.
ALARM = 1e-6


def test_uniform_and_normal_follow_their_laws():
    streams = Streams([RunId(11, index, "") for index in range(4)])
    for uniform, normal in zip(
        streams("law/uniform").uniform(50_000), streams("law/normal").normal(50_000), strict=True
    ):
        assert stats.kstest(uniform.numpy(), "uniform").pvalue > ALARM
        assert stats.kstest(normal.numpy(), "norm").pvalue > ALARM
        # The two halves of a Box-Muller pair, and their squares, each on their own.
        assert stats.kstest(normal[::2].numpy(), "norm").pvalue > ALARM
        assert (
            stats.kstest((normal[::2] ** 2 + normal[1::2] ** 2).numpy(), "expon", (0, 2)).pvalue
            > ALARM
        )


def test_bits_and_signs_are_fair():
    stream = Streams([RunId(12, 0, "")])("law/bits")
    words = stream.integers(20_000)[0]
    ones = [int(((words >> bit) & 1).sum()) for bit in range(32)] + [
        int((stream.signs(20_000) > 0).sum())
    ]
    assert all(stats.binomtest(count, 20_000).pvalue > ALARM for count in ones)


def test_streams_are_uncorrelated_with_each_other_and_along_themselves():
    """Neighbouring names, and neighbouring positions of one stream; 1/sqrt(n) is one deviation."""
    count = 40_000
    streams = Streams([RunId(13, index, cell) for index in range(4) for cell in ("", "a")])
    normal = torch.cat([streams(purpose).normal(count) for purpose in ("train/x", "test/x")])
    correlation = torch.corrcoef(normal) - torch.eye(len(normal), dtype=torch.float64)
    pairs = len(normal) * (len(normal) - 1) / 2
    assert correlation.abs().max() < stats.norm.isf(ALARM / (2 * pairs)) / math.sqrt(count)
    for lag in (1, 2, 3, 4):
        along = (normal[:, lag:] * normal[:, :-lag]).mean(1)
        assert along.abs().max() < stats.norm.isf(ALARM / (2 * len(normal))) / math.sqrt(
            count - lag
        )


def test_global_generator_is_untouched():
    before = torch.get_rng_state()
    stream = Streams(RUNS)("train/noise")
    for draw in DRAWS.values():
        draw(stream, 10)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    first = stream.normal(10)
    torch.manual_seed(2)
    assert torch.equal(stream.normal(10), first)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_casting(dtype):
    stream = Streams(RUNS)("train/noise")
    if dtype != torch.float64:  # from float32
        normal = stream.normal(501, dtype=torch.float32)
        assert torch.equal(stream.normal(501, dtype=dtype), normal.to(dtype))
    assert torch.equal(stream.signs(501, dtype=dtype), stream.signs(501).to(dtype))
    uniform = stream.uniform(501)
    inside = (uniform > 1e-4) & (uniform < 0.99)
    assert torch.equal(stream.uniform(501, dtype=dtype)[inside], uniform[inside].to(dtype))


def words_with(low):
    """Words with these low halves, which give the radius, and high halves all over the circle."""
    high = torch.linspace(-(2**31), 2**31 - 1, 997, dtype=torch.float64).long()
    return ((high[:, None] << 32) + torch.as_tensor(low)).reshape(1, -1)


# The ends, where a float32 would lose the tail or the middle, and numbers all over the range.
LOW = [
    *(2**power + shift for power in range(32) for shift in (-1, 0, 1)),
    *(2**32 - 2**power + shift for power in range(31) for shift in (-1, 0)),
]


def test_float32_normals_are_the_float64_ones_to_2e_6(monkeypatch):
    """Also in the tail and near 0, where the radius keeps its relative precision, and never is 0."""
    words = words_with(LOW)
    monkeypatch.setattr(module, "_words", lambda keys, first, last, device: words[:, first:last])
    stream = stream_of((0, 0))
    single = stream.normal(2 * words.shape[1], dtype=torch.float32)[0].double()
    double = stream.normal(2 * words.shape[1])[0]
    assert (single - double).abs().max() < 2e-6
    radius, exact = (torch.hypot(normal[::2], normal[1::2]) for normal in (single, double))
    torch.testing.assert_close(radius, exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(exact.max().item(), math.sqrt(66 * math.log(2)), rtol=1e-9, atol=0)
    assert exact.min() < 2e-5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_transform_of_other_devices_agrees(dtype):
    """torch computes it on a GPU, and numpy on a CPU."""
    words = words_with(LOW)
    here, there = (torch.empty(1, 2 * words.shape[1], dtype=dtype) for _ in range(2))
    module._write_normal(words, here)
    halves = words.view(torch.int32)
    first, second = (halves[:, place::2].to(dtype) for place in (0, 1))
    module._box_muller(torch, torch, first, second, there)
    error = 1e-13 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(here, there, rtol=0, atol=error)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_uniform_stays_in_the_open_interval(dtype, monkeypatch):
    """Even at the extreme words, which no stream reaches in a test."""
    extremes = torch.tensor([[-(2**32), 2**32 - 1]])  # halves 0, all ones, all ones, 0
    monkeypatch.setattr(module, "_words", lambda *_: extremes)
    stream = Streams(RUNS[:1])("train/noise")
    low, high, *_ = stream.uniform(4, dtype=dtype)[0].tolist()
    assert 0 < low < 1e-4
    assert 0.99 < high < 1
    assert torch.isfinite(stream.normal(4, dtype=dtype)).all()


def test_tails_have_their_share():
    """Of 8e6 float32 normals, how many exceed 3, 4 and 5: binomial tests, each with ALARM."""
    normal = Streams([RunId(14, 0, "")])("law/tail").normal(8_000_000, dtype=torch.float32)
    for level in (3, 4, 5):
        for side in (normal, -normal):
            count = int((side > level).sum())
            assert (
                stats.binomtest(count, normal.numel(), float(stats.norm.sf(level))).pvalue > ALARM
            )


def test_float32_normals_have_a_normal_law():
    normal = Streams([RunId(15, 0, "")])("law/single").normal(200_000, dtype=torch.float32)[0]
    assert stats.kstest(normal.double().numpy(), "norm").pvalue > ALARM
    moments = [1, 0, 1, 0, 3, 0, 15]
    for power, moment in enumerate(moments[1:], 1):
        mean = (normal.double() ** power).mean().item()
        deviation = math.sqrt(math.prod(range(1, 2 * power, 2)) - moment**2)
        assert abs(mean - moment) < stats.norm.isf(ALARM / 2) * deviation / math.sqrt(len(normal))


def test_threads_share_no_generator():
    """Threads of a process that draw at the same time, each with its own pieces."""
    stream, count = Streams(RUNS[:1])("train/noise"), 5 * 2 * module._piece_size(CPU)
    expected = stream.normal(count, dtype=torch.float32)
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: stream.normal(count, dtype=torch.float32), range(8)))
    assert all(torch.equal(each, expected) for each in drawn)


def test_bad_arguments_are_refused():
    streams = Streams(RUNS)
    stream = streams("train/noise")
    with pytest.raises(ValueError, match=says("sizes", "`start`", "0", "(3,)", "-1")):
        stream.integers(3, start=-1)
    with pytest.raises(ValueError, match=says("sizes", "`start`", "(-2, -3)")):
        stream.normal(-2, -3)
    with pytest.raises(ValueError, match=says("`start`", "2**63", str(2**63))):
        stream.integers(3, start=2**63)
    with pytest.raises(ValueError, match=says("`dtype`", "floating-point", "float32", "int64")):
        stream.normal(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=says("`dtype`", "signed", "float32", "uint8")):
        stream.signs(3, dtype=torch.uint8)
    with pytest.raises(ValueError, match=says("`keep`", "indices")):
        streams[[True, False, True, False, True]]


@pytest.mark.gpu
def test_cuda_draws_the_same(monkeypatch):
    here, there = Streams(RUNS)("train/noise"), Streams(RUNS, device="cuda")("train/noise")
    for count, start in ((1, 0), (100_003, 0), (50, 8 * 2**32 - 5)):
        assert torch.equal(there.integers(count, start).cpu(), here.integers(count, start))
    assert torch.equal(there.uniform(100_003).cpu(), here.uniform(100_003))
    assert torch.equal(there.signs(100_003).cpu(), here.signs(100_003))
    normal = there.normal(100_003)
    torch.testing.assert_close(normal.cpu(), here.normal(100_003), rtol=0, atol=1e-12)
    single = there.normal(100_003, dtype=torch.float32)
    torch.testing.assert_close(single.double(), normal, rtol=0, atol=2e-6)
    # On the device itself, a draw is bitwise the same alone, as a prefix and in other pieces.
    alone = Streams(RUNS[1:2], device="cuda")("train/noise")
    assert torch.equal(alone.normal(777), normal[1:2, :777])
    monkeypatch.setattr(module, "_piece_size", lambda device: 1001)
    assert torch.equal(there.normal(100_003), normal)
