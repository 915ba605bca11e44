"""The groups of arrays that kernels take together.

A structure holds torch tensors until :func:`as_arrays` makes NumPy arrays of them for the CPU. Numba compiles named
tuples into code that is no slower than one with an argument for each field.
"""

from typing import Any, NamedTuple

from torch import Tensor


class Mask(NamedTuple):
    """A CSR mask. Row r belongs to graph r // n_queries, and its keys are numbered within that graph."""

    row_ptr: Tensor  # int64 (n_rows + 1,)
    keys: Tensor  # int64 (n_edges,)
    n_queries: int
    n_keys: int


class ByKey(NamedTuple):
    """The edges of a CSR mask in the order of their keys; see :attr:`sbmt.EdgeList.by_key`."""

    column_ptr: Tensor  # int64 (n_graphs · n_keys + 1,)
    queries: Tensor  # int32 (n_edges,), numbered within their graph
    positions: Tensor  # int32 (n_edges,), of each edge among those of its graph in a Mask


class AttentionInputs(NamedTuple):
    """What attention along a mask's rows computes with. ``gate`` and ``weight_scale`` of length 0 mean ones."""

    query: Tensor  # (graphs · n_queries, d)
    key: Tensor  # (graphs · n_keys, d)
    value: Tensor  # (graphs · n_keys, d_value)
    gate: Tensor  # (n_edges,)
    weight_scale: Tensor  # (n_edges,), dropout's factors, applied after the softmax


class AttentionResults(NamedTuple):
    """What attention along a mask's rows computes."""

    out: Tensor  # (graphs · n_queries, d_value)
    log_total: Tensor  # (graphs · n_queries,), the logarithm of each row's softmax denominator, in float64


def as_arrays(structure: Any) -> Any:
    """The same structure with NumPy arrays for its tensors, whose memory they share."""
    return type(structure)(*(x.numpy() if isinstance(x, Tensor) else x for x in structure))
