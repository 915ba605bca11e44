"""Attention along edges: the one entry to all backends, and every choice between them.

:func:`edge_attention` checks its arguments, draws dropout and calls :func:`attend_along`, which picks a backend. SBM
attention calls the latter directly, since it has checked its arguments already.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention.dense import attend_dense
from sbmt.attention.dropout import dropout_scale
from sbmt.attention.inputs import EdgeTerms, GateRule, check_attention_inputs, check_attention_settings, check_sink
from sbmt.attention.rows import attend_along_rows
from sbmt.counter_rng import draw_seed, first_example
from sbmt.errors import SbmtError, check_untransformed, choose
from sbmt.graph.edges import EdgeList
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.cutoffs import Cutoff, cutoffs
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.gpu import has_gpu
from sbmt.precision import accumulator
from sbmt.registration import add_to, check_takes

Attend = Callable[[Tensor, Tensor, Tensor, EdgeList, EdgeTerms], tuple[Tensor, Tensor | None]]


def _attend_by_messages(
    query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms
) -> tuple[Tensor, Tensor | None]:
    """Imports PyTorch Geometric, which takes longer than torch, when it is first needed."""
    from sbmt.attention.message_passing import attend_by_messages

    return attend_by_messages(query, key, value, edges, terms)


BACKENDS: dict[str, Attend] = {
    "dense": attend_dense,
    "pyg": _attend_by_messages,
    "cpu": partial(attend_along_rows, use_gpu=False),
    "gpu": partial(attend_along_rows, use_gpu=True),
}
RESERVED = frozenset(BACKENDS) | {"auto"}
ARGUMENTS = ("query", "key", "value", "edges", "terms")  # of a backend, in this order
# The density above which visiting every pair is faster where the CPU's kernels cannot run: estimates, see
# sbmt.kernels.cutoffs for those kernels.
DENSE_ABOVE = 1 / 16
DENSE_CELLS = 1 << 28  # above this many cells a dense mask is out of the question


def available_backends(device: torch.device | str = "cpu") -> list[str]:
    """Names that ``backend=`` accepts for tensors on a device, besides ``"auto"``.

    Args:
        device: Where the tensors are.

    Raises:
        SbmtError: If torch knows no such device.

    Example:
        >>> "dense" in available_backends()
        True
    """
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SbmtError("a device of torch", repr(device), "such as 'cpu' or 'cuda'") from error
    serves = {"cpu": can_run_on(device), "gpu": has_gpu_kernels(device)}
    return [name for name in BACKENDS if serves.get(name, True)]


def register_backend(name: str, attend: Attend) -> None:
    r"""Makes ``backend=name`` call a function of yours, here and in every layer.

    ``attend(query, key, value, edges, terms)`` is called after all arguments of :func:`edge_attention` have been
    checked, with the rest of them in :class:`~sbmt.attention.EdgeTerms`, and must return what the other backends
    return, a pair:

    - the sum over each query's edges of $a_{ij}\, u_{ij}\, v_j$ with the weights $a$ described there and
      $u$ = ``terms.weight_scale`` (dropout's zeros and scaled ones), of shape ``(batch, heads, n_queries, d_value)``
      and of the type of ``value``; zeros for queries without edges;
    - the weights $a$, ``(n_edges,)`` in EdgeList order, or None unless ``terms.return_weights``;

    with gradients of query, key, value, gate, bias and sink, zeros for what no edge reaches. ``"auto"`` never chooses
    it.

    Args:
        name: Letters, digits and underscores, and not one of the library's own names. A name of yours may be
            registered again.
        attend: The function. It raises SbmtError on devices that it does not serve.

    Raises:
        SbmtError: If the name is taken or not an identifier, or the function cannot be called with these arguments.

    Example:
        >>> from sbmt.attention.dense import attend_dense
        >>> register_backend("dense", attend_dense)
        Traceback (most recent call last):
        ...
        sbmt.errors.SbmtError: expected a name that the library does not use for a backend, got 'dense': take another
    """
    check_takes("backend", attend, ARGUMENTS)
    add_to(BACKENDS, "backend", name, _checked(name, attend), RESERVED)


@overload
def edge_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None = None,
    *,
    gate_rule: GateRule = "score",
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    backend: str = "auto",
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    return_weights: Literal[False] = False,
) -> Tensor: ...
@overload
def edge_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None = None,
    *,
    gate_rule: GateRule = "score",
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    backend: str = "auto",
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
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
) -> (
    Float[Tensor, "batch heads n_queries d_value"]
    | tuple[Float[Tensor, "batch heads n_queries d_value"], Float[Tensor, " n_edges"]]
):
    r"""Softmax attention of each query over the keys its edges lead to.

    With $s_{ij} = q_i k_j^\top / \sqrt d$, gate $g$ (1 where none is given) and bias $\beta$ (0 where none is given),
    edge (i, j) has

    - ``gate_rule="score"``: $w_{ij} = \exp(g_{ij} s_{ij} + \beta_{ij})$,
    - ``gate_rule="weight"``: $w_{ij} = g_{ij} \exp(s_{ij} + \beta_{ij})$,

    and query i gets

    $$\sum_j a_{ij} v_j \qquad\text{with}\qquad a_{ij} = \frac{w_{ij}}{e^{b} + \sum_{j'} w_{ij'}},$$

    where the sums run over its edges, $b$ is the sink of its head, and there is no $e^b$ without sinks. A query without
    edges gets zeros, and so does its gradient.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        key: ``(batch, heads, n_keys, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        edges: The mask; its shape is ``(batch, heads, n_queries, n_keys)``.
        gate: ``(n_edges,)`` in EdgeList order, positive.
        gate_rule: What the gate multiplies.
        bias: $\beta$, ``(n_edges,)`` in EdgeList order, added to scores. Without a gate it is the gate $e^\beta$ under
            the weight rule. A bias of $-\ln p$ on an edge that was drawn with probability p makes numerator and
            denominator unbiased estimates of those of attention to every key.
        sink: $b$, ``(heads,)``, a logit of its own that takes part in every row's softmax and has no value, so that a
            query may attend to nothing. −∞ switches it off.
        backend: A name from :func:`available_backends`, or ``"auto"``, which picks by density and size. Backends
            differ in speed alone.
        dropout: Probability in [0, 1) that an edge's weight is dropped; the rest are scaled up to keep the mean.
        generator: Source of dropout's seed: one int64 if ``dropout > 0``, none otherwise.
        return_weights: Also return the weights $a$ as they are before dropout.

    Returns:
        ``(batch, heads, n_queries, d_value)`` in the type of ``value``; with ``return_weights``, a pair of that and
        ``(n_edges,)`` in EdgeList order, float64 for values in float64 and float32 for all others. Both are
        differentiable in all tensors above.

    Raises:
        SbmtError: On shapes that do not fit, integer input, a gate of the wrong length or sign, a bias or sink of the
            wrong length or not finite, unknown names, or dropout outside [0, 1).

    Paper: equations 3 and 4; the gate rules are equation 9 and the released code's. Bias and sink are not the paper's.

    Example:
        >>> edges = EdgeList.from_dense(torch.ones(1, 1, 1, 2, dtype=torch.bool))
        >>> x = torch.zeros(1, 1, 2, 1)
        >>> _, weights = edge_attention(
        ...     x[:, :, :1], x, x, edges, bias=torch.tensor([2.0, 1.0]).log(), sink=torch.zeros(1),
        ...     backend="dense", return_weights=True,
        ... )
        >>> weights  # of 2 : 1 : 1, the last of which is the sink's
        tensor([0.5000, 0.2500])
    """
    _check(query, key, value, edges, gate, bias, sink)
    check_attention_settings(gate_rule, None, dropout)
    check_backend(backend, query.device)
    scale = dropout_scale(edges, dropout, draw_seed(generator), first_example(), value.dtype) if dropout else None
    terms = EdgeTerms(gate, gate_rule, bias, sink, scale, return_weights)
    values, weights = attend_along(query, key, value, edges, terms, backend)
    return values if weights is None else (values, weights)


def attend_along(
    query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms, backend: str
) -> tuple[Tensor, Tensor | None]:
    """:func:`edge_attention` without its checks. The weights are None unless ``terms.return_weights``."""
    name = pick_backend(edges) if backend == "auto" else backend
    if name in ("cpu", "gpu"):
        check_untransformed(query, key, value, *(t for t in terms if isinstance(t, Tensor)))
    values, weights = BACKENDS[name](query, key, value, edges, terms)
    return values, weights if terms.return_weights else None


def _checked(backend: str, attend: Attend) -> Attend:
    """The user's function, which raises SbmtError when what it returns has the wrong shape or type."""

    def attend_and_check(
        query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms
    ) -> tuple[Tensor, Tensor | None]:
        both: Any = attend(query, key, value, edges, terms)
        if not isinstance(both, tuple) or len(both) != 2:
            expected = f"a pair of values and weights from backend {backend!r}"
            raise SbmtError(expected, type(both).__name__, "correct the function of that name")
        needed = [(both[0], (*query.shape[:3], value.shape[3]), value.dtype)]
        if terms.return_weights:
            needed.append((both[1], (edges.n_edges,), accumulator(value)))
        for found, shape, dtype in needed:
            if not isinstance(found, Tensor) or found.shape != shape or found.dtype != dtype:
                got = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
                raise SbmtError(f"{dtype} {shape} from backend {backend!r}", got, "correct the function of that name")
        return both

    return attend_and_check


def check_backend(backend: str, device: torch.device | None = None) -> None:
    """Raises SbmtError unless the backend is "auto" or one that serves the device; without one, any device here."""
    if backend == "auto":
        return
    names = available_backends("cpu" if device is None else device)
    if device is None and has_gpu():
        names += available_backends("cuda")
    choose("backend", backend, dict.fromkeys(["auto", *names]))


def pick_backend(edges: EdgeList) -> str:
    """The name of the backend that ``backend="auto"`` takes for these edges."""
    device = edges.keys.device
    if can_run_on(device):
        return "dense" if cutoffs()["attention"].takes_all_pairs(edges.n_edges, edges.cell_count) else "cpu"
    sparse = "gpu" if has_gpu_kernels(device) else "pyg"
    return "dense" if Cutoff(DENSE_CELLS, DENSE_ABOVE).takes_all_pairs(edges.n_edges, edges.cell_count) else sparse


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None,
    bias: Tensor | None,
    sink: Tensor | None,
) -> None:
    check_attention_inputs(query, key, value)
    if not isinstance(edges, EdgeList):
        raise SbmtError("edges as an EdgeList", type(edges).__name__, "convert a dense mask with EdgeList.from_dense")
    expected = (*query.shape[:3], key.shape[2])
    if edges.shape != expected:
        raise SbmtError(f"edges of shape {tuple(expected)}", edges.shape, "sample them for these queries and keys")
    for name, tensor in (("edges", edges.keys), ("gate", gate), ("bias", bias)):
        if isinstance(tensor, Tensor) and tensor.device != query.device:
            raise SbmtError(f"{name} on {query.device}, as the query", tensor.device, "move them with .to(…)")
    for name, numbers, n, what in (
        ("gate", gate, edges.n_edges, "edge"),
        ("bias", bias, edges.n_edges, "edge"),
    ):
        if numbers is not None and not (
            isinstance(numbers, Tensor) and numbers.shape == (n,) and numbers.is_floating_point()
        ):
            got = f"{numbers.dtype} {tuple(numbers.shape)}" if isinstance(numbers, Tensor) else type(numbers).__name__
            raise SbmtError(f"a floating-point {name} of shape ({n},)", got, f"give one number per {what}")
    if gate is not None and gate.numel() and not float(gate.detach().min()) > 0:
        raise SbmtError("a positive gate", f"a minimum of {float(gate.detach().min())}", "leave the edge out")
    if bias is not None and bias.numel():
        low, high = (float(x) for x in bias.detach().aminmax())  # both NaN if any is
        if not -math.inf < low <= high < math.inf:
            raise SbmtError("a finite bias", f"numbers from {low} to {high}", "leave the edge out")
    if sink is not None:
        check_sink(sink, query)
        if not bool((sink.detach() < math.inf).all()):
            raise SbmtError("sinks that are finite, or −∞ for none", sink.detach().tolist(), "give each head a number")
