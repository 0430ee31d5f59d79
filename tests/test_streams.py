"""Random streams: the generator itself, what a draw may depend on, and the laws of the draws."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benign import streams as module
from benign.streams import RunId, Stream, Streams, stream_words
from tests.says import says

WORD = st.integers(0, 2**32 - 1)
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
    """Philox4x32-10 one block at a time in Python integers, straight from its definition."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def slow_word(words, position):
    """Word `position` of the stream with this identity."""
    block, within = divmod(position, 4)
    return slow_philox((block % 2**32, block // 2**32, *words[2:]), words[:2])[within]


def fast_philox(counter, key):
    """The module's Philox on one counter."""
    even, odd = (torch.tensor(counter[start::2])[:, None, None] for start in (0, 1))
    even, odd = module._philox(even, odd, torch.tensor(key)[:, None, None])
    return [even[0].item(), odd[0].item(), even[1].item(), odd[1].item()]


@pytest.fixture
def small_pieces(monkeypatch):
    """Cut every draw into pieces of at most 6 blocks."""
    monkeypatch.setattr(module, "_piece_size", lambda device: 6)


# The known answers published with the Random123 library.
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(counter, key, answer):
    counter, key, answer = (
        [int(word, 16) for word in text.split()] for text in (counter, key, answer)
    )
    assert fast_philox(counter, key) == answer
    assert slow_philox(counter, key) == answer


@given(st.tuples(WORD, WORD, WORD, WORD), st.tuples(WORD, WORD))
@settings(max_examples=60, deadline=None)
def test_philox_agrees_with_a_slow_implementation(counter, key):
    assert fast_philox(counter, key) == slow_philox(counter, key)


@given(st.tuples(WORD, WORD, WORD, WORD), st.integers(0, 2**62), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_integers_follow_the_definition_from_any_start(words, start, count):
    drawn = Stream(torch.tensor([words])).integers(count, start)
    assert drawn.tolist() == [[slow_word(words, start + j) for j in range(count)]]


def test_block_numbers_carry_into_the_second_counter_word():
    words, start = (1, 2, 3, 4), 4 * (2**32 - 1) + 2
    drawn = Stream(torch.tensor([words])).integers(8, start)
    assert drawn.tolist() == [[slow_word(words, start + j) for j in range(8)]]
    assert drawn[0, 2:6].tolist() == slow_philox((0, 1, 3, 4), (1, 2))


def test_identity_and_draws_are_pinned():
    """A change here changes every result of every experiment: raise the numerics version."""
    assert stream_words(0, 0, "train/noise", "") == (3043558165, 2283095598, 2578192530, 293891578)
    stream = Streams([RunId(0, 0, "")])("train/noise")
    assert stream.integers(4).tolist() == [[614074220, 1567640555, 1145233425, 2782113668]]
    torch.testing.assert_close(
        stream.normal(5),
        torch.tensor(
            [
                [
                    -1.304290130545599,
                    1.4795249551797227,
                    -0.974109250438479,
                    -1.3018379651729968,
                    0.23842232450842182,
                ]
            ],
            dtype=torch.float64,
        ),
        rtol=0,
        atol=1e-14,
    )


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
    expected = [[slow_word(w, j) for j in range(start, start + 30)] for w in stream.words.tolist()]
    assert stream.integers(30, start).tolist() == expected


def test_threads_and_large_draws_change_nothing():
    """A draw of several full-size pieces, against its parts drawn in other positions."""
    stream = Streams(RUNS[:2])("train/noise")
    threads, count = torch.get_num_threads(), 4 * 2**16 + 7
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
    """Every purpose, seed, index and cell gets its own (key, upper counter words)."""
    purposes = ["train/noise", "train/labels", "test/noise", "init/query", "attack/start", "a", ""]
    names = list(itertools.product([0, 1, 10, -1, 2**70], [0, 1, 10], purposes, ["", "snr=4", "a"]))
    identities = {stream_words(*name) for name in names}
    assert len(identities) == len(names)
    assert all(0 <= word < 2**32 for identity in identities for word in identity)


def test_train_test_init_and_attack_evaluate_philox_at_disjoint_inputs(monkeypatch):
    """Recorded at the generator itself: all inputs (counter, key) of a batch's draws differ."""
    inputs = []
    philox = module._philox

    def recording(even, odd, key):
        counter = torch.stack([even[0], odd[0], even[1], odd[1]], dim=-1)
        keys = key.permute(1, 2, 0).expand(*counter.shape[:2], 2)
        inputs.extend(map(tuple, torch.cat([counter, keys], dim=-1).flatten(0, 1).tolist()))
        return philox(even, odd, key)

    monkeypatch.setattr(module, "_philox", recording)
    streams = Streams(RUNS)
    for purpose in ("train/noise", "test/noise", "init/query", "attack/start"):
        streams(purpose).normal(100)
    assert len(inputs) == 4 * len(RUNS) * 25
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
    assert torch.equal(stream.normal(501, dtype=dtype), stream.normal(501).to(dtype))
    assert torch.equal(stream.signs(501, dtype=dtype), stream.signs(501).to(dtype))
    uniform = stream.uniform(501)
    inside = (uniform > 1e-4) & (uniform < 0.99)
    assert torch.equal(stream.uniform(501, dtype=dtype)[inside], uniform[inside].to(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_uniform_stays_in_the_open_interval(dtype, monkeypatch):
    """Even at the extreme words, which no stream reaches in a test."""

    def extremes(even, odd, key):
        return even.fill_(0), odd.fill_(2**32 - 1)

    monkeypatch.setattr(module, "_philox", extremes)
    stream = Streams(RUNS)("train/noise")
    low, high = stream.uniform(2, dtype=dtype)[0].tolist()
    assert 0 < low < 1e-4
    assert 0.99 < high < 1
    assert torch.isfinite(stream.normal(2, dtype=dtype)).all()


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
    for count, start in ((1, 0), (100_003, 0), (50, 4 * 2**32 - 5)):
        assert torch.equal(there.integers(count, start).cpu(), here.integers(count, start))
    assert torch.equal(there.uniform(100_003).cpu(), here.uniform(100_003))
    assert torch.equal(there.signs(100_003).cpu(), here.signs(100_003))
    normal = there.normal(100_003)
    torch.testing.assert_close(normal.cpu(), here.normal(100_003), rtol=0, atol=1e-12)
    # On the device itself, a draw is bitwise the same alone, as a prefix and in other pieces.
    alone = Streams(RUNS[1:2], device="cuda")("train/noise")
    assert torch.equal(alone.normal(777), normal[1:2, :777])
    monkeypatch.setattr(module, "_piece_size", lambda device: 1001)
    assert torch.equal(there.normal(100_003), normal)
