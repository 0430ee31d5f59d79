"""What the papers make of images: exact norms, noise of the stated size, drawn once for every point of a run."""

import math

import pytest
import torch

from benign.data.constructions import Construction, FrameNoise, PixelNoise, Plain, Rescaled, of_norm
from benign.data.images import Images
from benign.data.model import Sample
from benign.spec.axes import stack
from benign.spec.base import SpecError
from benign.streams import RunId, Streams
from tests.reference import close
from tests.says import says

RUNS = [RunId(3, index, "") for index in range(3)]
NOISY = [PixelNoise(snr=0.5), FrameNoise(snr=0.5, width=2)]


def drawn(construction: Construction, count: int = 20, split: str = "train", **fields) -> Sample:
    data = Images(source="digits", samples=count, tokens=4, construction=construction, **fields)
    return data.sample(Streams(RUNS), split, count, torch.float64)


def pictures(sample: Sample) -> torch.Tensor:
    return Images(source="digits", samples=1, tokens=4).pictures(sample.x)


def test_a_plain_picture_has_the_pixels_of_the_set():
    levels = pictures(drawn(Plain())).mul(255).round()
    assert set(levels.unique().tolist()) <= {round(k * 255 / 16) for k in range(17)}
    assert Plain().signal_norm() is None


def test_a_rescaled_picture_has_the_norm_and_the_shape():
    plain, scaled = drawn(Plain()).x, drawn(Rescaled(norm=3.0)).x
    close(scaled.flatten(2).norm(dim=2), torch.full((3, 20), 3.0, dtype=torch.float64), 1e-12)
    close(scaled / 3, plain / plain.flatten(2).norm(dim=2)[..., None, None], 1e-12)


def test_a_black_picture_stays_black():
    black = torch.zeros(1, 2, 1, 4, 4, dtype=torch.float64)
    black[0, 1] = 0.5
    scaled = of_norm(black, 2.0)
    assert scaled[0, 0].abs().max() == 0
    close(scaled[0, 1].norm(), torch.tensor(2.0, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("snr", [0.2, 2.0])
def test_pixel_noise_has_the_size_of_the_ratio(snr):
    """SNR = norm / (sigma sqrt(d)), Zhang section 6."""
    noisy, mean = drawn(PixelNoise(snr=snr), 200).x, drawn(Rescaled(norm=5.0), 200).x
    noise = (noisy - mean).flatten(1)
    sigma = 5.0 / (snr * math.sqrt(64))
    # 38,400 squares: the relative error of their mean has standard deviation sqrt(2 / 38,400) = 0.0072
    close(noise.square().mean(), torch.tensor(sigma**2, dtype=torch.float64), 4 * 0.0072)
    assert noise.mean().abs() < 4 * sigma / math.sqrt(noise.numel())
    assert PixelNoise(snr=snr, norm=7.0).signal_norm() == 7.0


def test_without_noise_a_clean_picture_remains():
    """Noise falls as 1 / snr: the picture of two ratios follows."""
    low, high = (drawn(PixelNoise(snr=snr)).x for snr in (1.0, 4.0))
    mean = drawn(Rescaled(norm=5.0)).x
    close((low - mean) / 4, high - mean, 1e-12)


@pytest.mark.parametrize(("snr", "a"), [(0.2, 1 / 6), (2.0, 2 / 3), (0.0, 0.0)])
def test_frame_noise_does_not_change_the_inside(snr, a):
    """a times the picture, 1 - a times noise on the frame, SNR = a / (1 - a), Jiang section 6."""
    construction = FrameNoise(snr=snr, width=2, noise_std=0.7)
    assert construction.share() == pytest.approx(a, abs=1e-12)
    plain, noisy = (pictures(drawn(each, 200)) for each in (Plain(), construction))
    noise = noisy - a * plain
    assert noise[..., 2:-2, 2:-2].abs().max() < 1e-15
    frame = torch.ones(8, 8, dtype=torch.bool)
    frame[2:-2, 2:-2] = False
    inked = noise[:, :, 0][..., frame]
    assert inked.shape[-1] == 8 * 8 - 4 * 4
    size = ((1 - a) * 0.7) ** 2
    # 28,800 squares: 4 standard deviations of their mean
    close(
        inked.square().mean(),
        torch.tensor(size, dtype=torch.float64),
        4 * math.sqrt(2 / 28_800),
    )
    assert construction.signal_norm() is None


@pytest.mark.parametrize("construction", NOISY, ids=lambda each: each.kind)
def test_noise_is_fixed_for_a_point_of_a_run(construction):
    first, again = drawn(construction), drawn(construction)
    assert torch.equal(first.x, again.x)
    assert torch.equal(drawn(construction, 10).x, first.x[:, :10])
    noise = first.x - drawn(type(construction)(**{**construction.as_dict(), "snr": 1e9}), 20).x
    assert not torch.allclose(noise[0], noise[1])
    fresh = drawn(construction, split="test/0")
    other = drawn(construction, split="test/1")
    assert not torch.equal(fresh.x, other.x)


def test_another_root_seed_draws_other_pictures_and_noise():
    data = Images(source="digits", samples=5, construction=PixelNoise(snr=0.1))
    one, two = (
        data.sample(Streams([RunId(seed, 0, "")]), "train", 5, torch.float64) for seed in (0, 1)
    )
    assert not torch.equal(one.latent["image"], two.latent["image"])
    assert not torch.allclose(one.x, two.x)


def test_runs_of_a_batch_have_ratios_of_their_own():
    ratios = (0.5, 1.0, 3.0)
    cells = [Images(source="digits", samples=4, construction=PixelNoise(snr=r)) for r in ratios]
    whole = stack(cells, lambda numbers: torch.tensor(numbers, dtype=torch.float64))
    together = whole.sample(Streams(RUNS), "train", 4, torch.float64)
    for run, cell in enumerate(cells):
        alone = cell.sample(Streams([RUNS[run]]), "train", 4, torch.float64)
        close(together.x[run], alone.x[0], 1e-12)


def test_impossible_constructions_are_refused():
    with pytest.raises(SpecError, match=says("`construction.width`", "half", "8")):
        Images(source="digits", samples=4, construction=FrameNoise(snr=1.0))
    with pytest.raises(SpecError, match=says("snr", "greater than 0", "0.0")):
        PixelNoise(snr=0.0)
    with pytest.raises(SpecError, match=says("norm", "greater than 0", "-1.0")):
        Rescaled(norm=-1.0)
