"""Tests properties of every sampler besides its law: repeatability, independent streams, and clear errors."""

from dataclasses import replace

import pytest
import torch

from sbmt import BlockModel, SbmtError, sample_edges
from sbmt.samplers.exact import sample_exact
from tests.block_model.crossed_models import crossed_model
from tests.samplers.laws import each_draw, each_link, random_model, rebuilt, repeat_rows, uneven_model

REAL_TOKENS = (7, [7, 5, 1, 0, 6, 7]), (9, [9, 9, 2, 4, 1, 0])
MASKS = tuple(torch.arange(n) < torch.tensor(real)[:, None] for n, real in REAL_TOKENS)


@pytest.fixture(params=["padded", "uneven rows", "crossed"])
def model(request):
    """Returns rows of all kinds: certain, sparse and empty, drawn by points and drawn key by key."""
    if request.param == "padded":
        return random_model(6, 2, 7, 9, 3, masks=MASKS)
    return uneven_model() if request.param == "uneven rows" else crossed_model(n_keys=120, scale=0.5, is_padded=True)


def assert_same(edges, expected):
    assert torch.equal(edges.row_ptr, expected.row_ptr) and torch.equal(edges.keys, expected.keys)
    if expected.multiplicity is not None:
        assert torch.equal(edges.multiplicity, expected.multiplicity)


@each_draw
def test_a_seed_fixes_the_edges_and_another_seed_changes_them(draw, model):
    assert_same(draw.edges(model, 0.1, seed=1), draw.edges(model, 0.1, seed=1))
    assert draw.edges(model, 0.1, seed=1).cells().tolist() != draw.edges(model, 0.1, seed=2).cells().tolist()


def test_a_call_takes_one_int64_from_the_generator_which_is_torch_s_by_default():
    model = random_model(2, 2, 7, 9, 3)
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    edges = sample_edges(model, exploration=0.1, generator=one)
    torch.randint(-(1 << 63), (1 << 63) - 1, (), dtype=torch.int64, generator=other)
    assert torch.equal(one.get_state(), other.get_state())
    torch.manual_seed(3)
    assert_same(sample_edges(model, "exact", exploration=0.1), edges)  # and exact is the default


@each_draw
def test_a_batch_may_be_split(draw, model):
    whole = draw.edges(model, 0.1, first_example=100).to_dense()
    for first, last in ((0, 1), (1, model.shape[0])):
        masks = (None if mask is None else mask[first:last] for mask in (model.query_mask, model.key_mask))
        piece = rebuilt(model, lambda x: x[first:last], lambda x: x[first:last], *masks)  # noqa: B023
        piece = draw.edges(piece, 0.1, first_example=100 + first)
        assert torch.equal(piece.to_dense(), whole[first:last])


@each_draw
def test_edges_depend_on_no_other_example_or_head(draw):
    model = random_model(6, 2, 7, 9, 3, masks=MASKS)
    expected = draw.edges(model, 0.1).to_dense()
    query, block = model.query_membership.clone(), model.block_matrix.clone()
    query[1:], block[1] = query[1:].flip(2), block[1].T / 2
    found = draw.edges(BlockModel(query, block, model.key_membership, *MASKS), 0.1).to_dense()
    assert torch.equal(found[0, 0], expected[0, 0])
    assert not torch.equal(found[1, 0], expected[1, 0]) and not torch.equal(found[0, 1], expected[0, 1])
    first = BlockModel(model.query_membership[:, :1], block[:1], model.key_membership[:, :1], *MASKS)
    assert torch.equal(draw.edges(first, 0.1).to_dense(), expected[:, :1])


@each_draw
@pytest.mark.parametrize("is_crossed", [False, True])
def test_the_number_of_threads_does_not_matter(draw, is_crossed, set_threads):
    model, found = repeat_rows(crossed_model(is_padded=True) if is_crossed else uneven_model(), 20, 30), []
    for n_threads in (1, 3):
        set_threads(n_threads)
        found.append(draw.edges(model, 0.05))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("window", [0, 5, 1000])
@pytest.mark.parametrize("kind", ["dense", "thin", "crossed", "thin crossed"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_window_is_united_with_the_drawn_edges(kind, is_padded, window):
    n = 9 if "thin" not in kind else 300
    masks = [torch.arange(n) < torch.tensor(real)[:, None] for real in ([n, 4], [6, n])] if is_padded else (None, None)
    model = crossed_model(n_keys=n, scale=0.1) if "crossed" in kind else random_model(2, 3, n, n, 3)
    token = torch.arange(n) % model.shape[2]
    scale = 0.02 if kind == "thin" else 1.0
    model = rebuilt(model, lambda x: scale * x[:, :, token] if scale < 1 else x[:, :, token], lambda x: x, *masks)
    for seed in range(3):
        alone, together = (sample_exact(model, 0.01, seed, 0, width) for width in (None, window))
        expected = alone.with_window(window)
        assert 0 < alone.n_edges < expected.n_edges
        assert_same(together, expected)


@each_draw
def test_edge_lists_have_the_model_s_masks_and_algorithm_1_counts_repeats(draw, model):
    edges = replace(draw.edges(model, 0.3), check=True)
    for name in ("query_mask", "key_mask"):
        assert getattr(edges, name) is getattr(model, name) or torch.equal(getattr(edges, name), getattr(model, name))
    assert (edges.multiplicity is not None) == (draw.sampler == "fastrg")
    if edges.multiplicity is not None:
        assert int(edges.multiplicity.min()) == 1 < int(edges.multiplicity.max())


@each_draw
@each_link
def test_rates_of_zero_give_no_edge_and_no_gradient_is_recorded(draw, link):
    query, key = torch.ones(2, 1, 3, 2, requires_grad=True), torch.ones(1, 1, 4, 2)
    assert draw.edges(BlockModel(query, torch.zeros(1, 2, 2), key, link=link)).n_edges == 0
    assert draw.edges(BlockModel(0 * query, torch.ones(1, 2, 2), 0 * key, link=link)).n_edges == 0
    edges = draw.edges(BlockModel(query, torch.ones(1, 2, 2) / 4, key, link=link), 0.1)
    assert edges.n_edges and not edges.keys.requires_grad and query.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rates_over_all_magnitudes(dtype):
    """Rates go from 1e30 to the smallest number of a type; certain edges are drawn, nearly impossible ones are not."""
    many = torch.ones(2, 1, 50, 1, dtype=dtype)
    for rate in (30.0, 1e30):
        block = torch.full((1, 1, 1), rate, dtype=dtype)
        assert sample_edges(BlockModel(many, block, many, link="poisson")).n_edges == 2 * 50 * 50
    size = torch.logspace(0, -30, 400, dtype=dtype)[None, None, :, None]
    ones = torch.ones(1, 1, 1, dtype=dtype)
    counts = sample_edges(BlockModel(ones[None].expand(1, 1, 200, 1), ones, size)).to_dense()[0, 0].sum(0)
    assert counts[0] == 200 and 0 < counts[20] < 60 and counts[150:].sum() == 0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "gibbs"}, "sampler to be one of 'exact', 'fastrg', 'bernoulli', got 'gibbs'"),
        ({"exploration": 1.0}, r"exploration δ in \[0, 1\), got 1.0"),
        ({"exploration": float("nan")}, r"exploration δ in \[0, 1\), got nan"),
        ({"generator": 42}, r"torch\.Generator or None, got int"),
        ({"first_example": -1}, "first_example must be an integer .* got -1"),
        ({"first_example": 1 << 32}, "first_example must be an integer"),
        ({"model": torch.ones(1, 1, 2, 2)}, "a BlockModel, got Tensor"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_drawn(options, message):
    before = torch.get_rng_state()
    with pytest.raises(SbmtError, match=message):
        sample_edges(options.pop("model", random_model(1, 1, 2, 2, 2)), **options)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.bad_input
def test_algorithm_1_refuses_rates_that_it_could_not_draw():
    one = torch.ones(1, 1, 4, 1)
    model = BlockModel(one, torch.full((1, 1, 1), 1e9), one, link="poisson")
    with pytest.raises(SbmtError, match="sampler='exact'"):
        sample_edges(model, "fastrg")
    assert sample_edges(model, "exact").n_edges == 16
