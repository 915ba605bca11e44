"""Full attention is the softmax over all real keys."""

from sbmt.baselines import FullAttention
from tests.attention.row_loop import attend_row_by_row
from tests.baselines.cases import check_against_twin, masked


@masked
def test_it_is_the_row_loop(hides_keys, hides_queries):
    check_against_twin(FullAttention(4, 2), attend_row_by_row, hides_keys, hides_queries)
