import pytest
import torch
from torch.nn.attention.flex_attention import create_mask, flex_attention

from sbmt import BlockModel, EdgeList, SbmtError, edge_attention, sample_edges


@pytest.fixture
def edges():
    """Some of which fill a block of 32 pairs, and one row of which is empty."""
    torch.manual_seed(0)
    mask = torch.rand(2, 3, 100, 140) < 0.004
    mask[0, 0, :32, 32:64] = True
    mask[:, :, 5] = False
    return EdgeList.from_dense(mask)


def orders(edges):
    batch, heads, n_queries, n_keys = edges.shape
    return tuple(torch.rand(batch, heads, n).argsort(-1) for n in (n_queries, n_keys))


def dense_blocks(block_mask, edges):
    """The mask as FlexAttention reads it pair by pair."""
    batch, heads, n_queries, n_keys = edges.shape
    return create_mask(block_mask.mask_mod, batch, heads, n_queries, n_keys, device="cpu")


@pytest.mark.parametrize("block_size", [1, 32, 33, 200])
def test_every_bit_is_that_of_an_edge(edges, block_size):
    assert torch.equal(dense_blocks(edges.to_block_mask(block_size), edges), edges.to_dense())


@pytest.mark.parametrize(("block_size", "is_reordered"), [(16, True), (32, False), (50, True)])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_computes_what_edge_attention_does(edges, block_size, is_reordered):
    batch, heads, n_queries, n_keys = edges.shape
    query, key, value = (torch.randn(batch, heads, n, 8, dtype=torch.float64) for n in (n_queries, n_keys, n_keys))
    ours = edge_attention(query, key, value, edges)
    if is_reordered:
        query_order, key_order = orders(edges)
        query, key, value = (
            torch.take_along_dim(x, order[..., None], 2)
            for x, order in ((query, query_order), (key, key_order), (value, key_order))
        )
        theirs = flex_attention(query, key, value, block_mask=edges.to_block_mask(block_size, (query_order, key_order)))
        theirs = torch.take_along_dim(theirs, query_order.argsort(-1)[..., None], 2)
    else:
        theirs = flex_attention(query, key, value, block_mask=edges.to_block_mask(block_size))
    torch.testing.assert_close(theirs, ours)
    assert not theirs[:, :, 5].any()


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_compiled_flex_attention_computes_it_too(edges):
    query, key, value = (torch.randn(*edges.shape[:2], n, 16) for n in (100, 140, 140))
    compiled = torch.compile(flex_attention, dynamic=False)
    torch.testing.assert_close(
        compiled(query, key, value, block_mask=edges.to_block_mask()), edge_attention(query, key, value, edges)
    )


def test_blocks_are_empty_partial_or_full():
    mask = torch.zeros(1, 1, 256, 384, dtype=torch.bool)
    mask[0, 0, :128, 128:256] = True
    mask[0, 0, 200, 300] = mask[0, 0, 200, 5] = True
    blocks = EdgeList.from_dense(mask).to_block_mask()
    assert blocks.kv_num_blocks.tolist() == [[[0, 2]]] and blocks.kv_indices[0, 0, 1, :2].tolist() == [0, 2]
    assert blocks.full_kv_num_blocks.tolist() == [[[1, 0]]] and blocks.full_kv_indices[0, 0, 0, 0] == 1
    assert blocks.seq_lengths == (256, 384) and blocks.q_num_blocks.tolist() == [[[1, 0, 1]]]


def test_tokens_in_the_order_of_their_clusters_leave_one_block_per_cluster():
    torch.manual_seed(1)
    n, k = 128, 8
    query, key = (torch.eye(k)[torch.randperm(n) % k][None, None].expand(2, 3, n, k) for _ in "qk")
    attends = torch.eye(k).roll(3, 1)  # cluster a attends a + 3
    block_model = BlockModel(query, attends.expand(3, k, k), key)
    edges = sample_edges(block_model)
    size = n // k
    count = [edges.to_block_mask(size, order).full_kv_num_blocks.sum() for order in (None, block_model.cluster_order())]
    assert count == [0, 2 * 3 * k]
    assert edges.n_edges == 2 * 3 * k * size**2


def test_what_is_no_order_is_refused(edges):
    query_order, key_order = orders(edges)
    with pytest.raises(SbmtError, match="order of keys as int64"):
        edges.to_block_mask(16, (query_order, query_order))
    with pytest.raises(SbmtError, match="names each once"):
        edges.to_block_mask(16, (torch.zeros_like(query_order), key_order))
    with pytest.raises(SbmtError, match="block_size"):
        edges.to_block_mask(0)
