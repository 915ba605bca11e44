"""Tests that cells are independent within and across rows, heads and examples, and jointly in a small graph."""

import pytest
import torch

from sbmt import BlockModel
from tests.block_model.crossed_models import crossed_model
from tests.samplers.laws import SHARE, case, each_draw, each_link, random_model, stacked
from tests.statistics import joint_p_values, pair_p_values, pattern_p_value

pytestmark = pytest.mark.statistical(share=SHARE)


@each_draw
@each_link
def test_no_two_cells_of_an_example_are_correlated(draw, link, judge):
    model = random_model(1, 3, 4, 5, 3, link=link)
    masks = draw.masks(model, 4000, 0.1).reshape(4000, -1)  # 60 cells, 1,770 pairs within and across rows and heads
    judge(pair_p_values(masks, draw.law(model, 0.1).ravel()))


@pytest.mark.parametrize("draw", ["exact", "exact by points"], indirect=True)
def test_no_two_cells_of_a_crossed_model_are_correlated(draw, judge):
    model = crossed_model(scale=3.0)
    masks, probability = draw.masks(model, 2000, 0.1)[:, 0, :2], draw.law(model, 0.1)[0, :2]
    judge(pair_p_values(masks.reshape(2000, -1), probability.ravel()))  # 198 cells


@each_draw
def test_consecutive_examples_are_not_correlated(draw, judge):
    model = stacked(("asymmetric", "anti-diagonal", "clamped"))
    masks = draw.masks(model, 4000).reshape(4000, -1)
    probability = draw.law(model).ravel()
    here, there = masks[0::2], masks[1::2]
    judge(joint_p_values(here[:, :, None], there[:, None], probability[:, None], probability))


SMALL = (  # graphs of four cells, all 16 patterns of which are frequent enough for a chi-square test
    case([[0.9, 0.2], [0.3, 0.7]], [[0.6, 0.2], [0.9, 0.1]], [[0.5, 0.6], [0.7, 0.9]]),  # asymmetric
    case([[0.9, 0.8], [0.5, 0.9]], [[0, 0.5], [0.5, 0]], [[0.8, 0.8], [0.9, 0.3]]),  # anti-diagonal
)


@each_draw
def test_all_cells_of_a_small_graph_are_jointly_independent(draw, judge):
    query, block, key = (torch.stack(parts) for parts in zip(*SMALL, strict=True))
    model = BlockModel(query[None], block, key[None])
    masks, probability = draw.masks(model, 24_000).squeeze(1), draw.law(model).squeeze(0)
    judge(*(pattern_p_value(masks[:, h].reshape(24_000, -1), probability[h].ravel()) for h in (0, 1)))
