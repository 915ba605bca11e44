import pytest
import torch

from sbmt import ExtraKeys, SBMAttention, SbmtError
from sbmt.experiments.training import RepeatedTokensConfig

pytestmark = pytest.mark.bad_input


def test_extra_keys_cost_edges_in_proportion_to_n():
    added = []
    for n in (64, 256, 1024):
        attention = SBMAttention(4, 1, 2, exploration=ExtraKeys(8))
        with torch.no_grad():
            attention.node_mlp[-1].weight.zero_()
            attention.node_mlp[-1].bias.fill_(50.0)
            attention.clusters.fill_(-1.0)  # memberships of zero: every edge is exploration's
        x = torch.randn(4, 1, n, 4)
        edges = attention(x, x, x, return_edges=True, generator=torch.Generator().manual_seed(n)).edges
        added.append(edges.n_edges / (4 * n))
    # Binomial with mean 8 per query over at least 256 queries: eight standard deviations are 1.4.
    assert all(abs(per_query - 8) < 1.4 for per_query in added)


def test_extra_keys_never_exceed_half_the_pairs():
    assert ExtraKeys(100).probability(10) == 0.5


@pytest.mark.parametrize("per_query", [0, -1, float("nan"), float("inf")])
def test_extra_keys_out_of_range_are_refused(per_query):
    with pytest.raises(SbmtError, match="extra keys"):
        ExtraKeys(per_query)


def test_a_run_takes_one_kind_of_exploration():
    assert RepeatedTokensConfig(options={"extra_keys": 2.0}).attention_arguments()["exploration"] == ExtraKeys(2.0)
    with pytest.raises(SbmtError, match="leave one out"):
        RepeatedTokensConfig(options={"extra_keys": 2.0, "exploration": 0.1})
