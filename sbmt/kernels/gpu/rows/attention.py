"""Softmax attention along the rows of a CSR mask, and its gradients: a piece of a row per program.

Everything is flattened: row r of ``query`` belongs to graph r // n_queries, whose keys and values are rows
graph · n_keys + j of ``key`` and ``value``. A ``gate`` or ``weight_scale`` of None stands for ones, a ``bias`` for
zeros, and a ``sink`` for none; other pointers are None where nobody needs what would be read or written there. Inputs
may be 16 bits wide; sums have the type of ``part``. The logarithms of denominators are float64, since float32 would
lose digits of large scores.
"""

import triton.language as tl

from sbmt.kernels.gpu.rows.blocks import block_of, load_row, load_rows, scale_of, store_row
from sbmt.kernels.gpu.rows.pieces import locate
from sbmt.kernels.gpu.toolchain import kernel


@kernel
def attend(
    query, key, value, gate, bias, sink, weight_scale, row_ptr, keys, piece_row, piece_ptr, slot_ptr,
    out, log_total, part, part_log_total, scores_out, n_rows, n_queries, n_keys,
    D: tl.constexpr, D_VALUE: tl.constexpr, PIECE: tl.constexpr, EDGES: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Computes the output and the logarithm of the denominator of one piece of a row, as if it were the whole row."""
    row, first, n_edges, slot = locate(piece_row, piece_ptr, slot_ptr, row_ptr, n_rows, PIECE)
    if row >= n_rows:
        return
    dtype = part.dtype.element_ty
    q = load_row(query, row, D).to(dtype)
    most = tl.full((), float("-inf"), dtype)
    total = tl.full((), 0, dtype)
    if sink is not None:  # takes part in the first piece of each row
        is_first = first == tl.load(row_ptr + row)
        most = tl.where(is_first, tl.load(sink + row // n_queries), most)
        total = tl.where(is_first, 1.0, total)
    sums = tl.zeros((EDGES, block_of(D_VALUE)), dtype)  # summed over its edges at the end
    of_keys = row // n_queries * n_keys
    for start in range(0, n_edges, EDGES):
        edges = start + tl.arange(0, EDGES)
        is_edge = edges < n_edges
        edges = tl.minimum(edges, n_edges - 1)  # beyond the end, the last edge is repeated
        keys_there = tl.load(keys + first + edges).to(tl.int32)
        k = load_rows(key + of_keys * D, keys_there, None, D).to(dtype)
        scores, _ = _scores(q, k, gate, first, edges, is_edge, scale_of(D), IS_SCORE_RULE)
        if bias is not None:
            scores += tl.load(bias + first + edges)
        if scores_out is not None:
            tl.store(scores_out + first + edges, scores, is_edge)
        higher = tl.max(scores, 0)
        if higher > most:
            shrink = tl.exp(most - higher)
            total *= shrink
            sums *= shrink
            most = higher
        weights = tl.exp(scores - most)
        total += tl.sum(weights, 0)
        if weight_scale is not None:
            weights *= tl.load(weight_scale + first + edges).to(dtype)
        v = load_rows(value + of_keys * D_VALUE, keys_there, None, D_VALUE).to(dtype)
        sums = tl.fma(tl.broadcast_to(weights[:, None], v.shape), v, sums)
    is_empty = n_edges == 0
    total = tl.where(is_empty, 1.0, total)
    mean = tl.sum(sums, 0)
    log = tl.where(is_empty, 0.0, most.to(tl.float64) + tl.log(total).to(tl.float64))
    if slot < 0:
        store_row(out, row, mean / total, D_VALUE)
        tl.store(log_total + row, log)
    else:
        store_row(part, slot, mean / total, D_VALUE)
        tl.store(part_log_total + slot, log)


@kernel
def join_softmax(out, log_total, part, part_log_total, slot_ptr, D_VALUE: tl.constexpr):
    """Joins the pieces of a row, each weighted in proportion to its denominator."""
    row = tl.program_id(0).to(tl.int64)
    first, last = tl.load(slot_ptr + row), tl.load(slot_ptr + row + 1)
    if first < last:
        mean = load_row(part, first, D_VALUE)
        log = tl.load(part_log_total + first)
        for slot in range(first + 1, last):
            other = tl.load(part_log_total + slot)
            most = tl.maximum(log, other)
            joint = most + tl.log(tl.exp(log - most) + tl.exp(other - most))
            theirs = load_row(part, slot, D_VALUE)
            mean = mean * tl.exp(log - joint).to(mean.dtype) + theirs * tl.exp(other - joint).to(mean.dtype)
            log = joint
        store_row(out, row, mean, D_VALUE)
        tl.store(log_total + row, log)


@kernel
def attend_backward(
    query, key, value, gate, bias, sink, weight_scale, row_ptr, keys, piece_row, piece_ptr, slot_ptr,
    out, log_total, grad_out, grad_weights, mean_of_grad, grad_query, part, grad_score, grad_gate, grad_bias, grad_sink,
    weights_out, n_rows, n_queries, n_keys,
    D: tl.constexpr, D_VALUE: tl.constexpr, PIECE: tl.constexpr, EDGES: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Computes, for a piece of a row, the gradients of query and sink, and per edge those of q·k, gate and bias.

    Also writes the weight of each edge's value. With weights w, scale c, scores s and gradients u of the weights that
    were returned: dw = c · ⟨dout, v⟩ + u, and ds = w · (dw − Σ w dw), where Σ w dw = ⟨dout, out⟩ + Σ w u. The last sum
    is given as ``mean_of_grad``, since a piece does not see the whole row. A sink has the same ds, with a dw of zero.
    """
    row, first, n_edges, slot = locate(piece_row, piece_ptr, slot_ptr, row_ptr, n_rows, PIECE)
    if row >= n_rows:
        return
    dtype = part.dtype.element_ty
    q = load_row(query, row, D).to(dtype)
    slope = load_row(grad_out, row, D_VALUE).to(dtype)
    mean = tl.sum(slope * load_row(out, row, D_VALUE).to(dtype), 0)
    if grad_weights is not None:
        mean += tl.load(mean_of_grad + row)
    log = tl.load(log_total + row)
    if sink is not None:
        log_share = tl.minimum(tl.load(sink + row // n_queries).to(tl.float64) - log, 0.0)  # positive in empty rows
        share = tl.exp(log_share.to(dtype))
        tl.store(grad_sink + row, -share * mean, (first == tl.load(row_ptr + row)) & (n_edges > 0))
    sums = tl.zeros((EDGES, block_of(D)), dtype)
    of_keys = row // n_queries * n_keys
    for start in range(0, n_edges, EDGES):
        edges = start + tl.arange(0, EDGES)
        is_edge = edges < n_edges
        edges = tl.minimum(edges, n_edges - 1)  # beyond the end, the last edge is repeated
        keys_there = tl.load(keys + first + edges).to(tl.int32)
        k = load_rows(key + of_keys * D, keys_there, None, D).to(dtype)
        v = load_rows(value + of_keys * D_VALUE, keys_there, None, D_VALUE).to(dtype)
        scores, gates = _scores(q, k, gate, first, edges, is_edge, scale_of(D), IS_SCORE_RULE)
        arguments = scores if bias is None else scores + tl.load(bias + first + edges)
        weights = tl.exp((arguments.to(tl.float64) - log).to(dtype))
        to_weight = tl.sum(v * slope[None, :], 1)
        kept = weights
        if weight_scale is not None:
            scales = tl.load(weight_scale + first + edges).to(dtype)
            to_weight *= scales
            kept *= scales
        if grad_weights is not None:
            to_weight += tl.load(grad_weights + first + edges)
        to_score = weights * (to_weight - mean)
        if grad_bias is not None:
            tl.store(grad_bias + first + edges, to_score, is_edge)
        if gate is not None:
            if IS_SCORE_RULE:
                tl.store(grad_gate + first + edges, to_score * (tl.where(is_edge, scores, 0.0) / gates), is_edge)
                to_score *= gates
            else:
                tl.store(grad_gate + first + edges, to_score / gates, is_edge)
        to_score *= scale_of(D)
        tl.store(weights_out + first + edges, kept, is_edge)
        tl.store(grad_score + first + edges, to_score, is_edge)
        sums = tl.fma(tl.broadcast_to(tl.where(is_edge, to_score, 0.0)[:, None], k.shape), k, sums)
    to_query = tl.sum(sums, 0)
    if slot < 0:
        store_row(grad_query, row, to_query, D)
    else:
        store_row(part, slot, to_query, D)


@kernel
def _scores(q, k, gate, first, edges, is_edge, SCALE: tl.constexpr, IS_SCORE_RULE: tl.constexpr):
    """Computes the softmax's arguments, g · q·k / √d or q·k / √d + ln g, and the gates g."""
    scores = tl.sum(k * q[None, :], 1) * SCALE
    gates = tl.full(edges.shape, 1, q.dtype)
    if gate is not None:
        gates = tl.load(gate + first + edges).to(q.dtype)
        scores = scores * gates if IS_SCORE_RULE else scores + tl.log(gates)
    return tl.where(is_edge, scores, float("-inf")), gates
