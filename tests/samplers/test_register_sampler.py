"""A sampler of the user's: taken by its name, everywhere, and refused where it cannot be what it says."""

from dataclasses import replace

import pytest
import torch

from sbmt import BlockModel, EdgeList, SBMAttention, SbmtError, sample_edges, samplers
from sbmt.counter_rng import examples_from
from sbmt.samplers import register_sampler
from sbmt.samplers.bernoulli import sample_bernoulli


@pytest.fixture(autouse=True)
def table():
    """The table of samplers, restored after the test, in place: layers hold the table itself."""
    before = dict(samplers.SAMPLERS)
    yield
    samplers.SAMPLERS.clear()
    samplers.SAMPLERS.update(before)


class Recorded:
    """The dense sampler, with notes of what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, block_model, exploration, seed, first_example):
        assert not torch.is_grad_enabled()
        self.calls.append((exploration, seed, first_example))
        return sample_bernoulli(block_model, exploration, seed, first_example)


def test_it_is_called_by_its_name_with_what_was_asked_for(make_block_model):
    mine, model = Recorded(), make_block_model(is_padded=True)
    register_sampler("mine", mine)
    with examples_from(4):
        found = sample_edges(
            model, "mine", exploration=0.25, generator=torch.Generator().manual_seed(3), first_example=2
        )
        expected = sample_edges(
            model, "bernoulli", exploration=0.25, generator=torch.Generator().manual_seed(3), first_example=2
        )
    assert torch.equal(found.cells(), expected.cells())
    low, high = -(1 << 63), (1 << 63) - 1
    seed = int(torch.randint(low, high, (), dtype=torch.int64, generator=torch.Generator().manual_seed(3)))
    assert mine.calls == [(0.25, seed, 6)]


def test_layers_take_it_and_train(make_block_model):
    mine = Recorded()
    register_sampler("mine", mine)
    layer, x = SBMAttention(4, 2, 3, sampler="mine", exploration=0.1), torch.randn(1, 2, 5, 4)
    layer(x, x, x).values.square().sum().backward()
    layer.eval()(x, x, x)
    assert [exploration for exploration, _, _ in mine.calls] == [0.1, 0.0]
    assert (layer.clusters.grad != 0).any() and "sampler='mine'" in repr(layer)


def test_layers_take_no_name_that_is_not_registered_yet():
    with pytest.raises(SbmtError, match="sampler among 'exact', 'fastrg', 'bernoulli'.*got 'later'"):
        SBMAttention(4, 2, 3, sampler="later")
    register_sampler("later", sample_bernoulli)
    assert SBMAttention(4, 2, 3, sampler="later").sampler == "later"


def test_a_name_of_ones_own_may_be_given_anew(make_block_model):
    register_sampler("mine", lambda *four: 1 / 0)
    register_sampler("mine", sample_bernoulli)
    assert sample_edges(make_block_model(), "mine").n_edges > 0


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["exact", "bernoulli", "fastrg"])
def test_names_of_the_library_stay_its_own(name):
    with pytest.raises(SbmtError, match=f"does not use for a sampler, got '{name}'"):
        register_sampler(name, sample_bernoulli)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("draw", "got"),
    [
        ("exact", "got str"),
        (lambda block_model, generator: None, "too many positional arguments"),
        (lambda a, b, c, d, e: None, "missing a required argument: 'e'"),
    ],
)
def test_what_cannot_be_called_is_refused_at_once(draw, got):
    with pytest.raises(SbmtError, match=got) as caught:
        register_sampler("mine", draw)
    assert "sampler(block_model, exploration, seed, first_example)" in str(caught.value)
    assert "mine" not in samplers.SAMPLERS


def without_mask(block_model, *rest):
    return replace(sample_bernoulli(block_model, *rest), key_mask=None)


def of_another_shape(block_model, *rest):
    return sample_bernoulli(block_model, *rest).transpose()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("draw", "got"),
    [
        (lambda model, *rest: model.expected_mask() > 0, "got Tensor"),
        (lambda *four: None, "got NoneType"),
        (of_another_shape, r"shape \(2, 3, 5, 7\) from sampler 'mine', got \(2, 3, 7, 5\)"),
        (without_mask, "the block model's key_mask on edges from sampler 'mine', got another"),
    ],
)
def test_what_it_returns_must_fit(draw, got, make_block_model):
    register_sampler("mine", draw)
    with pytest.raises(SbmtError, match=got):
        sample_edges(make_block_model(is_padded=True), "mine")


def test_masks_that_the_block_model_has_not_are_refused(make_block_model):
    model = make_block_model()
    real = torch.ones(model.shape[0], model.shape[2], dtype=torch.bool)
    register_sampler("mine", lambda model, *rest: replace(sample_bernoulli(model, *rest), query_mask=real))
    with pytest.raises(SbmtError, match="query_mask"):
        sample_edges(model, "mine")


def test_every_sampler_of_ours_returns_what_fits(make_block_model):
    for name in samplers.RESERVED:
        for link in ("bilinear", "poisson"):
            model = make_block_model(is_padded=True, link=link)
            assert isinstance(model, BlockModel) and isinstance(sample_edges(model, name), EdgeList)
