"""What tells a mask that has learned something from one that has collapsed."""

import pytest
import torch

from sbmt import SBMAttention
from sbmt.experiments.training.collapse import attention_seen, effective_clusters
from sbmt.experiments.training.fit import fit
from tests.experiments.training.test_fitted import config


def known_layer(scale, n_heads=1):
    """A layer that gives token j to part j of both partitions; tokens are unit vectors."""
    settings = dict(link="poisson", membership="crossed", learning="likelihood", edges_per_query=8.0)
    layer = SBMAttention(8, n_heads, 64, **settings)
    with torch.no_grad():
        layer.node_mlp = torch.nn.Identity()
        layer.log_rate.fill_(1.0)  # so many edges that a query's estimates have hardly any bias
        layer.clusters.copy_(scale * torch.eye(8).repeat(2, 1))
    return layer, torch.eye(8)[None, None]


def test_clusters_are_counted_by_their_use():
    layer, x = known_layer(8.0)
    assert float(effective_clusters(layer, x)) == pytest.approx(8, rel=0.01)
    assert float(effective_clusters(layer, x[..., :1, :].expand(-1, -1, 8, -1))) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("n_heads", [1, 2])
def test_the_attention_seen_is_that_of_full_attention(n_heads):
    layer, x = known_layer(1.0, n_heads)
    x = torch.randn(400, n_heads, 8, 8, generator=torch.Generator().manual_seed(0))
    seen, density = attention_seen(layer, x, x, x, (None, None))
    p = layer.block_model(x, x).expected_mask().detach()
    exact = ((x @ x.mT / 8**0.5).softmax(-1) * p).sum((0, 2, 3)) / (400 * 8)
    torch.testing.assert_close(seen, exact, rtol=0.1, atol=0.0)
    torch.testing.assert_close(density, p.mean().expand(n_heads), rtol=0.1, atol=0.0)


def test_a_collapse_is_told(monkeypatch):
    fit(config())  # too short to be judged; any warning would be an error
    monkeypatch.setattr("sbmt.experiments.training.collapse.LEAST_STEPS", 1)
    with pytest.warns(UserWarning, match="sees .* of the attention with .* of all pairs"):
        fit(config())
    monkeypatch.setattr("sbmt.experiments.training.collapse.LEAST_GAIN", 0.5)
    fit(config())
    monkeypatch.setattr("sbmt.experiments.training.collapse.FEWEST_CLUSTERS", 1e9)
    with pytest.warns(UserWarning, match="clusters of a group"):
        fit(config())
