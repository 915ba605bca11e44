"""Fixed masks as edge lists, on real pairs only."""

import torch
from jaxtyping import Bool
from torch import Tensor

from sbmt.errors import SbmtError, check_shape
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import check_mask


def sliding_window(
    shape: tuple[int, int, int, int],
    window: int,
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    *,
    device: torch.device | str = "cpu",
) -> EdgeList:
    """Every token attends the tokens at most ``window / 2`` places away, itself included: |i − j| ≤ w / 2.

    Args:
        shape: ``(batch, heads, n, n)``.
        window: Width w ≥ 0. The paper's GLUE models use 64.
        query_mask: bool ``(batch, n)``, True = real token.
        key_mask: bool ``(batch, n)``, True = real token.
        device: Where the edges live.

    Raises:
        SbmtError: If ``window`` is negative or queries and keys differ in number.

    Cost: O(n · window) per graph.

    Example:
        >>> sliding_window((1, 1, 4, 4), 2).to_dense().int()[0, 0]
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0],
                [0, 1, 1, 1],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    check_shape(shape)
    batch, heads, n, n_keys = shape
    check_window(window, n, n_keys)
    reach = min(window // 2, max(n - 1, 0))
    query = torch.arange(n, device=device)[:, None].expand(n, 2 * reach + 1)
    key = query + torch.arange(-reach, reach + 1, device=device)
    is_inside = ((key >= 0) & (key < n)).expand(batch, heads, n, -1)
    query_mask, key_mask = (
        None if (mask := check_mask(name, given, batch, n)) is None else mask.to(device)
        for name, given in (("query_mask", query_mask), ("key_mask", key_mask))
    )
    for mask, token in ((query_mask, query), (key_mask, key)):
        if mask is not None:
            is_inside = is_inside & mask[:, token.clamp(0, n - 1)][:, None]
    first = torch.arange(batch * heads, device=device).view(batch, heads, 1, 1) * n
    cells = (first + query) * n + key
    return EdgeList.from_cells(cells[is_inside], shape, query_mask, key_mask)


def check_window(window: int, n_queries: int, n_keys: int) -> None:
    """Raises SbmtError unless the window is an integer ≥ 0 and queries and keys are as many."""
    if n_queries != n_keys:
        got = f"{n_queries} queries and {n_keys} keys"
        raise SbmtError("as many queries as keys", got, "self-loops and windows need a token to be both")
    if not isinstance(window, int) or window < 0:
        raise SbmtError("an integer window ≥ 0", window, "w attends w / 2 tokens to either side")


def self_loops(
    shape: tuple[int, int, int, int],
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    *,
    device: torch.device | str = "cpu",
) -> EdgeList:
    """Every real token attends itself: the window of width 0."""
    return sliding_window(shape, 0, query_mask, key_mask, device=device)


def is_in_window(edges: EdgeList, window: int) -> Bool[Tensor, " n_edges"]:
    """Whether each edge joins tokens at most ``window / 2`` places apart, in EdgeList order."""
    return (edges.rows() % edges.shape[2] - edges.keys).abs() <= window // 2
