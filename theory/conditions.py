"""Conditions 1 and 3 of universality, and variants of condition 3 for static graphs and for causal patterns.

Condition 2, a Hamiltonian path, is decided in :mod:`theory.hamiltonian` and :mod:`theory.relays`.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sbmt.errors import SbmtError, check_sizes, is_integer
from sbmt.graph.edges import EdgeList
from theory.checks import as_list

PATIENCE = 64  # number of cycles after which a proof decides whether sets without self-loops will ever be full


def as_csr(pattern: Any) -> csr_array:
    """Copies a pattern to a sparse matrix in CSR form that is sorted and has no duplicates.

    The pattern may be a square boolean array, a scipy sparse array, or an EdgeList of one example, whose heads are
    united, because a layer adds their outputs. Padding is omitted, and real tokens are renumbered in order.

    Raises:
        SbmtError: If the pattern is anything else. The functions below raise it for the same reason.
    """
    if isinstance(pattern, EdgeList):
        return _from_edges(pattern)
    try:
        matrix = pattern if hasattr(pattern, "tocsr") else np.asarray(pattern)
    except ValueError:  # rows of different lengths
        matrix = np.empty(0)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 1 or matrix.dtype != bool:
        got = f"{matrix.dtype} of shape {matrix.shape}"
        raise SbmtError("a square boolean pattern", got, "give one row and one column per token")
    sparse = csr_array(matrix, copy=True)
    sparse.sum_duplicates()
    sparse.eliminate_zeros()
    return sparse


def as_csrs(patterns: Sequence[Any], order: Sequence[int] | None = None) -> list[csr_array]:
    """Converts one or more patterns of equal size to CSR form, in the order in which the layers apply them.

    ``order`` is a permutation of the numbers from 1, such as (1, 3, 2). None keeps the listed order.
    """
    if isinstance(patterns, (np.ndarray, EdgeList)) or hasattr(patterns, "tocsr"):
        raise SbmtError("a list of patterns", type(patterns).__name__, "put the pattern in a list")
    listed = as_list(patterns, "a list of patterns", "give boolean arrays with row = query, column = key")
    sparse = [as_csr(pattern) for pattern in listed]
    if not sparse or len({matrix.shape for matrix in sparse}) != 1:
        shapes = [matrix.shape for matrix in sparse]
        raise SbmtError("at least one pattern, all of equal size", shapes, "build all patterns for the same tokens")
    if order is None:
        return sparse
    layers = as_list(order, f"a permutation of 1 … {len(sparse)}", "count layers from 1")
    if not all(map(is_integer, layers)) or sorted(layers) != list(range(1, len(sparse) + 1)):
        raise SbmtError(f"a permutation of 1 … {len(sparse)}", layers, "list each layer once, counted from 1")
    return [sparse[layer - 1] for layer in layers]


def union(patterns: Sequence[Any]) -> csr_array:
    """Returns the union of the patterns, which contains every entry of any pattern."""
    first, *rest = as_csrs(patterns)
    return csr_array(sum(rest, start=first), dtype=bool)


def missing_self_loops(patterns: Sequence[Any]) -> list[tuple[int, int]]:
    """Returns the pairs of a layer, counted from 1, and a token whose diagonal entry is missing in it."""
    layers = enumerate(as_csrs(patterns), start=1)
    return [(layer, int(token)) for layer, matrix in layers for token in np.flatnonzero(~matrix.diagonal())]


def has_self_loops(patterns: Sequence[Any]) -> bool:
    """Returns whether condition 1 holds, which means that every pattern has a full diagonal."""
    return not missing_self_loops(patterns)


def receptive_sizes(patterns: Sequence[Any], n_layers: int, order: Sequence[int] | None = None) -> list[list[int]]:
    """Returns the sizes |S_i^t| of the receptive sets, the number of tokens that have reached token i after t layers.

    The sizes are listed for t = 1 … n_layers. Patterns are applied cyclically in ``order``, which counts from 1.
    """
    check_sizes(n_layers=n_layers)
    return [reached.sum(1).tolist() for reached in islice(layer_by_layer(as_csrs(patterns, order)), n_layers)]


def layer_by_layer(layers: Sequence[csr_array]) -> Iterator[np.ndarray]:
    """Yields boolean matrices S(1), S(2), …, where S(0) = I, S(t) = A_l S(t − 1), and l cycles through the layers."""
    reached = np.eye(layers[0].shape[0], dtype=bool)
    for layer in cycle(layers):
        reached = layer @ reached
        yield reached


def min_layers(patterns: Sequence[Any], order: Sequence[int] | None = None) -> int | None:
    """Returns s of condition 3, the number of layers after which every token has read every token; None if never.

    Let S(1) = A_1 and S(t) = A_l S(t − 1) as a boolean product, where l cycles through the patterns.

    A full S(t) contains a walk between any two tokens, so the union must be strongly connected. With self-loops this
    is sufficient: no set ever shrinks, and each cycle through the p patterns advances at least one step along every
    shortest path, so s ≤ p · diameter. Without self-loops, the sets may cycle and never become full. Powers of the
    product of all patterns then decide whether they become full.

    Paper: condition 3 of the theorem on universal approximation, where s = 3 is claimed for the three patterns.

    Cost: O(s · entries · n).

    Example:
        >>> from theory.patterns import three_patterns
        >>> patterns = three_patterns(16, 4)
        >>> min_layers(patterns), min_layers(patterns, order=(3, 2, 1))
        (5, 2)
    """
    layers = as_csrs(patterns, order)
    if not is_strongly_connected(layers):
        return None
    for t, reached in enumerate(layer_by_layer(layers), start=1):
        if reached.all():
            return t
        if t == PATIENCE * len(layers) and not has_self_loops(layers) and not is_ever_full(layers):
            return None
    raise AssertionError("layers never end")


def is_ever_full(layers: Sequence[csr_array]) -> bool:
    """Returns whether S(t) is full for some t beyond the first cycle, and therefore in every later cycle.

    Let P = A_p … A_1. At layer l of cycle m, S is A_l … A_1 P^m. Once it is full, it is full in every later cycle: the
    product over one cycle then has no empty row, and such a matrix maps the full matrix to itself. The powers of an
    n × n boolean matrix repeat from exponent (n − 1)² + 1 at the latest (Wielandt, Schwarz), so it is enough to compute
    a single power that is high enough, by squaring. Cost: O(n³ log n).
    """
    power = next(islice(layer_by_layer(layers), len(layers) - 1, None))
    for _ in range(((len(power) - 1) ** 2 + 1).bit_length()):
        power = csr_array(power) @ power
    for layer in layers:
        if power.all():
            return True
        power = layer @ power
    return False


def missing_pairs(
    patterns: Sequence[Any], n_layers: int, order: Sequence[int] | None = None, most: int = 10
) -> list[tuple[int, int]]:
    """Returns the first ``most`` pairs (i, j), in order, such that j has not reached i after ``n_layers`` layers."""
    check_sizes(n_layers=n_layers, most=most)
    reached = next(islice(layer_by_layer(as_csrs(patterns, order)), n_layers - 1, None))
    return [(int(i), int(j)) for i, j in np.argwhere(~reached)[:most]]


def is_strongly_connected(patterns: Sequence[Any]) -> bool:
    """Returns whether the union of the patterns contains a walk from every token to every token."""
    return unreachable_pair(patterns) is None


def unreachable_pair(patterns: Sequence[Any]) -> tuple[int, int] | None:
    """Returns a pair of tokens (i, j) such that no walk in the union leads from j to i, or None if there is none.

    Token j lies in a strong component that no arc leaves, and i lies outside this component.
    """
    joined = union(patterns)
    n_components, label = connected_components(joined, directed=True, connection="strong")
    if n_components == 1:
        return None
    queries, keys = joined.nonzero()  # arcs run from key to query
    is_left = np.zeros(n_components, dtype=bool)
    is_left[label[keys[label[keys] != label[queries]]]] = True
    last = int(np.argmin(is_left))
    return int(np.argmax(label != last)), int(np.argmax(label == last))


def static_layers(patterns: Sequence[Any], order: Sequence[int] | None = None) -> int | None:
    """Returns the first t for which the union of the first t patterns is strongly connected; None if never.

    This is a lower bound on :func:`min_layers` but no substitute for it: layers are applied one after the other, so a
    walk must use arcs in the order of the layers.
    """
    layers = as_csrs(patterns, order)
    return next((t for t in range(1, len(layers) + 1) if is_strongly_connected(layers[:t])), None)


def causal_layers(patterns: Sequence[Any], order: Sequence[int] | None = None) -> int | None:
    """Returns the smallest s with S_i = {0 … i} for every token i, the causal form of condition 3; None if never.

    No causal pattern of two tokens or more can meet condition 3 itself, since S_i never exceeds {0 … i}. Every cycle of
    the union is a loop at one token, so the sets converge: once a full cycle through the patterns leaves them
    unchanged, they never change again. A pattern that is not causal raises SbmtError.

    Example:
        >>> from theory.patterns import strided
        >>> causal_layers(strided(16, 4))
        2
    """
    layers = as_csrs(patterns, order)
    queries, keys = union(layers).nonzero()
    if (queries < keys).any():
        raise SbmtError("causal patterns, j ≤ i", "one that attends to a later token", "use min_layers instead")
    wanted, before = np.tri(layers[0].shape[0], dtype=bool), None
    for t, reached in enumerate(layer_by_layer(layers), start=1):
        if (reached == wanted).all():
            return t
        if t % len(layers) == 0:
            if before is not None and (reached == before).all():
                return None
            before = reached
    raise AssertionError("layers never end")


def _from_edges(edges: EdgeList) -> csr_array:
    batch, heads, n_queries, n_keys = edges.shape
    if batch != 1 or n_queries != n_keys:
        raise SbmtError("edges of one example, with as many queries as keys", edges.shape, "select one example")
    is_query, is_key = (
        np.ones(n_keys, dtype=bool) if mask is None else mask[0].cpu().numpy()
        for mask in (edges.query_mask, edges.key_mask)
    )
    if (is_query != is_key).any() or not is_key.any():
        raise SbmtError("the same real tokens as queries and keys", "two masks that differ", "use self-attention")
    first, *rest = (edges.to_scipy(0, head) for head in range(heads))
    real = np.flatnonzero(is_key)
    joined = csr_array(sum(rest, start=first)[real][:, real], dtype=bool)
    joined.sort_indices()
    return joined
