"""Twins among photographs: every pixel says where it is from, so crops can be traced back."""

import pytest
import torch

from sbmt.experiments.data.twins import low_frequencies, sample_twins
from tests.layers.inputs import seeded
from tests.statistics import binomial_p_values

N_PICTURES, SIDE = 14, 4
PICTURES = torch.arange(N_PICTURES * SIDE * SIDE, dtype=torch.uint8).view(N_PICTURES, SIDE, SIDE)


def levels_of(tokens):
    """The grey levels that tokens were made from."""
    return ((tokens + 2) * 63.75).round().long()


def origins_of(tokens, crop):
    """Picture, row and column of the upper left corner of every crop."""
    corner = levels_of(tokens)[..., 0]
    return corner // SIDE**2, corner % SIDE**2 // SIDE, corner % SIDE


@pytest.mark.parametrize("crop", [1, 3])
def test_crops_are_cut_and_marked_one_by_one(crop):
    tokens, labels = sample_twins(PICTURES, 6, 9, crop, generator=seeded())
    assert tokens.shape == (6, 9, crop**2) and tokens.dtype == labels.dtype == torch.float32
    pictures, tops, lefts = (x.tolist() for x in origins_of(tokens, crop))
    for b in range(6):
        for i in range(9):
            picture, top, left = pictures[b][i], tops[b][i], lefts[b][i]
            assert max(top, left) <= SIDE - crop
            cut = [int(PICTURES[picture, top + y, left + x]) for y in range(crop) for x in range(crop)]
            assert levels_of(tokens)[b, i].tolist() == cut
            assert labels[b, i] == any(pictures[b][j] == picture for j in range(9) if j != i)
    assert 0 < labels.mean() < 1


@pytest.mark.statistical(share=0.001)
def test_pictures_and_places_are_uniform_and_twins_as_many_as_of_repeated_tokens(judge):
    """Token 0 and another are of one value with probability 1/n, and else of one picture by chance."""
    n, length = 50_000, 5
    tokens, _ = sample_twins(PICTURES, n, length, 3, generator=seeded())
    pictures, tops, lefts = origins_of(tokens, 3)
    same = 1 / length + (1 - 1 / length) / N_PICTURES
    judge(
        binomial_p_values(torch.bincount(pictures[:, 0], minlength=N_PICTURES), n, 1 / N_PICTURES),
        binomial_p_values(torch.bincount(2 * tops[:, 0] + lefts[:, 0], minlength=4), n, 1 / 4),
        binomial_p_values((pictures[:, :1] == pictures[:, 1:]).sum(0), n, same),
    )


@pytest.mark.parametrize("side", [3, 11])
def test_frequencies_are_those_of_the_cosine_transform(side):
    from scipy.fft import dctn

    crops = torch.randn(2, 5, side * side, generator=seeded())
    found = low_frequencies(crops)
    k = min(side, 6)
    assert found.shape == (2, 5, k * k)
    coefficients = torch.from_numpy(dctn(crops.unflatten(2, (side, side)).double().numpy(), axes=(2, 3)))[..., :k, :k]
    f, g = torch.arange(k)[:, None], torch.arange(k)
    expected = coefficients * (1 + f * f + g * g) ** 0.5 / (2 * side**2)
    torch.testing.assert_close(found.double(), expected.flatten(2), rtol=1e-4, atol=1e-5)
