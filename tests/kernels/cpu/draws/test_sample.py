"""The compiled sampler where numbers are extreme, and how it chooses between its two ways."""

import pytest
import torch

from sbmt import BlockModel, sample_edges
from sbmt.kernels.cpu.draws import sample
from tests.kernels.cpu.samples import uneven_model
from tests.samplers.laws import Draw

WAYS = ["exact", "exact by skipping", "exact by clusters"]
each_way = pytest.mark.parametrize("draw", WAYS, indirect=True)


@each_way
@pytest.mark.parametrize("tiny", [1e-30, 1e-40])
def test_a_cluster_that_hardly_anyone_belongs_to_changes_nothing(draw, tiny):
    """The second key's probability is 0 by the second cluster; the first cluster's memberships are next to nothing."""
    keys = torch.tensor([[tiny, 1.0], [0.0, 0.0]])[None, None]
    model = BlockModel(torch.ones(1, 1, 500, 2), torch.tensor([[[0.0, 0.9], [0.0, 0.0]]]), keys)
    counts = draw.edges(model).to_dense()[0, 0].sum(0)
    assert 400 < counts[0] < 500 and counts[1] == 0


@pytest.mark.parametrize("rate", [30.0, 1e30])
def test_rates_far_above_one_draw_every_pair(rate):
    ones = torch.ones(2, 1, 50, 1)
    edges = sample_edges(BlockModel(ones, torch.full((1, 1, 1), rate), ones, link="poisson"))
    assert edges.n_edges == 2 * 50 * 50


@each_way
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_memberships_over_all_magnitudes(draw, dtype):
    """Rates from 1 down to what a type can just hold: certain edges are there, all but impossible ones are not."""
    size = torch.logspace(0, -30, 31, dtype=dtype)[None, None, :, None]
    model = BlockModel(torch.ones(1, 1, 200, 1, dtype=dtype), torch.ones(1, 1, 1, dtype=dtype), size)
    counts = draw.edges(model).to_dense()[0, 0].sum(0)
    assert counts[0] == 200 and 0 < counts[1] < 100 and (counts[8:] == 0).all()


def test_each_way_is_taken_where_it_is_cheaper(monkeypatch):
    """Keys that are alike are skipped through; few keys in a large cluster's tail are walked to."""
    chosen, right = [], sample.prefer_clusters
    monkeypatch.setattr(sample, "prefer_clusters", lambda *arguments: chosen.append(right(*arguments)) or chosen[-1])
    n = 400
    alike = BlockModel(torch.ones(1, 1, n, 1), torch.full((1, 1, 1), 0.02), torch.ones(1, 1, n, 1))
    keys = torch.full((1, 1, n, 1), 1e-3)
    keys[0, 0, 0] = 1.0
    unlike = BlockModel(torch.ones(1, 1, 50 * n, 1), torch.full((1, 1, 1), 0.9), keys)
    for model in (alike, unlike):
        sample_edges(model)
    assert not chosen[0].any() and chosen[1].all()


def test_a_guide_changes_nothing_but_time(monkeypatch):
    """Nor does a graph with padding, or a number of keys that is no power of two."""
    mask = torch.arange(90) < torch.tensor([[90], [37]])
    model = uneven_model(2, 2, 60, 90, 5)
    model = BlockModel(model.query_membership, model.block_matrix, model.key_membership, None, mask)
    monkeypatch.setattr(sample, "prefer_clusters", lambda *_: torch.ones(240, dtype=torch.bool).numpy())
    drawn = []
    for look_ups in (0.0, 1e9):
        monkeypatch.setattr(sample, "LOOK_UPS", look_ups)
        drawn.append(sample_edges(model, generator=torch.Generator().manual_seed(0)))
    assert drawn[0].n_edges > 500
    assert torch.equal(drawn[0].keys, drawn[1].keys) and torch.equal(drawn[0].row_ptr, drawn[1].row_ptr)


def test_both_ways_may_serve_one_graph(monkeypatch):
    """Rows choose for themselves: their edges are those of the way that each of them took."""
    model = uneven_model(2, 2, 60, 90, 5)
    by_clusters = torch.rand(240, generator=torch.Generator().manual_seed(0)) < 0.5
    monkeypatch.setattr(sample, "prefer_clusters", lambda *_: by_clusters.numpy())
    mixed = Draw("exact", monkeypatch).edges(model).to_dense()
    monkeypatch.undo()
    alone = []
    for way in WAYS[1:]:
        with monkeypatch.context() as patch:
            alone.append(Draw(way, patch).edges(model).to_dense())
    choice = by_clusters.view(2, 2, 60, 1)
    assert torch.equal(mixed, torch.where(choice, alone[1], alone[0])) and not torch.equal(*alone)
