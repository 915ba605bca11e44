"""Whether the parts of an edge list fit together."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sbmt.errors import SbmtError, check_shape

if TYPE_CHECKING:
    from sbmt.graph.edges import EdgeList


def check_parts(edges: "EdgeList") -> None:
    """Raises SbmtError where shapes, types or devices do not fit. Cost: O(1)."""
    check_shape(edges.shape)
    batch, heads, n_queries, _ = edges.shape
    for name in ("row_ptr", "keys", "multiplicity"):
        if not isinstance(part := getattr(edges, name), Tensor) and (name != "multiplicity" or part is not None):
            raise SbmtError(f"{name} as a tensor", type(part).__name__, "convert it with torch.as_tensor(…)")
    if edges.row_ptr.device != edges.keys.device:
        raise SbmtError(f"row_ptr on {edges.keys.device}, as the keys", edges.row_ptr.device, "move one of them")
    rows = batch * heads * n_queries
    if edges.row_ptr.dtype != torch.int64 or edges.keys.dtype != torch.int64:
        got = f"{edges.row_ptr.dtype} and {edges.keys.dtype}"
        raise SbmtError("row_ptr and keys of dtype int64", got, "convert them with .long()")
    if edges.row_ptr.shape != (rows + 1,):
        raise SbmtError(f"row_ptr of length {rows + 1}", tuple(edges.row_ptr.shape), "give one entry per row, and 1")
    if edges.keys.dim() != 1 or int(edges.row_ptr[-1]) != edges.keys.numel():
        got = f"row_ptr[-1] = {int(edges.row_ptr[-1])} for {tuple(edges.keys.shape)} keys"
        raise SbmtError("row_ptr to end at the number of keys", got, "check how the rows were counted")
    if edges.multiplicity is not None and edges.multiplicity.shape != edges.keys.shape:
        raise SbmtError("one multiplicity per edge", tuple(edges.multiplicity.shape), "give as many as keys")


def check_every_edge(edges: "EdgeList") -> None:
    """Raises SbmtError where order or range is wrong, or an edge touches padding. Cost: O(edges)."""
    if int(edges.row_ptr[0]) != 0 or bool((edges.degrees() < 0).any()):
        raise SbmtError("row_ptr that starts at 0 and never falls", "another", "build it with a cumulative sum")
    if edges.n_edges == 0:
        return
    rows, n_queries = edges.rows(), edges.shape[2]
    if int(edges.keys.min()) < 0 or int(edges.keys.max()) >= edges.shape[3]:
        got = f"from {int(edges.keys.min())} to {int(edges.keys.max())}"
        raise SbmtError(f"keys in [0, {edges.shape[3]})", got, "count keys within their head")
    if bool(((edges.keys.diff() <= 0) & (rows.diff() == 0)).any()):
        raise SbmtError("strictly ascending keys in every row", "a row that is not", "sort and merge each row")
    example = rows // (n_queries * edges.shape[1])
    for name, mask, token in (
        ("query", edges.query_mask, rows % n_queries),
        ("key", edges.key_mask, edges.keys),
    ):
        if mask is not None and not bool(mask[example, token].all()):
            raise SbmtError(f"edges between real tokens, {name}_mask True", "an edge at padding", "mask it first")
