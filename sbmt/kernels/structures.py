"""The groups of arrays that kernels take together.

A structure holds torch tensors until :func:`as_arrays` turns them into NumPy arrays for the CPU. Numba compiles named
tuples into code that is as fast as code with one argument per field.
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
    """The inputs of attention along a mask's rows.

    A ``gate`` or ``weight_scale`` of length 0 stands for ones, a ``bias`` for zeros, and a ``sink`` for none.
    """

    query: Tensor  # (graphs · n_queries, d)
    key: Tensor  # (graphs · n_keys, d)
    value: Tensor  # (graphs · n_keys, d_value)
    gate: Tensor  # (n_edges,)
    bias: Tensor  # (n_edges,), added to scores
    sink: Tensor  # (heads,), a logit that joins the softmax of each row of the head's graphs and has no value
    weight_scale: Tensor  # (n_edges,), dropout's factors, applied after the softmax


class AttentionResults(NamedTuple):
    """The results of attention along a mask's rows."""

    out: Tensor  # (graphs · n_queries, d_value)
    log_total: Tensor  # (graphs · n_queries,), the logarithm of each row's softmax denominator, in float64
    weights: Tensor  # (n_edges,), the weights before they are scaled, or of length 0 where nobody wants them


class RateFactors(NamedTuple):
    """What the exact law draws edges from: rates x = T · K̂ + δ, and the link that makes probabilities of them."""

    query: Tensor  # T = Q̂ S, (batch, heads, n_queries, k)
    key: Tensor  # K̂, (batch, heads, n_keys, k)
    query_mask: Tensor | None  # bool (batch, n_queries)
    key_mask: Tensor | None  # bool (batch, n_keys)
    exploration: float  # δ
    is_poisson: bool  # p = 1 − e^{−x} rather than min(x, 1)


class CrossedFactors(NamedTuple):
    """What rates are made of where a group of clusters crosses two partitions, those numbered 2g and 2g + 1."""

    query_part: Tensor  # int16 (graphs · n_queries, chosen), equally many parts of every partition, ascending
    query_weight: Tensor  # (graphs · n_queries, chosen)
    blocks: Tensor  # S of each partition, (heads, partitions, s, s)
    key_part: Tensor  # int16 (graphs · n_keys, chosen)
    key_weight: Tensor  # (graphs · n_keys, chosen)


class TileInputs(NamedTuple):
    """The tensors that attention over drawn tiles reads. A mask of length 0 means that all tokens are real."""

    query: Tensor  # (batch, heads, n_queries, d)
    key: Tensor  # (batch, heads, n_keys, d)
    value: Tensor  # (batch, heads, n_keys, d_value)
    query_rate: Tensor  # (batch, heads, n_queries, k)
    key_rate: Tensor  # (batch, heads, n_keys, k)
    query_mask: Tensor  # bool (batch, n_queries)
    key_mask: Tensor  # bool (batch, n_keys)


class Drawing(NamedTuple):
    """What decides which edges tiles draw, besides the rates, and how they attend."""

    seed: int
    dropout_seed: int
    first_example: int  # number of the batch's first example
    exploration: float  # δ
    window: int  # pairs with |i − j| ≤ window are certain; −1 for none
    dropout: float
    is_poisson: bool
    is_score_rule: bool


def as_arrays(structure: Any) -> Any:
    """A structure, or tuple, with NumPy arrays in place of its tensors, whose memory they share; tensors likewise."""
    if isinstance(structure, Tensor):
        return structure.numpy()
    if not isinstance(structure, tuple):
        return structure
    return getattr(structure, "_make", tuple)([as_arrays(member) for member in structure])
