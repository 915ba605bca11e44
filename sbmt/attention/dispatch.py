"""Attention along edges: the one entry to all backends, and every choice between them.

:func:`edge_attention` checks its arguments, draws dropout and calls :func:`attend_along`, which picks a backend. SBM
attention calls the latter directly, since it has checked its arguments already.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention.dense import attend_dense
from sbmt.attention.dropout import dropout_scale
from sbmt.attention.inputs import GateRule, check_attention_inputs, check_attention_settings
from sbmt.attention.message_passing import attend_by_messages
from sbmt.attention.rows import attend_along_rows
from sbmt.attention.tiles import can_tile
from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import draw_seed, first_example
from sbmt.errors import SbmtError, check_untransformed, choose
from sbmt.graph.edges import EdgeList
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.gpu import has_gpu
from sbmt.registration import add_to, check_takes

Attend = Callable[[Tensor, Tensor, Tensor, EdgeList, Tensor | None, GateRule, Tensor | None], Tensor]
BACKENDS: dict[str, Attend] = {
    "dense": attend_dense,
    "pyg": attend_by_messages,
    "cpu": partial(attend_along_rows, use_gpu=False),
    "gpu": partial(attend_along_rows, use_gpu=True),
}
RESERVED = frozenset(BACKENDS) | {"auto"}
ARGUMENTS = ("query", "key", "value", "edges", "gate", "gate_rule", "weight_scale")  # of a backend, in this order
# The density above which visiting every pair is faster, forward and backward, for each sparse backend. The numbers come
# from `sbmt bench --suite backends`, whose table in docs/benchmarks.md says what a wrong choice costs: on the CPU dense
# masks win where sequences are short, and hardly ever elsewhere. Those of "gpu" are estimates.
DENSE_ABOVE = {"cpu": 1 / 4, "pyg": 1 / 16, "gpu": 1 / 16}
DENSE_KEYS = {"cpu": 128, "pyg": 1 << 62, "gpu": 1 << 62}  # longest sequences for which that holds
DENSE_CELLS = 1 << 28  # above this many cells a dense mask is out of the question
# On a GPU, SBM attention visits every pair up to this many keys, since following edges takes many kernel launches, and
# above this expected density, below which edges take fewer clock cycles by a count of instructions. Neither was timed.
TILES_UP_TO, TILES_ABOVE = 2048, 1 / 32


def available_backends(device: torch.device | str = "cpu") -> list[str]:
    """Names that ``backend=`` accepts for tensors on a device, besides ``"auto"``.

    Args:
        device: Where the tensors are.

    Example:
        >>> "dense" in available_backends()
        True
    """
    device = torch.device(device)
    serves = {"cpu": can_run_on(device), "gpu": has_gpu_kernels(device)}
    return [name for name in BACKENDS if serves.get(name, True)]


def register_backend(name: str, attend: Attend) -> None:
    r"""Makes ``backend=name`` call a function of yours, here and in every layer.

    ``attend(query, key, value, edges, gate, gate_rule, weight_scale)`` is called after all arguments of
    :func:`edge_attention` have been checked, and must return what the other backends return:

    - the sum over each query's edges of $w_{ij}\, u_{ij}\, v_j$ with the weights $w$ described there, of shape
      ``(batch, heads, n_queries, d_value)`` and of the type of ``value``; zeros for queries without edges;
    - with gradients of query, key, value and gate, zeros for what no edge reaches.

    ``gate`` and ``weight_scale`` ($u$: dropout's zeros and scaled ones, after the softmax) hold one number per edge
    in EdgeList order, or are None for ones. ``"auto"`` never chooses it.

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


def edge_attention(
    query: Float[Tensor, "batch heads n_queries d"],
    key: Float[Tensor, "batch heads n_keys d"],
    value: Float[Tensor, "batch heads n_keys d_value"],
    edges: EdgeList,
    gate: Float[Tensor, " n_edges"] | None = None,
    *,
    gate_rule: GateRule = "score",
    backend: str = "auto",
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "batch heads n_queries d_value"]:
    r"""Softmax attention of each query over the keys its edges lead to.

    With $s_{ij} = q_i k_j^\top / \sqrt d$ and gate $g$ (1 where none is given), the weight of edge (i, j) is

    - ``gate_rule="score"``: $\propto \exp(g_{ij} s_{ij})$,
    - ``gate_rule="weight"``: $\propto g_{ij} \exp(s_{ij})$,

    normalised over the edges of query i. A query without edges gets zeros, and so does its gradient.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        key: ``(batch, heads, n_keys, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        edges: The mask; its shape is ``(batch, heads, n_queries, n_keys)``.
        gate: ``(n_edges,)`` in EdgeList order, positive.
        gate_rule: What the gate multiplies.
        backend: A name from :func:`available_backends`, or ``"auto"``, which picks by density and size. Backends
            differ in speed alone.
        dropout: Probability in [0, 1) that an edge's weight is dropped; the rest are scaled up to keep the mean.
        generator: Source of dropout's seed: one int64 if ``dropout > 0``, none otherwise.

    Returns:
        ``(batch, heads, n_queries, d_value)``.

    Raises:
        SbmtError: On shapes that do not fit, integer input, a gate of the wrong length or sign, unknown names, or
            dropout outside [0, 1).

    Paper: equations 3 and 4; the gate rules are equation 9 and the released code's.
    """
    _check(query, key, value, edges, gate)
    check_attention_settings(gate_rule, None, dropout)
    check_backend(backend, query.device)
    scale = dropout_scale(edges, dropout, draw_seed(generator), first_example(), value.dtype) if dropout else None
    return attend_along(query, key, value, edges, gate, gate_rule, scale, backend)


def attend_along(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None,
    gate_rule: GateRule,
    weight_scale: Tensor | None,
    backend: str,
) -> Tensor:
    """:func:`edge_attention` without its checks; ``weight_scale`` multiplies the weights, as dropout does."""
    name = pick_backend(edges) if backend == "auto" else backend
    if name in ("cpu", "gpu"):
        check_untransformed(query, key, value)
    return BACKENDS[name](query, key, value, edges, gate, gate_rule, weight_scale)


def _checked(backend: str, attend: Attend) -> Attend:
    """The user's function, which raises SbmtError when it does not return values of the right shape and type."""

    def attend_and_check(query: Tensor, key: Tensor, value: Tensor, *given: Any) -> Tensor:
        out = attend(query, key, value, *given)
        shape = (*query.shape[:3], value.shape[3])
        if not isinstance(out, Tensor) or out.shape != shape or out.dtype != value.dtype:
            got = f"{out.dtype} {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            expected = f"{value.dtype} {shape} from backend {backend!r}"
            raise SbmtError(expected, got, "correct the function of that name")
        return out

    return attend_and_check


def check_backend(backend: str, device: torch.device | None = None) -> None:
    """Raises SbmtError unless the backend is "auto" or one that serves the device; without one, any device here."""
    names = available_backends("cpu" if device is None else device)
    if device is None and has_gpu():
        names += available_backends("cuda")
    choose("backend", backend, dict.fromkeys(["auto", *names]))


def pick_backend(edges: EdgeList) -> str:
    """The name of the backend that ``backend="auto"`` takes for these edges."""
    device = edges.keys.device
    sparse = "cpu" if can_run_on(device) else "gpu" if has_gpu_kernels(device) else "pyg"
    is_small = edges.shape[3] <= DENSE_KEYS[sparse] and edges.cell_count <= DENSE_CELLS
    return "dense" if is_small and edges.n_edges >= DENSE_ABOVE[sparse] * edges.cell_count else sparse


def is_tiled(
    query: Tensor, value: Tensor, block_model: BlockModel, sampler: str, backend: str, likely_density: Tensor
) -> bool:
    """Whether SBM attention draws its mask tile by tile: where it was asked to, or where that should be faster.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        block_model: Where the mask comes from.
        sampler: The law's name; tiles follow that of ``"exact"`` and ``"bernoulli"``.
        backend: ``"gpu"`` asks for tiles under ``sampler="bernoulli"``; ``"auto"`` leaves the choice to this function.
        likely_density: ``(batch, heads)``, the expected density with exploration.
    """
    is_asked_for = backend == "gpu" and sampler == "bernoulli"
    is_free = backend == "auto" and sampler in ("exact", "bernoulli") and query.device.type == "cuda"
    if not (is_asked_for or is_free) or not can_tile(query, value, block_model):
        return False
    if sampler == "bernoulli" or block_model.shape[3] <= TILES_UP_TO:
        return True
    return float(likely_density.detach().mean()) >= TILES_ABOVE


def _check(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, gate: Tensor | None) -> None:
    check_attention_inputs(query, key, value)
    if not isinstance(edges, EdgeList):
        raise SbmtError("edges as an EdgeList", type(edges).__name__, "convert a dense mask with EdgeList.from_dense")
    expected = (*query.shape[:3], key.shape[2])
    if edges.shape != expected:
        raise SbmtError(f"edges of shape {tuple(expected)}", edges.shape, "sample them for these queries and keys")
    for name, tensor in (("edges", edges.keys), ("gate", gate)):
        if isinstance(tensor, Tensor) and tensor.device != query.device:
            raise SbmtError(f"{name} on {query.device}, as the query", tensor.device, "move them with .to(…)")
    if gate is not None:
        if not isinstance(gate, Tensor) or gate.shape != (edges.n_edges,) or not gate.is_floating_point():
            got = f"{gate.dtype} {tuple(gate.shape)}" if isinstance(gate, Tensor) else type(gate).__name__
            raise SbmtError(f"a floating-point gate of shape ({edges.n_edges},)", got, "give one number per edge")
        if gate.numel() and not float(gate.detach().min()) > 0:
            raise SbmtError("a positive gate", f"a minimum of {float(gate.detach().min())}", "leave the edge out")
