"""Attention along given edges: every backend, the same numbers and gradients, whatever the numbers are."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from sbmt import EdgeList, available_backends, edge_attention
from tests.faults.ingredients import (
    DTYPES,
    JUNK,
    LAYOUTS,
    PADDING,
    SIZES,
    gradients,
    is_finite,
    laid_out,
    normal,
    padding,
    real_pairs,
    refused,
    seeded,
    tokens,
)

SCALES = (1.0, 0.0, 1e-30, 1e30, 1e4, 100.0, 1e-4, 1e18)
PATTERNS = ("random", "nothing", "everything", "one edge", "one row", "one column", "diagonal", "sparse")
GATES = ("none", "ones", "random", "tiny", "huge")


@dataclass(frozen=True)
class EdgeAttentionCase:
    """Queries, keys, values, edges and gates by the names of their parts."""

    batch: int
    heads: int
    n_queries: int
    n_keys: int
    d: int
    d_value: int
    pattern: str
    query_padding: str
    key_padding: str
    query_scale: float
    key_scale: float
    value_scale: float
    junk: float
    gate: str
    gate_rule: str
    dropout: float
    dtype: torch.dtype
    layout: str
    is_leaf: bool
    seed: int

    @property
    def shape(self):
        return self.batch, self.heads, self.n_queries, self.n_keys

    def edges(self):
        masks = (
            padding(self.query_padding, self.batch, self.n_queries, self.seed),
            padding(self.key_padding, self.batch, self.n_keys, self.seed + 1),
        )
        generator = seeded(self.seed)
        at = torch.randint(1 << 30, (4,), generator=generator).tolist()
        dense = torch.zeros(self.shape, dtype=torch.bool)
        b, h, i, j = (place % n for place, n in zip(at, self.shape, strict=True))
        where = {"one edge": (b, h, i, j), "one row": (b, h, i), "one column": (..., j), "everything": ()}
        if self.pattern in where:
            dense[where[self.pattern]] = True
        elif self.pattern == "diagonal":
            dense |= torch.eye(self.n_queries, self.n_keys, dtype=torch.bool)
        elif self.pattern != "nothing":
            share = 0.5 if self.pattern == "random" else 0.1
            dense = torch.rand(self.shape, generator=generator) < share
        return EdgeList.from_dense(dense & real_pairs(*masks, self.shape), *masks)

    def leaves(self, edges):
        """Query, key, value, with junk at padding, and the gate."""
        batch, heads, n_queries, n_keys = self.shape
        drawn = []
        for seed, (n, d, scale, mask) in enumerate(
            (
                (n_queries, self.d, self.query_scale, edges.query_mask),
                (n_keys, self.d, self.key_scale, edges.key_mask),
                (n_keys, self.d_value, self.value_scale, edges.key_mask),
            )
        ):
            shape, is_shared = (batch, heads, n, d), self.layout == "expanded"
            drawn.append(tokens(shape, self.seed + seed, self.dtype, scale, mask, self.junk, is_shared))
        uniform = torch.rand(edges.n_edges, generator=seeded(self.seed), dtype=torch.float64) + 0.5
        scale = {"none": None, "ones": None, "random": 1.0, "tiny": 1e-30, "huge": 1e30}[self.gate]
        gate = torch.ones_like(uniform) if scale is None else uniform * scale
        gate = gate.to(torch.promote_types(self.dtype, torch.float32))
        return [x.requires_grad_(self.is_leaf) for x in (*drawn, gate)]


def edge_attention_cases():
    """Any edges, any sizes of numbers that the type holds, anything at padding."""
    size, scale = st.sampled_from(SIZES), st.sampled_from(SCALES)
    return st.builds(
        EdgeAttentionCase,
        batch=size,
        heads=size,
        n_queries=size | st.sampled_from([9, 66]),
        n_keys=size | st.sampled_from([9, 130]),
        d=size,
        d_value=size,
        pattern=st.sampled_from(PATTERNS),
        query_padding=st.sampled_from(PADDING),
        key_padding=st.sampled_from(PADDING),
        query_scale=scale,
        key_scale=scale,
        value_scale=scale,
        junk=st.sampled_from(JUNK),
        gate=st.sampled_from(GATES),
        gate_rule=st.sampled_from(["score", "weight"]),
        dropout=st.sampled_from([0.0, 0.99, 0.3]),
        dtype=st.sampled_from(DTYPES),
        layout=st.sampled_from(LAYOUTS),
        is_leaf=st.booleans(),
        seed=st.integers(0, 1 << 32),
    )


def check_edge_attention(case):
    """Finite where scores are, zeros where nothing is attended, one answer from all backends."""
    if 0 in (*case.shape, case.d, case.d_value):
        with refused("none of them 0|at least one example, head, query and key"):
            edges = EdgeList.from_dense(torch.zeros(case.shape, dtype=torch.bool))
            query, key = (torch.zeros(case.batch, case.heads, n, case.d) for n in case.shape[2:])
            edge_attention(query, key, torch.zeros(case.batch, case.heads, case.n_keys, case.d_value), edges)
        return "refused"
    edges = case.edges()
    leaves = case.leaves(edges)
    bounds = Bounds.of(case, leaves, edges)
    found = {name: _attend(case, leaves, edges, name) for name in (*available_backends(), "auto")}
    mask = edges.to_dense()
    for out, grads in found.values():
        assert out.shape == (*case.shape[:3], case.d_value) and out.dtype == case.dtype and out.device.type == "cpu"
        assert out.requires_grad == case.is_leaf
        assert (out[~mask.any(-1)] == 0).all()
        for axis, gradient in zip((-1, -2, -2), grads, strict=False):
            is_read = mask.any(axis)
            is_read = is_read.any(0, keepdim=True) if case.layout == "expanded" else is_read
            # The dense backend lets a score that overflows spread over its row's gradients.
            assert gradient is None or not bounds.are_values_finite or (gradient[~is_read] == 0).all()
        if bounds.are_values_finite:
            assert is_finite(out)
        if bounds.are_gradients_finite:
            assert is_finite(*grads)
    _check_agreement(found, bounds)
    return "answered"


def _attend(case, leaves, edges, backend):
    query, key, value, gate = leaves
    tensors = (laid_out(x, case.layout, case.batch) for x in (query, key, value))
    settings = dict(gate_rule=case.gate_rule, dropout=case.dropout, generator=seeded(case.seed))
    out = edge_attention(*tensors, edges, None if case.gate == "none" else gate, backend=backend, **settings)
    weights = normal(out.shape, case.seed + 9, case.dtype)
    return out, gradients((out * weights).sum(), leaves)


def _check_agreement(found, bounds):
    (dense, dense_grads), *others = found.values()
    for out, grads in others:
        if bounds.are_values_finite and bounds.blur < 1e-2:
            _close(out, dense, bounds.value, bounds)
        if bounds.are_gradients_finite and bounds.blur < 1e-3:
            for mine, theirs, size in zip(grads, dense_grads, bounds.gradients, strict=True):
                assert (mine is None) == (theirs is None)
                if mine is not None:
                    _close(mine, theirs, size, bounds)


def _close(mine, theirs, size, bounds):
    """Up to rounding, which is relative to what was summed."""
    off = (mine.detach().double() - theirs.detach().double()).abs()
    assert not off.numel() or float(off.max()) <= bounds.tolerance * size + bounds.floor


@dataclass(frozen=True)
class Bounds:
    """How large outputs and gradients can be, and how far rounding of the scores blurs the weights.

    Attributes:
        value: Bound of the output.
        gradients: Of the gradients of query, key, value and gate.
        blur: Rounding error of a score: that of the logarithm of a weight.
        tolerance: Relative to a bound, for two ways of computing what it bounds.
        floor: What may be lost of the sums of numbers so small that the type has no more of them.
        are_values_finite: Whether no score overflows.
        are_gradients_finite: Whether no gradient does either.
    """

    value: float
    gradients: tuple[float, ...]
    blur: float
    tolerance: float
    floor: float
    are_values_finite: bool
    are_gradients_finite: bool

    @staticmethod
    def of(case, leaves, edges):
        masks = (edges.query_mask, edges.key_mask, edges.key_mask)
        real = (
            x.detach().double() if m is None else (m[:, None, :, None] * x.detach().double().nan_to_num(0.0, 0.0, 0.0))
            for x, m in zip(leaves[:3], masks, strict=True)
        )
        q, k, v = (float(x.abs().max()) for x in real)
        gate = leaves[3].detach().double()
        g = float(gate.max()) if gate.numel() and case.gate != "none" else 1.0
        least = float(gate.min()) if gate.numel() and case.gate != "none" else 1.0
        n, up, keep = max(case.shape[2:]), 5.0, 1 - case.dropout  # |weights of the loss| < 5
        score = q * k * case.d**0.5
        slope = up * v * case.d_value * n / keep  # of the loss in a score, summed over a row or a column
        inner = g if case.gate_rule == "score" else 1.0
        to_gate = slope * (score if case.gate_rule == "score" else 1 / least)
        grads = (slope * k * inner, slope * q * inner, up * n / keep, to_gate)
        eps = torch.finfo(case.dtype).eps
        largest = torch.finfo(case.dtype).max / 8
        fits = score * case.d * max(inner, 1.0) < largest and v * n / keep < largest
        return Bounds(
            value=v / keep,
            gradients=grads,
            blur=eps * score * inner * case.d,
            tolerance=64 * eps * (1 + n**0.5) * (1 + score * inner),
            floor=64 * n * torch.finfo(case.dtype).tiny / min(least, 1.0),  # the gate is divided out again
            are_values_finite=fits,
            are_gradients_finite=fits and max(*grads, slope * inner) * case.d < largest,
        )
