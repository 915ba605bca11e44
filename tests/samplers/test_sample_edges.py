"""What every sampler promises besides its law: repeatability, streams that do not mix, plain refusals."""

import pytest
import torch

from sbmt import BlockModel, EdgeList, SbmtError, sample_edges
from sbmt.counter_rng import examples_from
from tests.samplers.laws import each_draw, each_link, random_model, stacked

REAL_TOKENS = (7, [7, 5, 1, 0, 6, 7]), (9, [9, 9, 2, 4, 1, 0])
MASKS = tuple(torch.arange(n) < torch.tensor(real)[:, None] for n, real in REAL_TOKENS)


@pytest.fixture(params=["random", "mixed rows"])
def model(request):
    """Six padded examples; or one whose rows partly certain, partly thin, take different paths."""
    if request.param == "random":
        return random_model(6, 2, 7, 9, 3, masks=MASKS)
    mixed = stacked(("one row certain", "zeros"))
    return BlockModel(mixed.query_membership.repeat(6, 1, 1, 1), mixed.block_matrix, mixed.key_membership)


def part(model, examples, heads=slice(None)):
    """A block model of some of the examples and heads."""
    masks = (None if mask is None else mask[examples] for mask in (model.query_mask, model.key_mask))
    memberships = (t[examples, heads] for t in (model.query_membership, model.key_membership))
    query, key = memberships
    return BlockModel(query, model.block_matrix[heads], key, *masks, link=model.link)


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
@each_link
def test_a_batch_may_be_split(draw, model, link):
    model = BlockModel(
        model.query_membership, model.block_matrix, model.key_membership, model.query_mask, model.key_mask, link
    )
    whole = draw.edges(model, 0.1, first_example=100).to_dense()
    for first, last in ((0, 1), (1, 4), (4, 6)):
        piece = draw.edges(part(model, slice(first, last)), 0.1, first_example=100 + first)
        assert torch.equal(piece.to_dense(), whole[first:last])


@each_draw
def test_edges_depend_on_no_other_example_or_head(draw, model):
    expected = draw.edges(model, 0.1).to_dense()
    query, block = model.query_membership.clone(), model.block_matrix.clone()
    query[1:] = query[1:].flip(2)
    other = BlockModel(query, block, model.key_membership, model.query_mask, model.key_mask)
    assert torch.equal(draw.edges(other, 0.1).to_dense()[0], expected[0])
    block[1] = block[1].T / 2
    other = BlockModel(model.query_membership, block, model.key_membership, model.query_mask, model.key_mask)
    found = draw.edges(other, 0.1).to_dense()
    assert torch.equal(found[:, 0], expected[:, 0]) and not torch.equal(found[:, 1], expected[:, 1])
    assert torch.equal(draw.edges(part(model, slice(None), slice(0, 1)), 0.1).to_dense(), expected[:, :1])


@each_draw
def test_the_number_of_threads_does_not_matter(draw, monkeypatch):
    model = random_model(4, 2, 100, 120, 8)
    before, found = torch.get_num_threads(), []
    try:
        for n_threads in (1, 4):
            torch.set_num_threads(n_threads)
            found.append(draw.edges(model, 0.1))
    finally:
        torch.set_num_threads(before)
    assert_same(*found)


@each_draw
def test_pieces_of_bounded_size_do_not_matter(draw, model, monkeypatch):
    whole = draw.edges(model, 0.1)
    for name, size in (("_CELLS_AT_ONCE", 20), ("_EDGES_AT_ONCE", 3), ("_WEIGHTS_AT_ONCE", 10)):
        monkeypatch.setattr(f"sbmt.samplers.exact.{name}", size)
    monkeypatch.setattr("sbmt.kernels.cpu.draws.lookup_tables._ENTRIES", 20)
    monkeypatch.setattr("sbmt.kernels.cpu.draws.pieces._ROOM", 1)
    assert_same(draw.edges(model, 0.1), whole)


@each_draw
def test_edge_lists_are_whole(draw, model):
    edges = draw.edges(model, 0.3)
    EdgeList(edges.row_ptr, edges.keys, model.shape, model.query_mask, model.key_mask, check=True)
    assert edges.shape == model.shape and torch.equal(edges.n_pairs, model.n_pairs)
    assert not edges.to_dense()[model.expected_mask(0.3) == 0].any()
    assert (edges.multiplicity is not None) == (draw.sampler == "fastrg")
    if edges.multiplicity is not None:
        assert int(edges.multiplicity.min()) == 1 < int(edges.multiplicity.max())


@each_draw
@each_link
def test_a_block_matrix_of_zeros_gives_no_edge(draw, link):
    model = BlockModel(torch.ones(2, 1, 3, 2), torch.zeros(1, 2, 2), torch.ones(1, 1, 4, 2), link=link)
    assert draw.edges(model).n_edges == 0
    nobody = BlockModel(torch.zeros(2, 1, 3, 2), torch.ones(1, 2, 2), torch.zeros(1, 1, 4, 2), link=link)
    assert draw.edges(nobody).n_edges == 0


@each_draw
def test_no_gradient_is_recorded(draw):
    query = torch.rand(1, 1, 3, 2, requires_grad=True)
    edges = draw.edges(BlockModel(query, torch.full((1, 2, 2), 0.25), query), 0.1)
    assert not edges.keys.requires_grad and query.grad is None


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "gibbs"}, "sampler among 'exact', 'fastrg', 'bernoulli', got 'gibbs'"),
        ({"exploration": 1.0}, r"exploration δ in \[0, 1\), got 1.0"),
        ({"exploration": -0.01}, r"exploration δ in \[0, 1\), got -0.01"),
        ({"exploration": float("nan")}, r"exploration δ in \[0, 1\), got nan"),
        ({"generator": 42}, r"torch\.Generator or None, got int"),
        ({"first_example": -1}, "first_example ≥ 0, .* got -1"),
        ({"first_example": 0.5}, "an integer first_example ≥ 0, .* got 0.5"),
        ({"first_example": 1 << 32}, "all examples below 2³²"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_drawn(options, message):
    before = torch.get_rng_state()
    with pytest.raises(SbmtError, match=message):
        sample_edges(random_model(1, 1, 2, 2, 2), **options)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.bad_input
def test_only_block_models_are_drawn_from():
    with pytest.raises(SbmtError, match="a BlockModel, got Tensor"):
        sample_edges(torch.ones(1, 1, 2, 2))


@pytest.mark.bad_input
def test_algorithm_1_refuses_rates_that_it_could_not_draw():
    one = torch.ones(1, 1, 4, 1)
    model = BlockModel(one, torch.full((1, 1, 1), 1e9), one, link="poisson")
    with pytest.raises(SbmtError, match="sampler='exact'"):
        sample_edges(model, "fastrg")
    assert sample_edges(model, "exact").n_edges == 16


@pytest.mark.parametrize("sampler", ["exact", "fastrg", "bernoulli"])
def test_a_context_numbers_examples_as_the_argument_does(sampler, make_block_model):
    model = make_block_model(batch=2)
    seed = torch.Generator().manual_seed(3).get_state()

    def draw(first_example=0):
        generator = torch.Generator()
        generator.set_state(seed)
        return sample_edges(model, sampler, generator=generator, first_example=first_example).to_dense()

    with examples_from(4):
        inside = draw(), draw(1)
    assert torch.equal(inside[0], draw(4)) and torch.equal(inside[1], draw(5))
    assert not torch.equal(inside[0], draw())


@pytest.mark.parametrize("first", [-1, 1.5])
@pytest.mark.bad_input
def test_examples_are_numbered_from_a_whole_number(first):
    with pytest.raises(SbmtError, match="first_example ≥ 0"), examples_from(first):
        pass
