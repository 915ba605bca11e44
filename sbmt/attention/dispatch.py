"""The entry point for attention along edges, and the choice of a backend.

:func:`edge_attention` checks its arguments, draws dropout and calls :func:`attend_along`, which picks a backend.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention.dense import attend_dense
from sbmt.attention.inputs import Attended, EdgeTerms, GateRule, check_terms
from sbmt.attention.slots import attend_by_messages, attend_in_slots
from sbmt.counter_rng import Purpose, draw_seed, edge_words, number_examples, to_uniform
from sbmt.errors import SbmtError, check_choice, choose, describe, is_number
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import check_as_many_keys
from sbmt.kernels.operators import attend, can_run_on, cell_uniforms
from sbmt.types import accumulator, check_floating, check_untransformed


def attend_by_rows(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms) -> Attended:
    """Computes :func:`edge_attention` by compiled loops over CSR rows, which recompute scores in the backward pass.

    The loops convert 16-bit inputs to float32 and do not support second derivatives.
    Cost: O(edges · d) time, O(edges + n · d) memory.
    """
    if query.device.type != "cpu":
        raise SbmtError('tensors on the CPU for backend="cpu"', f"a query on {query.device}", 'use backend="auto"')
    check_untransformed(query, key, value, *(t for t in terms if isinstance(t, Tensor)))
    given = query, key, value, terms.bias, terms.gate, terms.sink, terms.weight_scale
    numbers = (None if t is None else t.to(accumulator(value)) for t in given)
    rules = terms.gate_rule == "score", terms.return_weights
    out, weights = attend(*numbers, edges.row_ptr, edges.keys, *rules)
    return out.to(value.dtype), weights


BACKENDS = {"dense": attend_dense, "pyg": attend_by_messages, "cpu": attend_by_rows, "gpu": attend_in_slots}
DENSE_ABOVE = 1 / 16
"""The density above which it is faster to visit every pair, on GPUs and where loops cannot be compiled."""
DENSE_CELLS = 1 << 28
"""The largest number of pairs, over all examples and heads, for which a dense mask is formed."""


def available_backends(device: torch.device | str = "cpu") -> list[str]:
    """Returns the names, besides ``"auto"``, that ``backend=`` accepts for tensors on a device.

    Args:
        device: The device of the tensors.
    """
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SbmtError("a torch device", repr(device), "use 'cpu' or 'cuda', for example") from error
    serves = {"cpu": can_run_on(device), "gpu": device.type == "cuda"}
    return [name for name in BACKENDS if serves.get(name, True)]


def edge_attention(
    query: Float[Tensor, "batch heads n_queries d"],
    key: Float[Tensor, "batch heads n_keys d"],
    value: Float[Tensor, "batch heads n_keys d_value"],
    edges: EdgeList,
    gate: Float[Tensor, " n_edges"] | None = None,
    *,
    gate_rule: GateRule = "score",
    bias: Float[Tensor, " n_edges"] | None = None,
    sink: Float[Tensor, " heads"] | None = None,
    backend: str = "auto",
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    return_weights: bool = False,
) -> Any:  # a tensor or a pair of tensors
    r"""Computes softmax attention of each query over the keys to which it has edges.

    With $s_{ij} = q_i k_j^\top / \sqrt d$, a gate $g$ (1 by default) and a bias $\beta$ (0 by default), edge (i, j) has
    the weight

    - $w_{ij} = \exp(g_{ij} s_{ij} + \beta_{ij})$ under ``gate_rule="score"``,
    - $w_{ij} = g_{ij} \exp(s_{ij} + \beta_{ij})$ under ``gate_rule="weight"``,

    and the output for query i is

    $$\sum_j a_{ij} v_j \qquad\text{with}\qquad a_{ij} = \frac{w_{ij}}{e^{b} + \sum_{j'} w_{ij'}},$$

    where the sums run over the query's edges and $b$ is the sink of the head; without sinks there is no $e^b$. The
    output for a query without edges is zero, and so is its gradient.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        key: ``(batch, heads, n_keys, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        edges: The mask, of shape ``(batch, heads, n_queries, n_keys)``.
        gate: ``(n_edges,)`` in EdgeList order, positive.
        gate_rule: Whether the gate multiplies the score or the weight.
        bias: $\beta$, ``(n_edges,)`` in EdgeList order, added to the scores. If an edge was drawn with probability p, a
            bias of $-\ln p$ makes numerator and denominator unbiased estimates of those of full attention.
        sink: $b$, ``(heads,)``, a logit that takes part in every row's softmax but has no value, so that a
            query may attend to nothing. −∞ switches it off.
        backend: A name from :func:`available_backends`, or ``"auto"``, which chooses one by density and size. Backends
            differ only in speed.
        dropout: Probability in [0, 1) of dropping a weight; remaining weights are scaled up to preserve the mean.
        generator: Source of the seed for dropout, an int64, which is drawn only if ``dropout > 0``.
        return_weights: Whether to also return the weights $a$ before dropout.

    Returns:
        ``(batch, heads, n_queries, d_value)`` in the dtype of ``value``; with ``return_weights``, a pair of this tensor
        and the weights ``(n_edges,)`` in EdgeList order, float64 or float32. Both are differentiable in all inputs.

    Raises:
        SbmtError: If shapes do not match, an input is not floating-point, a gate, bias or sink has the wrong length,
            a gate is not positive, a bias or sink is not finite, a name is unknown, or dropout is outside [0, 1).

    Paper: equations 3 and 4; gate rules are those of equation 9 and the released code; bias and sink are ours.

    Example:
        >>> edges = EdgeList.from_dense(torch.ones(1, 1, 1, 2, dtype=torch.bool))
        >>> x, bias = torch.zeros(1, 1, 2, 1), torch.tensor([2.0, 1.0]).log()
        >>> _, weights = edge_attention(x[:, :, :1], x, x, edges, bias=bias, sink=torch.zeros(1), return_weights=True)
        >>> weights.round(decimals=2)  # 2 : 1 : 1, where the sink gets the last share
        tensor([0.5000, 0.2500])
    """
    check_attention_inputs(query, key, value)
    if not isinstance(edges, EdgeList):
        raise SbmtError("edges to be an EdgeList", type(edges).__name__, "convert a mask with EdgeList.from_dense")
    expected = (*query.shape[:3], key.shape[2])
    if edges.shape != expected:
        raise SbmtError(f"edges of shape {tuple(expected)}", edges.shape, "sample them for these queries and keys")
    if edges.device != query.device:
        raise SbmtError(f"edges on {query.device}, like the query", edges.device, "move them with .to(…)")
    terms = EdgeTerms(gate, gate_rule, bias, sink, None, return_weights)
    check_terms(terms, edges.n_edges, query.shape[1], query.device)
    check_choice("gate_rule", gate_rule, GateRule)
    check_dropout(dropout)
    check_backend(backend, query.device)
    if dropout:
        scale = dropout_scale(edges, dropout, draw_seed(generator), number_examples(0, query.shape[0]), value.dtype)
        terms = terms._replace(weight_scale=scale)
    values, weights = attend_along(query, key, value, edges, terms, backend)
    return values if weights is None else (values, weights)


def attend_along(
    query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms, backend: str
) -> Attended:
    """Computes :func:`edge_attention` without its checks; the weights are None unless ``terms.return_weights``."""
    name = pick_backend(edges) if backend == "auto" else backend
    values, weights = BACKENDS[name](query, key, value, edges, terms)
    return values, weights if terms.return_weights else None


def pick_backend(edges: EdgeList) -> str:
    """Picks the backend for ``"auto"``, but not by density for causal masks: later tokens must not change rounding."""
    if can_run_on(edges.keys.device):
        return "cpu"
    if edges.n_edges >= DENSE_ABOVE * edges.cell_count and edges.cell_count <= DENSE_CELLS and not edges.causal:
        return "dense"
    return "gpu" if edges.keys.device.type == "cuda" else "pyg"


def dropout_scale(edges: EdgeList, dropout: float, seed: int, first_example: int, dtype: torch.dtype) -> Tensor:
    """Draws a factor of 0 or 1 / (1 − ``dropout``) per edge, which depends on the cell, not on the mask or device."""
    _, heads, n_queries, _ = edges.shape
    if can_run_on(edges.keys.device):
        uniform = cell_uniforms(edges.row_ptr, edges.keys, seed, first_example, n_queries, heads)
    else:
        rows = edges.rows()
        graph = rows // n_queries
        address = graph // heads + first_example, graph % heads, rows % n_queries, edges.keys
        uniform = to_uniform(edge_words(seed, Purpose.CELL, *address))
    return (uniform >= dropout).to(dtype) / (1 - dropout)


def check_backend(backend: str, device: torch.device | None = None) -> None:
    """Raises SbmtError unless the backend is "auto" or available on the device (any device if it is None)."""
    if backend == "auto":
        return
    names = available_backends("cpu" if device is None else device)
    if device is None and torch.cuda.is_available():
        names += available_backends("cuda")
    choose("backend", backend, dict.fromkeys(["auto", *names]))


def check_attention_inputs(query: Tensor, key: Tensor, value: Tensor, window: int | None = None) -> None:
    """Raises SbmtError unless the inputs are valid; a window requires as many queries as keys."""
    check_floating(query=query, key=key, value=value)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4 or 0 in tensor.shape[1:]:
            do = "omit empty sequences and add missing dimensions"
            raise SbmtError(f"{name} of shape (batch, heads, n, d), where only batch may be 0", tuple(tensor.shape), do)
    if not query.device == key.device == value.device:
        devices = f"{query.device}, {key.device} and {value.device}"
        raise SbmtError("query, key and value on the same device", devices, "move them with .to(…)")
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.shape[:2] == key.shape[:2] == value.shape[:2]:
        raise SbmtError("equal batch sizes and head counts", shapes, "expand shared tensors")
    if query.shape[3] != key.shape[3] or key.shape[2] != value.shape[2]:
        raise SbmtError("queries and keys of equal width and one value per key", shapes, "check the projections")
    if window is not None:
        check_as_many_keys((*query.shape[:3], key.shape[2]))


def check_dropout(dropout: float) -> None:
    """Raises SbmtError unless 0 ≤ dropout < 1."""
    if not is_number(dropout) or not 0 <= dropout < 1:
        raise SbmtError("dropout in [0, 1)", describe(dropout), "use 0 for no dropout")
