"""The static control draws its masks from positions: everything else is SBMAttention."""

import pytest
import torch

from sbmt.errors import SbmtError
from sbmt.layers import SBMAttention
from sbmt.layers.sbm import StaticSBMAttention
from tests.layers.inputs import seeded, tokens

MASK = torch.arange(8) < torch.tensor([[8], [3]])


def make(n_clusters=5, n_positions=10, **settings):
    torch.manual_seed(0)
    return StaticSBMAttention(4, 3, n_clusters, n_positions=n_positions, **settings)


def expected_mask(layer, query, key, *masks):
    return layer.block_model(query, key, *masks).expected_mask()


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_the_block_model_is_that_of_the_tables(link):
    layer = make(link=link).double()
    query, key = tokens(2, 3, 8, dtype=torch.float64), tokens(2, 3, 6, seed=1, dtype=torch.float64)
    plain = SBMAttention(4, 3, 5, link=link).double()
    plain.load_state_dict({name: p for name, p in layer.state_dict().items() if "positions" not in name})
    tables = [t[None].expand(2, -1, -1, -1) for t in (layer.query_positions[:, :8], layer.key_positions[:, :6])]
    found = expected_mask(layer, query, key, MASK, MASK[:, :6])
    torch.testing.assert_close(found, expected_mask(plain, *tables, MASK, MASK[:, :6]), rtol=0, atol=1e-12)


def test_masks_do_not_depend_on_the_input():
    layer, x = make(), tokens()
    for other in (tokens(seed=1), x[[1, 0]], torch.full_like(x, torch.nan)):
        edges = [layer(y, y, y, generator=seeded(), return_edges=True).edges for y in (x, other)]
        assert torch.equal(edges[0].cells(), edges[1].cells())


@pytest.mark.parametrize("what", ["values", "density", "expected_density"])
def test_gradients_reach_the_tables_where_there_are_tokens(what):
    layer, x = make(), tokens(n=7)
    real = torch.arange(7) < torch.tensor([[5], [4]])
    getattr(layer(x, x, x, query_mask=real, key_mask=real, generator=seeded()), what).square().sum().backward()
    for table in (layer.query_positions, layer.key_positions):
        reached = (table.grad != 0).any(-1)
        assert reached[:, :5].any(0).all() and not reached[:, 5:].any()  # a head may have met a dead ReLU
    assert all((p.grad != 0).any() for p in layer.parameters())


@pytest.mark.bad_input
def test_inputs_that_do_not_fit_are_refused():
    layer = make()
    short, long = tokens(n=10), tokens(n=11)
    layer(short, short, short)
    for query, key in ((long, short), (short, long)):
        with pytest.raises(SbmtError, match="at most 10 tokens, got 11"):
            layer(query, key, key)
