"""Rows of sample pictures: one scale a row, grey or in colours."""

import numpy as np
import pytest

from benign.plot.bars import PictureRow, pictures_figure, scaled
from tests.says import says


def test_numbers_of_a_row_share_one_scale():
    pictures = np.stack([np.full((1, 4, 4), value) for value in (-3.0, 1.0, 5.0)])
    np.testing.assert_allclose(scaled(pictures), [np.full((4, 4), v) for v in (0.0, 0.5, 1.0)])
    constant = scaled(np.full((2, 1, 4, 4), 7.0))
    assert np.isfinite(constant).all()


def test_colours_come_last():
    pictures = np.random.default_rng(0).random((2, 3, 4, 5))
    shown = scaled(pictures)
    assert shown.shape == (2, 4, 5, 3)
    assert shown[1, 2, 3, 0] == pytest.approx(shown[1, 2, 3, 0].clip(0, 1))
    order = np.argsort(pictures[0, 1].ravel())
    assert (np.diff(shown[0, :, :, 1].ravel()[order]) >= 0).all()


def test_every_picture_is_drawn_with_its_row_and_title():
    rows = [
        PictureRow("clean", np.zeros((3, 1, 4, 4)), "abc"),
        PictureRow("noisy", np.ones((3, 3, 4, 4))),
    ]
    figure = pictures_figure(rows, title="a title", caption="a caption")
    assert len(figure.axes) == 6
    assert [ax.get_ylabel() for ax in figure.axes] == ["clean", "", "", "noisy", "", ""]
    assert [ax.get_title() for ax in figure.axes] == ["a", "b", "c", "", "", ""]
    assert all(len(ax.images) == 1 for ax in figure.axes)


def test_rows_of_other_lengths_are_refused():
    rows = [PictureRow("one", np.zeros((2, 1, 4, 4))), PictureRow("two", np.zeros((3, 1, 4, 4)))]
    with pytest.raises(ValueError, match=says("rows", "pictures", "[2, 3]")):
        pictures_figure(rows, title="", caption="")
