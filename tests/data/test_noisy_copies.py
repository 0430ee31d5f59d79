"""Copies of training points share signal, label and noise, and have injected noise of their own."""

import torch

from benign.data.noisy_copies import NoisyCopies
from benign.data.signal_noise import SignalNoise
from tests.reference import close, doubles
from tests.reference.laws import draw

FIELDS = {"samples": 12, "tokens": 3, "dim": 40, "signal": 2.0, "noise_std": 0.5}


def copied(**fields) -> NoisyCopies:
    return NoisyCopies(**({**FIELDS, "copies": 3, "injected_std": 0.2} | fields))


def test_without_injected_noise_copies_are_the_points_of_signal_noise():
    points = draw(SignalNoise(**{**FIELDS, "samples": 4}))
    copies = draw(copied(injected_std=0.0))
    assert torch.equal(copies.x, points.x.repeat_interleave(3, 1))
    assert torch.equal(copies.y, points.y.repeat_interleave(3, 1))


def test_copies_differ_by_noise_of_the_stated_size_on_noise_tokens_alone():
    sample = draw(copied(samples=300, projected=True))
    groups = sample.x.unflatten(1, (-1, 3))
    assert torch.equal(groups[:, :, 0, 0], groups[:, :, 2, 0])
    apart = (groups[:, :, 0, 1:] - groups[:, :, 1, 1:]).square().mean()
    # a difference of two; 2 of 40 coordinates are projected off; 8000 squares: 5 standard deviations
    close(apart, doubles(2 * 0.2**2 * 38 / 40)[0], 0.08)
    along = torch.einsum("rnmd,rsd->rnms", sample.x[:, :, 1:], sample.latent["signal"])
    assert along.abs().max() < 1e-12


def test_fresh_points_are_those_of_signal_noise():
    fresh = draw(copied(), split="test/0")
    assert torch.equal(fresh.x, draw(SignalNoise(**FIELDS), split="test/0").x)
