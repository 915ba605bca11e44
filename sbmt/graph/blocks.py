"""Edges as blocks of pairs, the way FlexAttention reads a mask."""

import inspect
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

WORD = 32  # bits


def block_mask(
    rows: Int[Tensor, " n_edges"], keys: Int[Tensor, " n_edges"], shape: tuple[int, int, int, int], block_size: int
) -> "BlockMask":
    """The mask of these edges, in any order, for FlexAttention; see :meth:`sbmt.EdgeList.to_block_mask`.

    Args:
        rows: The query of each edge, numbered over (example, head, query).
        keys: Its key, numbered within the head.
        shape: ``(batch, heads, n_queries, n_keys)``.
        block_size: Pairs that a block holds along either axis.
    """
    from torch.nn.attention.flex_attention import BlockMask

    check_sizes(block_size=block_size)
    batch, heads, n_queries, n_keys = shape
    n_rows, n_columns = -(-n_queries // block_size), -(-n_keys // block_size)  # of blocks, in each graph
    query = rows % n_queries
    place = (rows // n_queries * n_rows + query // block_size) * n_columns + keys // block_size
    block, tile, count = torch.unique(place, return_inverse=True, return_counts=True)

    # A tile of bits for each block that holds an edge, and a tile of zeros for all others.
    n_words = -(-block_size // WORD)
    tiles = torch.full((batch * heads * n_rows * n_columns,), len(block), device=rows.device)
    tiles[block] = torch.arange(len(block), device=rows.device)
    words = torch.zeros((len(block) + 1) * block_size * n_words, dtype=torch.int32, device=rows.device)
    word = (tile * block_size + query % block_size) * n_words + keys % block_size // WORD
    words.index_add_(0, word, (1 << keys % block_size % WORD).int())  # distinct bits, whose sum is their union

    def is_edge(example: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        tile = tiles[((example * heads + head) * n_rows + query // block_size) * n_columns + key // block_size]
        word = words[(tile * block_size + query % block_size) * n_words + key % block_size // WORD]
        return (word >> key % block_size % WORD) & 1 == 1

    is_full = count == block_size**2
    partial, full = (_listed(block[chosen], (batch, heads, n_rows, n_columns)) for chosen in (~is_full, is_full))
    return BlockMask.from_kv_blocks(
        *partial,
        *full,
        BLOCK_SIZE=block_size,
        mask_mod=inspect.unwrap(is_edge),  # what checks shapes at run time cannot be compiled
        seq_lengths=(n_queries, n_keys),
    )


def places(name: str, order: Tensor, shape: tuple[int, int, int]) -> Int[Tensor, " tokens"]:
    """The place of each token in an order, numbered over (example, head, place).

    Raises:
        SbmtError: If the order does not name every token of a head once.
    """
    if not isinstance(order, Tensor) or order.dtype != torch.int64 or order.shape != shape:
        got = f"{order.dtype} {tuple(order.shape)}" if isinstance(order, Tensor) else type(order).__name__
        raise SbmtError(f"an order of {name} as int64 {shape}", got, "see BlockModel.cluster_order")
    numbers = torch.arange(shape[2], device=order.device).expand_as(order)
    if not torch.equal(order.sort(-1).values, numbers):
        raise SbmtError(f"an order of {name} that names each once", "another", "take an argsort")
    first = torch.arange(0, order.numel(), shape[2], device=order.device).view(*shape[:2], 1)
    return (torch.empty_like(order).scatter_(-1, order, numbers) + first).flatten()


def _listed(block: Tensor, shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    """How many of the blocks each row of blocks has, and their columns, filled up with zeros."""
    *graphs, n_rows, n_columns = shape
    row, column = block // n_columns, block % n_columns
    count = torch.bincount(row, minlength=graphs[0] * graphs[1] * n_rows)
    columns = torch.zeros(len(count), n_columns, dtype=torch.int32, device=block.device)
    columns[row, torch.arange(len(block), device=block.device) - (count.cumsum(0) - count)[row]] = column.int()
    return count.int().view(*graphs, n_rows), columns.view(shape)
