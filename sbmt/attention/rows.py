"""Attention by compiled kernels, which follow the edges row by row and need no memory for all pairs."""

import torch
from torch import Tensor

from sbmt.attention.inputs import EdgeTerms
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.rows import attend
from sbmt.precision import accumulator


def attend_along_rows(
    query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms, *, use_gpu: bool
) -> tuple[Tensor, Tensor | None]:
    """Attends along CSR rows, and computes scores again in the backward pass; see :func:`sbmt.edge_attention`.

    On the CPU, 16-bit inputs are converted to float32; on a GPU they are read as they are and summed in float32, and
    several programs share a long row. Differentiable once.

    Cost: O(edges · d) time, O(edges + n · d) memory.
    """
    if use_gpu and (not has_gpu_kernels(query.device) or query.device != edges.keys.device):
        do = 'use backend="auto", or move them to a GPU that Triton serves'
        raise SbmtError("tensors on one GPU", f"a query on {query.device}", do)
    if not use_gpu and any(t.device.type != "cpu" for t in (query, edges.keys)):
        raise SbmtError("tensors on the CPU", f"a query on {query.device}", 'use backend="auto" or "gpu"')
    gate, gate_rule, bias, sink, weight_scale, return_weights = terms
    dtype = accumulator(value)
    tokens = [t if use_gpu else t.to(dtype) for t in (query, key, value)]
    flat = [t.flatten(0, 2).contiguous() for t in tokens]
    none = flat[0].new_empty(0, dtype=dtype)
    flat += [none if t is None else t.to(dtype).contiguous() for t in (gate, bias, sink, weight_scale)]
    is_differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in flat)
    by_key = edges.by_key if use_gpu and is_differentiated else (edges.keys[:0],) * 3
    sizes = edges.shape[2], edges.shape[3]
    rules = gate_rule == "score", return_weights, use_gpu
    out, _, weights = attend(*flat, edges.row_ptr, edges.keys, *by_key, *sizes, *rules)
    return out.unflatten(0, edges.shape[:3]).to(value.dtype), weights if return_weights else None
