"""The statistics see what they should: a sampler made wrong on purpose is rejected at the same level."""

import pytest
import torch

from sbmt import BlockModel, SbmtError
from sbmt.kernels.cpu.draws import sample as compiled
from sbmt.samplers import exact, fastrg
from tests.samplers.laws import SHARE, law_p_values, random_model, stacked, uniform_model
from tests.statistics import Judge, joint_p_values, pair_p_values

judge = Judge(SHARE)
by_candidates = pytest.mark.parametrize("draw", ["torch by candidates"], indirect=True)
by_clusters = pytest.mark.parametrize("draw", ["exact by clusters"], indirect=True)
by_skipping = pytest.mark.parametrize("draw", ["exact by skipping"], indirect=True)
by_fastrg = pytest.mark.parametrize("draw", ["fastrg"], indirect=True)


def is_law_rejected(draw, model, n_masks=4000, exploration=0.0):
    return judge.rejects(law_p_values(draw.masks(model, n_masks, exploration), draw.law(model, exploration)))


@by_candidates
def test_a_boost_one_percent_too_small(draw, monkeypatch):
    right = exact._boost
    monkeypatch.setattr(exact, "_boost", lambda *given: 0.99 * right(*given))
    assert is_law_rejected(draw, uniform_model(0.9, 30, 40), n_masks=1200)


@by_clusters
def test_a_compiled_boost_one_percent_too_small(draw, monkeypatch):
    right = compiled._boost
    monkeypatch.setattr(compiled, "_boost", lambda upper: 0.99 * right(upper))
    assert is_law_rejected(draw, uniform_model(0.9, 30, 40), n_masks=1200)


@by_skipping
@pytest.mark.parametrize("bound", ["upper", "at_least", "at_most"])
def test_bounds_that_do_not_hold(draw, bound, monkeypatch):
    def too_tight(model, keys):
        keys.at_least[:] *= 3.0 if bound == "at_least" else 1.0
        keys.at_most[:] *= 0.97 if bound == "at_most" else 1.0
        rows = right(model, keys)
        return rows._replace(upper=rows.upper * (0.98 if bound == "upper" else 1.0))

    right = compiled.bound_rows
    monkeypatch.setattr(compiled, "bound_rows", too_tight)
    keys = torch.tensor([[[[0.9, 0.9], [0.7, 0.2]]]], dtype=torch.float64)
    tight = BlockModel(torch.ones(1, 1, 3, 2).double(), torch.eye(2).double()[None] / 2, keys)
    assert is_law_rejected(draw, tight, n_masks=20_000)


@by_candidates
def test_candidates_that_are_not_thinned(draw, monkeypatch):
    monkeypatch.setattr(exact, "_keep", lambda cells, *_: cells)
    assert is_law_rejected(draw, stacked(["asymmetric"]))


@by_candidates
def test_candidates_that_are_thinned_one_by_one(draw, monkeypatch):
    # A uniform per candidate instead of per distinct pair: draw, thin with fresh numbers, then merge.
    def keep_twice(cells, link, boost, query, key, shape, seed, first_example):
        kept = [right(cells, link, boost, query, key, shape, seed + i, first_example) for i in (0, 1)]
        return torch.cat(kept).unique()

    right = exact._keep
    monkeypatch.setattr(exact, "_keep", keep_twice)
    assert is_law_rejected(draw, stacked(["asymmetric"]))


@by_candidates
def test_candidates_that_are_not_merged(draw, monkeypatch):
    monkeypatch.setattr(torch, "unique", lambda cells: cells.sort().values)
    with pytest.raises(SbmtError, match="strictly ascending"):
        is_law_rejected(draw, stacked(["asymmetric"]))


@by_fastrg
def test_clusters_paired_independently(draw, monkeypatch):
    right = fastrg._with_exploration

    def unpaired(block_model, exploration):
        query, block, key = right(block_model, exploration)
        weight = query.sum(2)[..., :, None] * block * key.sum(2)[..., None, :]
        alone = weight.sum(-1, keepdim=True) * weight.sum(-2, keepdim=True) / weight.sum((-2, -1), keepdim=True)
        return query, alone / query.sum(2)[..., :, None] / key.sum(2)[..., None, :], key

    monkeypatch.setattr(fastrg, "_with_exploration", unpaired)
    assert is_law_rejected(draw, stacked(["anti-diagonal"]))


@pytest.mark.parametrize("draw", ["fastrg", "exact", "torch by candidates"], indirect=True)
def test_exploration_left_out(draw):
    model = uniform_model(0.1, 20, 20)
    assert judge.rejects(law_p_values(draw.masks(model, 2000), draw.law(model, 0.01)))


@pytest.mark.parametrize("draw", ["torch"], indirect=True)
@pytest.mark.parametrize("what", ["head", "query"])
def test_streams_shared_within_an_example(draw, what, monkeypatch):
    def shared(rows, shape, first_example):
        example, head, query = right(rows, shape, first_example)
        return (example, 0 * head, query) if what == "head" else (example, head, 0 * query)

    right = exact.row_address
    monkeypatch.setattr(exact, "row_address", shared)
    model = random_model(1, 2, 3, 4, 2)
    masks, probability = draw.masks(model, 4000), draw.law(model)
    assert not judge.rejects(law_p_values(masks, probability))  # each cell alone looks right
    assert judge.rejects(pair_p_values(masks.reshape(4000, -1), probability.ravel()))


@pytest.mark.parametrize("draw", ["bernoulli"], indirect=True)
def test_streams_shared_by_consecutive_examples(draw, monkeypatch):
    def shared(rows, shape, first_example):
        example, head, query = right(rows, shape, first_example)
        return example // 2, head, query

    from sbmt.samplers import bernoulli

    right = bernoulli.row_address
    monkeypatch.setattr(bernoulli, "row_address", shared)
    model = random_model(1, 1, 3, 4, 2)
    masks, probability = draw.masks(model, 4000), draw.law(model)
    assert not judge.rejects(law_p_values(masks, probability))
    assert judge.rejects(joint_p_values(masks[0::2], masks[1::2], probability, probability))
