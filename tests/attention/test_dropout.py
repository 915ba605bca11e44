"""Dropout removes single edges at the requested rate and keeps the mean; test_backends compares backends."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.attention import dispatch, edge_attention
from sbmt.counter_rng import WORD, Purpose, draw_seed, edge_words, examples_from, random_blocks, to_uniform
from sbmt.graph.edges import EdgeList
from sbmt.kernels.operators import cell_uniforms
from tests.attention.row_loop import make_case
from tests.layers.inputs import seeded
from tests.statistics import binomial_p_values


def attention_matrix(case, **arguments):
    """Returns the weights, which can be read from the output if the values are unit vectors."""
    batch, heads, _, n_keys = case.edges.shape
    unit = torch.eye(n_keys, dtype=torch.float64).expand(batch, heads, -1, -1)
    return edge_attention(case.query.detach(), case.key.detach(), unit, case.edges, **arguments)


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("dropout", [0.1, 0.9])
def test_share_and_scale_of_kept_weights(dropout, judge):
    case = make_case(batch=4, heads=3, n_queries=32, n_keys=32, d=4, d_value=1, density=0.7)
    full = attention_matrix(case)[case.mask]
    kept = attention_matrix(case, dropout=dropout, generator=seeded())[case.mask]
    is_kept = kept > 0
    torch.testing.assert_close(kept[is_kept] * (1 - dropout), full[is_kept], rtol=1e-12, atol=0)
    judge(binomial_p_values(is_kept.sum(), is_kept.numel(), 1 - dropout))


def test_one_number_is_drawn_with_dropout_and_none_without():
    case = make_case(batch=1, heads=2, n_queries=5, n_keys=5, d=3, d_value=2)
    untouched, once = seeded(3), seeded(3)
    draw_seed(once)
    for dropout, twin in ((0.0, untouched), (0.3, once)):
        generator = seeded(3)
        attention_matrix(case, dropout=dropout, generator=generator)
        assert torch.equal(generator.get_state(), twin.get_state())


seeds = st.one_of(st.sampled_from([0, -1, -(1 << 63), (1 << 63) - 1, 1 << 32]), st.integers(-(1 << 63), (1 << 63) - 1))


@given(seeds, st.integers(0, 40), st.integers(0, (1 << 31) - 1), st.integers(0, 3), st.integers(0, WORD - 1))
def test_uniforms_equal_those_of_the_plain_twin(seed, row, key, head, example):
    """Each edge has one decision, determined by its address; here the only edge belongs to the last head."""
    row_ptr = torch.zeros(4 * 41 + 1, dtype=torch.int64)
    row_ptr[head * 41 + row + 1 :] = 1
    found = cell_uniforms(row_ptr, torch.tensor([key]), seed, example, 41, 4)
    address = [torch.tensor([x]) for x in (example, head, row)]
    words = random_blocks(seed, Purpose.CELL, *address, torch.tensor([key // 4]))[0]
    assert found.item() == to_uniform(words[key % 4])


@pytest.mark.parametrize(("density", "seed"), [(0.0, 0), (0.1, -1), (0.1, -(1 << 63)), (1.0, 0x1234567890ABCDEF)])
def test_compiled_uniforms_equal_those_of_other_devices_bit_for_bit(density, seed, monkeypatch):
    edges = make_case(batch=3, heads=2, n_queries=17, n_keys=33, d=1, d_value=1, density=density).edges
    compiled = cell_uniforms(edges.row_ptr, edges.keys, seed, 3, 17, 2)
    rows = edges.rows()
    address = rows // 34 + 3, rows // 17 % 2, rows % 17, edges.keys
    assert torch.equal(compiled, to_uniform(edge_words(seed, Purpose.CELL, *address)))
    assert compiled.unique().numel() == edges.n_edges
    scales = [dispatch.dropout_scale(edges, 0.3, seed, 3, torch.float64)]
    monkeypatch.setattr(dispatch, "can_run_on", lambda device: False)
    scales.append(dispatch.dropout_scale(edges, 0.3, seed, 3, torch.float64))
    assert torch.equal(*scales) and torch.equal(scales[0] != 0, compiled >= 0.3)


def test_half_a_batch_drops_the_same_cells_as_the_whole_batch():
    whole = make_case(batch=4, heads=2, n_queries=5, n_keys=7, d=1, d_value=1, density=0.7).edges
    half = type(whole).from_dense(whole.to_dense()[2:])

    def attend(x, edges):
        return edge_attention(x[:, :, :5], x, x, edges, dropout=0.5, generator=seeded(1))

    x = torch.randn(4, 2, 7, 3)
    with examples_from(2):
        found = attend(x[2:], half)
    torch.testing.assert_close(found, attend(x, whole)[2:])
    assert not torch.equal(found, attend(x[2:], half))


@pytest.mark.statistical(share=0.001)
def test_cells_drop_independently_of_each_other(judge):
    """Neighbouring cells of a row, a column, a head and a batch are kept together as often as if independent."""
    case = make_case(batch=8, heads=8, n_queries=32, n_keys=32, d=2, d_value=1, density=1.0)
    case.edges = EdgeList.from_dense(torch.ones(8, 8, 32, 32, dtype=torch.bool))
    is_kept = attention_matrix(case, dropout=0.5, generator=seeded()) > 0
    pairs = [is_kept.unflatten(axis, (-1, 2)).unbind(axis + 1) for axis in range(4)]
    together = [int((first & second).sum()) for first, second in pairs]
    judge(binomial_p_values(together, is_kept.numel() // 2, 0.25))
