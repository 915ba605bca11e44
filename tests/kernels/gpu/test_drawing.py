"""The sampling kernel: the law of every cell, and edges that depend on nothing but their address."""

import numpy as np
import pytest
import torch

from sbmt import BlockModel, EdgeList
from sbmt.kernels.gpu import draws as gpu_draws
from sbmt.kernels.gpu import is_interpreted
from sbmt.samplers.bernoulli import sample_bernoulli
from sbmt.samplers.exact import sample_exact
from tests.kernels.gpu.device import DEVICE
from tests.statistics import binomial_p_values

SHARE = 0.001
N_KINDS, N_REPEATS = 8, 512


@pytest.fixture(autouse=True)
def by_kernel(monkeypatch):
    """Always draws by this kernel. It takes many keys at a time in the interpreter, whose time goes by operations."""
    monkeypatch.setattr("sbmt.kernels.draws.can_run_on", lambda device: False)
    monkeypatch.setattr(gpu_draws, "VISITS_PER_CANDIDATE", float("inf"))
    if is_interpreted():
        monkeypatch.setattr(gpu_draws, "VISITS", 1024)


def repeated_model(link="bilinear", scale=0.4, n_queries=6, is_padded=False):
    """Keys of eight kinds, each many times in a row of keys, so that one draw tells much about each probability."""
    generator = torch.Generator().manual_seed(1)
    query, kinds = (torch.rand(1, 2, n, 5, generator=generator) for n in (n_queries, N_KINDS))
    block = torch.rand(2, 5, 5, generator=generator) * scale
    block[:, 0] *= 3  # asymmetric
    query[:, :, 0] = 0  # a row without edges
    kinds[:, :, 0, 1:] = 0  # memberships that differ much
    key = kinds.repeat(1, 1, N_REPEATS, 1)
    masks = (None, None)
    if is_padded:
        masks = (torch.arange(n_queries)[None] != 1), (torch.arange(key.shape[2])[None] < key.shape[2] - 3 * N_KINDS)
    moved = [t.to(DEVICE) for t in (query, block.clamp(max=1.0) if link == "bilinear" else 3 * block, key)]
    return BlockModel(*moved, *(None if mask is None else mask.to(DEVICE) for mask in masks), link=link)


def checked(edges):
    """The same edges after every check of :class:`EdgeList`, on the CPU."""
    parts = [t if t is None else t.cpu() for t in (edges.row_ptr, edges.keys)]
    masks = [t if t is None else t.cpu() for t in (edges.query_mask, edges.key_mask)]
    return EdgeList(*parts, edges.shape, *masks, check=True)


@pytest.mark.statistical(share=SHARE)
@pytest.mark.parametrize(
    ("link", "exploration", "is_padded"),
    [("bilinear", 0.0, False), ("bilinear", 0.03, True), ("poisson", 0.0, True), ("poisson", 0.03, False)],
)
def test_every_kind_of_pair_has_its_probability(link, exploration, is_padded, judge):
    model = repeated_model(link, is_padded=is_padded)
    mask = checked(sample_exact(model, exploration, 123456789, 3)).to_dense()[0]
    probability = model.expected_mask(exploration)[0, :, :, :N_KINDS].double().cpu().numpy()
    n_repeats = N_REPEATS - 3 * is_padded
    found = mask[..., : n_repeats * N_KINDS].unflatten(2, (n_repeats, N_KINDS)).sum(2).numpy()
    assert 0.02 < probability.mean() < 0.9
    judge(binomial_p_values(found, n_repeats, np.round(probability, 7)))


@pytest.mark.statistical(share=SHARE)
def test_neighbours_are_drawn_apart(judge):
    """Gaps between visits are where dependence would show: pairs of keys at distance one to three coincide as coins."""
    model = repeated_model()
    mask = checked(sample_exact(model, 0.0, 99, 0)).to_dense()[0].numpy()
    probability = np.round(np.tile(model.expected_mask()[0, :, :, :N_KINDS].double().cpu().numpy(), N_REPEATS), 7)
    p_values = []
    for distance in (1, 2, 3):
        together, both = mask[..., :-distance] & mask[..., distance:], probability[..., :-distance].copy()
        both *= probability[..., distance:]
        length = (N_REPEATS - 1) * N_KINDS
        counts, expected = (x[..., :length].reshape(*x.shape[:2], -1, N_KINDS) for x in (together, both))
        for start in (0, 1):  # disjoint pairs only, so that counts are binomial
            p_values.append(
                binomial_p_values(counts[:, :, start::2].sum(2), counts[:, :, start::2].shape[2], expected[:, :, 0])
            )
    judge(*p_values)


def test_certain_and_impossible_pairs():
    few, ones = (torch.ones(1, 1, n, 2, device=DEVICE) for n in (10, 70))
    certain = BlockModel(few, torch.full((1, 2, 2), 0.25, device=DEVICE), ones)
    assert checked(sample_exact(certain, 0.0, 7, 0)).n_edges == 10 * 70
    impossible = BlockModel(few, torch.zeros(1, 2, 2, device=DEVICE), ones)
    assert checked(sample_exact(impossible, 0.0, 7, 0)).n_edges == 0
    nobody = torch.zeros(1, 70, dtype=torch.bool, device=DEVICE)
    padded = BlockModel(few, torch.full((1, 2, 2), 0.25, device=DEVICE), ones, None, nobody)
    assert checked(sample_exact(padded, 0.1, 7, 0)).n_edges == 0


def test_edges_depend_on_seed_and_address_alone():
    generator = torch.Generator().manual_seed(2)
    query, key = (torch.rand(4, 2, n, 3, generator=generator).to(DEVICE) for n in (3, 60))
    block = torch.rand(2, 3, 3, generator=generator).to(DEVICE) * 0.2
    whole = checked(sample_exact(BlockModel(query, block, key), 0.01, 5, 0)).to_dense()
    part = checked(sample_exact(BlockModel(query[2:], block, key[2:]), 0.01, 5, 2)).to_dense()
    assert torch.equal(whole[2:], part) and whole.any()
    assert not torch.equal(whole, checked(sample_exact(BlockModel(query, block, key), 0.01, 6, 0)).to_dense())
    again = checked(sample_exact(BlockModel(query, block, key), 0.01, 5, 0)).to_dense()
    assert torch.equal(whole, again)


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_shortcuts_change_no_edge(link, monkeypatch):
    """With that much slack, the rate of every visited key is computed."""
    model = repeated_model(link, n_queries=3)
    usual = checked(sample_exact(model, 0.01, 12, 0))
    monkeypatch.setattr(gpu_draws, "SLACK", 1e9)
    assert torch.equal(checked(sample_exact(model, 0.01, 12, 0)).keys, usual.keys) and usual.n_edges > 1000


def test_unlike_memberships_are_left_to_candidates(monkeypatch):
    called = []
    monkeypatch.setattr(gpu_draws, "VISITS_PER_CANDIDATE", 1e-9)
    monkeypatch.setattr(
        "sbmt.samplers.exact.sample_with_torch",
        lambda *arguments: called.append(arguments) or sample_bernoulli(*arguments),
    )
    model = repeated_model(n_queries=2)
    assert sample_exact(model, 0.01, 5, 7).n_edges > 0 and called == [(model, 0.01, 5, 7)]
