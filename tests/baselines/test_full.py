"""Full attention is the softmax over all real keys."""

from math import log

import torch

from sbmt.baselines import FullAttention
from tests.attention.row_loop import attend_row_by_row
from tests.baselines.cases import check_against_twin, masked


@masked
def test_it_is_the_row_loop(hides_keys, hides_queries):
    check_against_twin(FullAttention(4, 2), attend_row_by_row, hides_keys, hides_queries)


@masked
def test_scaled_it_is_the_row_loop_over_scores_that_grow_with_ln_n(hides_keys, hides_queries):
    """Example by example, since each has a number of real keys of its own."""
    layer = FullAttention(4, 2, is_log_scaled=True).double()
    with torch.no_grad():
        layer.length_scale.copy_(torch.tensor([0.3, 1.1]))

    def twin(query, key, value, mask):
        n_keys = (6, 0, 3) if hides_keys else (6, 6, 6)
        factors = torch.stack([layer.length_scale * log(max(n, 1)) for n in n_keys])  # batch heads
        return attend_row_by_row(query * factors[..., None, None], key, value, mask)

    check_against_twin(layer, twin, hides_keys, hides_queries)
