"""Tests the probability of every cell for every sampler, with any shape and padding."""

import pytest
import torch

from tests.block_model.crossed_models import crossed_model
from tests.samplers.laws import SHARE, each_draw, each_link, law_p_values, random_model, stacked, uniform_model

pytestmark = pytest.mark.statistical(share=SHARE)


@each_draw
@each_link
@pytest.mark.parametrize("exploration", [0.0, 0.3])
def test_cells_have_their_probability(draw, link, exploration, judge):
    model = stacked(link=link)
    judge(law_p_values(draw.masks(model, draw.n_masks, exploration), draw.law(model, exploration)))


PADDING = (
    torch.tensor([[True] * 4, [True, False, True, False], [False] * 4]),
    torch.tensor([[False, True, True], [True, True, False], [True] * 3]),
)
SHAPES = {  # examples, heads, queries, keys, clusters
    "one token": (1, 1, 1, 1, 2),
    "one cluster": (1, 2, 3, 3, 1),
    "one query": (1, 1, 1, 9, 3),
    "one key": (1, 1, 9, 1, 3),
    "padding": (3, 2, 4, 3, 2),
}


@each_draw
@each_link
def test_cells_have_their_probability_in_odd_shapes(draw, link, judge):
    p_values = []
    for name, shape in SHAPES.items():
        model = random_model(*shape, masks=PADDING if name == "padding" else (None, None), link=link)
        p_values.append(law_p_values(draw.masks(model, draw.n_masks // 2, 0.1), draw.law(model, 0.1)))
    judge(*p_values)


@pytest.mark.parametrize("draw", ["exact", "exact by points", "torch by candidates"], indirect=True)
@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("exploration", [0.0, 0.1])
def test_crossed_models_have_the_law_of_their_dense_twins(draw, exploration, is_padded, judge):
    model = crossed_model(is_padded=is_padded)
    probability = draw.law(model, exploration)
    assert 0.02 < probability[probability > 0].min() < probability.max() < 0.99
    judge(law_p_values(draw.masks(model, 2000, exploration), probability))


@pytest.mark.parametrize("draw", ["exact", "torch by candidates"], indirect=True)
def test_crossed_models_with_many_keys_in_each_pair_of_parts(draw, judge):
    model = crossed_model(n_keys=400, size=4, scale=0.05)
    judge(law_p_values(draw.masks(model, 1000, 0.01), draw.law(model, 0.01)))


@pytest.mark.parametrize("draw", ["exact by points", "torch by candidates"], indirect=True)
@pytest.mark.parametrize("probability, n_masks", [(0.02, 132), (0.5, 1668), (0.9, 600), (0.999, 80)])
def test_thinned_candidates_have_their_law_to_a_thousandth(draw, probability, n_masks, judge):
    """Two standard deviations of the density are at most 0.001."""
    model = uniform_model(probability, 30, 20)
    judge(law_p_values(draw.masks(model, n_masks), draw.law(model)))
