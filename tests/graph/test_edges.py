"""Compares every view of an edge list with the dense mask, and tests invalid edge lists."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt import EdgeList, SbmtError
from sbmt.graph.patterns import all_pairs, sliding_window

SHAPE = (2, 3, 4, 5)


def random_mask(shape=SHAPE, p=0.4, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < p


@st.composite
def masks(draw, is_square=False):
    """Draws small dense masks, including empty and full ones."""
    batch, heads, n, m = (draw(st.integers(1, 3)) for _ in range(4))
    shape = (batch, heads, n, n if is_square else m)
    cells = draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return torch.tensor(cells).view(shape)


@given(masks())
def test_dense_masks_survive_the_round_trip(mask):
    edges = EdgeList.from_dense(mask)
    assert torch.equal(edges.to_dense(), mask)
    assert edges.shape == tuple(mask.shape) and edges.n_edges == int(mask.sum())
    assert EdgeList(edges.row_ptr, edges.keys, edges.shape, check=True).cell_count == mask.numel()


@given(masks())
def test_rows_keys_and_cells_point_at_the_dense_entries(mask):
    edges = EdgeList.from_dense(mask)
    example, head, query, key = mask.nonzero(as_tuple=True)
    _, heads, n, m = mask.shape
    assert torch.equal(edges.rows(), (example * heads + head) * n + query)
    assert torch.equal(edges.keys, key)
    assert torch.equal(edges.key_rows(), (example * heads + head) * m + key)
    assert torch.equal(edges.cells(), mask.flatten().nonzero().squeeze(1))
    assert torch.equal(edges.degrees(), mask.sum(-1).flatten())


@given(masks())
def test_edge_index_runs_from_keys_to_queries_graph_by_graph(mask):
    _, heads, n, m = mask.shape
    rebuilt = torch.zeros_like(mask)
    index = EdgeList.from_dense(mask).to_edge_index()
    for source, target in index.T.tolist():
        graph, key = divmod(source, m)
        assert graph == target // n
        rebuilt[graph // heads, graph % heads, target % n, key] = True
    assert index.dtype == torch.int64 and torch.equal(rebuilt, mask)


@given(masks(is_square=True), st.randoms(use_true_random=False))
def test_unions_are_logical_or(mask, random):
    other = mask[..., random.sample(range(mask.shape[3]), mask.shape[3])]
    edges = EdgeList.from_dense(mask).union(EdgeList.from_dense(other))
    assert torch.equal(edges.to_dense(), mask | other)
    loops = EdgeList.from_dense(mask).with_window(0)
    assert torch.equal(loops.to_dense(), mask | torch.eye(mask.shape[3], dtype=torch.bool))


def test_scipy_sees_one_graph():
    mask = random_mask()
    for example in range(2):
        for head in range(3):
            matrix = EdgeList.from_dense(mask).to_scipy(example, head)
            assert matrix.shape == (4, 5) and matrix.dtype == bool
            assert np.array_equal(matrix.toarray(), mask[example, head].numpy())


def test_density_is_the_share_of_real_pairs():
    mask, query_mask, key_mask = padded_mask()
    density = EdgeList.from_dense(mask, query_mask, key_mask).density()
    assert density.shape == (2, 3) and density.dtype == torch.float32
    assert torch.allclose(density[0], mask[0].sum((1, 2)) / (4 * 2))
    assert torch.equal(density[1], torch.zeros(3))  # without a real key, 0 / 0 is 0
    assert torch.allclose(EdgeList.from_dense(mask).density(), mask.float().mean((2, 3)))


def padded_mask():
    query_mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    key_mask = torch.tensor([[True] * 2 + [False] * 3, [False] * 5])
    return random_mask() & query_mask[:, None, :, None] & key_mask[:, None, None, :], query_mask, key_mask


def test_masks_count_pairs_and_follow_every_conversion():
    mask, query_mask, key_mask = padded_mask()
    edges = EdgeList.from_dense(mask, query_mask, key_mask)
    assert edges.n_pairs.tolist() == [8, 0]
    assert torch.equal(edges.union(edges).key_mask, key_mask)
    assert torch.equal(edges.to("cpu").query_mask, query_mask)


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("window", [0, 1, 4, 100])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_window_is_added_to_the_edges(window, density, is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr("sbmt.graph.edges.can_run_on", lambda device: False)
    queries, keys = torch.tensor([[True] * 6, [True] * 4 + [False] * 2]), torch.tensor([[False] + [True] * 5])
    mask = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)) < density
    edges = EdgeList.from_dense(mask & queries[:, None, :, None] & keys[:, None, None], queries, keys)
    near = sliding_window(edges.shape, window, queries, keys)
    joined = edges.with_window(window)
    EdgeList(joined.row_ptr, joined.keys, edges.shape, queries, keys, check=True)
    assert torch.equal(joined.to_dense(), edges.to_dense() | near.to_dense())
    assert torch.equal(joined.is_near(window), near.to_dense()[joined.to_dense()])
    assert not joined.is_near(None).any()
    with pytest.raises(SbmtError, match="window ≥ 0"):
        edges.with_window(-1)


def test_a_mask_of_one_row_serves_all_examples():
    mask = random_mask()
    real = torch.tensor([[True, True, False, True, True]])
    edges = EdgeList.from_dense(mask & real, key_mask=real)
    assert edges.key_mask.shape == (2, 5) and edges.n_pairs.tolist() == [16, 16]


def test_a_union_drops_multiplicities():
    mask = random_mask()
    many = torch.arange(int(mask.sum())) + 1
    edges = EdgeList.from_cells(mask.flatten().nonzero().squeeze(1), SHAPE, multiplicity=many)
    assert torch.equal(edges.multiplicity, many) and edges.union(edges).multiplicity is None


def parts(**changed):
    """Returns the arguments of a small valid edge list, some of them replaced."""
    valid = {"row_ptr": torch.tensor([0, 2, 3]), "keys": torch.tensor([0, 2, 1]), "shape": (1, 1, 2, 3), "check": True}
    return valid | changed


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"row_ptr": torch.tensor([0, 2, 3], dtype=torch.int32)}, "int64"),
        ({"keys": torch.tensor([0.0, 2.0, 1.0])}, "int64"),
        ({"row_ptr": torch.tensor([0, 3])}, "row_ptr of length 3"),
        ({"row_ptr": torch.tensor([0, 2, 4])}, "end with the number of keys"),
        ({"keys": torch.tensor([[0, 2, 1]])}, "end with the number of keys"),
        ({"shape": (1, 1, 2, 0)}, "at least one example, head, query and key"),
        ({"multiplicity": torch.tensor([1])}, "multiplicity to have one integer per edge"),
        ({"query_mask": torch.ones(1, 2)}, "query_mask to be a bool tensor"),
        ({"key_mask": [True, True, True]}, "key_mask to be a bool tensor"),
        ({"key_mask": torch.ones(1, 2, dtype=torch.bool)}, r"key_mask of shape \(1, 3\)"),
        ({"row_ptr": torch.tensor([1, 2, 3])}, "start at 0"),
        ({"row_ptr": torch.tensor([0, 4, 3])}, "never decrease"),
        ({"keys": torch.tensor([0, 3, 1])}, r"keys in \[0, 3\)"),
        ({"keys": torch.tensor([-1, 2, 1])}, r"keys in \[0, 3\)"),
        ({"keys": torch.tensor([2, 0, 1])}, "strictly ascending"),
        ({"keys": torch.tensor([2, 2, 1])}, "strictly ascending"),
        ({"query_mask": torch.tensor([[True, False]])}, "query_mask is True, got an edge at a padded token"),
        ({"key_mask": torch.tensor([[True, False, True]])}, "key_mask is True, got an edge at a padded token"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(SbmtError, match=message):
        EdgeList(**parts(**changed))


@pytest.mark.bad_input
@pytest.mark.parametrize("mask", [torch.ones(SHAPE), torch.ones(4, 5, dtype=torch.bool), [[True]]])
def test_only_boolean_masks_with_four_dimensions_become_edges(mask):
    with pytest.raises(SbmtError, match="a bool mask"):
        EdgeList.from_dense(mask)


@pytest.mark.bad_input
def test_graphs_over_different_tokens_do_not_combine():
    edges, other = EdgeList.from_dense(random_mask()), EdgeList.from_dense(random_mask((2, 3, 4, 4)))
    masked = EdgeList.from_dense(torch.zeros(SHAPE, dtype=torch.bool), torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(SbmtError, match="the same shape in both lists"):
        edges.union(other)
    with pytest.raises(SbmtError, match="same query_mask"):
        edges.union(masked)
    with pytest.raises(SbmtError, match="an EdgeList, got Tensor"):
        edges.union(edges.to_dense())
    with pytest.raises(SbmtError, match="as many queries as keys"):
        edges.with_window(0)
    with pytest.raises(SbmtError, match="example < 2 and head < 3"):
        edges.to_scipy(0, 3)


def test_densities_have_more_than_16_bits():
    mask = torch.ones(1, 1, 300, 300, dtype=torch.bool)
    torch.set_default_dtype(torch.float16)
    try:
        density = EdgeList.from_dense(mask).density()
    finally:
        torch.set_default_dtype(torch.float32)
    assert density.dtype == torch.float32 and density.item() == 1


# --- fixed masks, compared with the inequalities that define them ---


@pytest.mark.parametrize("window", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("n", [1, 7])
def test_a_window_reaches_half_its_width_to_either_side_of_real_tokens(n, window):
    query_mask, key_mask = torch.arange(n) != 3, torch.arange(n) != torch.tensor([[n], [2]])
    expected = [[abs(i - j) <= window / 2 for j in range(n)] for i in range(n)]
    edges = sliding_window((2, 3, n, n), window, query_mask[None], key_mask)
    mask = torch.tensor(expected) & query_mask[:, None] & key_mask[:, None]
    assert torch.equal(edges.to_dense(), mask[:, None].expand(2, 3, n, n))
    assert torch.equal(sliding_window((2, 3, n, n), window).to_dense()[1, 2], torch.tensor(expected))


def test_all_pairs_are_those_of_real_tokens():
    query_mask, key_mask = torch.tensor([[True, False]]), torch.tensor([[True, False, True], [False] * 3])
    edges = all_pairs((2, 3, 2, 3), query_mask, key_mask)
    expected = torch.tensor([[[1, 0, 1], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]).bool()
    assert torch.equal(edges.to_dense(), expected[:, None].expand(-1, 3, -1, -1))
    assert edges.density().tolist() == [[1.0] * 3, [0.0] * 3]
    assert all_pairs((2, 1, 2, 3)).to_dense().all()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("shape", "window", "message"),
    [
        ((1, 1, 3, 4), 2, "as many queries as keys, got 3 queries and 4 keys"),
        ((1, 1, 3, 3), -1, "an integer window ≥ 0, got -1"),
        ((1, 1, 3, 3), 1.5, "an integer window ≥ 0, got 1.5"),
        ((1, 1, 3, 3), True, "an integer window ≥ 0, got bool True"),
        ((1, 1, 0, 0), 2, "at least one example, head, query and key"),
    ],
)
def test_impossible_windows_are_refused(shape, window, message):
    with pytest.raises(SbmtError, match=message):
        sliding_window(shape, window)


@pytest.mark.bad_input
def test_a_mask_of_other_length_is_refused():
    with pytest.raises(SbmtError, match=r"key_mask of shape \(1, 3\)"):
        sliding_window((1, 1, 3, 3), 2, None, torch.ones(1, 4, dtype=torch.bool))
