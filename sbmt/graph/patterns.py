"""Fixed masks as edge lists: a sliding window and all pairs, both restricted to real tokens."""

import torch
from torch import Tensor

from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import check_shape


def sliding_window(
    shape: tuple[int, int, int, int],
    window: int,
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    causal: bool = False,
    *,
    device: torch.device | str = "cpu",
) -> EdgeList:
    """Creates a mask in which tokens attend to tokens at most ``window / 2`` positions away, |i − j| ≤ window / 2.

    A window of 0 means self-loops; the paper's GLUE models use 64. The other arguments are those of an
    :class:`~sbmt.EdgeList`. There must be as many queries as keys. Cost: O(n · window) per graph.

    Example:
        >>> sliding_window((1, 1, 4, 4), 2).to_dense().int()[0, 0]
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0],
                [0, 1, 1, 1],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    queries, keys = (mask.to(device) if isinstance(mask, Tensor) else mask for mask in (query_mask, key_mask))
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    return EdgeList.from_cells(nothing, shape, queries, keys, causal).with_window(window)


def all_pairs(
    shape: tuple[int, int, int, int],
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    causal: bool = False,
    *,
    device: torch.device | str = "cpu",
) -> EdgeList:
    """Creates a mask of all real pairs, in O(n²) per graph; the arguments are those of :func:`sliding_window`."""
    check_shape(shape)
    pairs = torch.ones(shape, dtype=torch.bool, device=device)
    if causal:
        pairs = pairs.tril(shape[3] - shape[2])
    if query_mask is not None:
        pairs &= query_mask[:, None, :, None]
    if key_mask is not None:
        pairs &= key_mask[:, None, None, :]
    return EdgeList.from_cells(pairs.flatten().nonzero().squeeze(1), shape, query_mask, key_mask, causal)
