"""Ways to attend: the layer, what it is compared with, and how large an input each can take."""

import copy
import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sbmt.experiments.benchmarks.cases import Case, Setting
from sbmt.experiments.benchmarks.timing import Entry
from sbmt.samplers import sample_edges

REFERENCE = "sdpa"
OURS = "sbm"


@dataclass(frozen=True)
class Contestant:
    """One way to attend.

    Attributes:
        title: Its name in tables.
        attend: Maps a case to the output ``(1, heads, n, d_head)``.
        most_cells: Largest number of pairs over all heads at which it takes part.
        most_messages: Largest number of edges · d_head at which it takes part.
        is_sbm: Whether the layer's parameters take part.
        why_no_backward: Why it only runs forward; None if it runs both ways.
    """

    title: str
    attend: Callable[[Case], Tensor]
    most_cells: int | float = math.inf
    most_messages: int | float = math.inf
    is_sbm: bool = True
    why_no_backward: str | None = None

    def why_not(self, setting: Setting, is_training: bool) -> str | None:
        """Why it does not take part, or None."""
        if is_training and self.why_no_backward is not None:
            return self.why_no_backward
        if setting.n_cells > self.most_cells:
            return f"left out above {self.most_cells / 2**20:.0f} Mi pairs over all heads"
        if setting.expected_edges * setting.d_head > self.most_messages:
            return f"left out above {self.most_messages / 2**20:.0f} Mi numbers in messages (edges · d_head)"
        return None


def entry(contestant: Contestant, case: Case, is_training: bool) -> Entry:
    """What is timed: the output and, with ``is_training``, all gradients of its product with the cotangent."""

    def forward(_: object) -> Tensor:
        with torch.no_grad():
            return contestant.attend(case)

    def training(_: object) -> tuple[Tensor, ...]:
        leaves = case.leaves if contestant.is_sbm else case.leaves[:3]
        return torch.autograd.grad(contestant.attend(case), leaves, case.cotangent)

    return Entry(training if is_training else forward, device=case.query.device)


def try_once(contestant: Contestant, case: Case, is_training: bool) -> str | None:
    """Runs a contestant from another library; returns why it does not run here, or None."""
    try:
        entry(contestant, case, is_training).seconds()
    except Exception as error:  # whatever a foreign backend raises on this machine is the finding
        first_line = (str(error).strip() or "no message").splitlines()[0]
        return f"does not run here: {type(error).__name__}: {first_line[:160]}"
    return None


def _full_attention(case: Case) -> Tensor:
    return scaled_dot_product_attention(case.query, case.key, case.value)


def layer_with(**changed: str) -> Callable[[Case], Tensor]:
    """The case's layer with some settings changed."""

    def attend(case: Case) -> Tensor:
        layer = copy.copy(case.layer)  # shares the parameters
        for name, value in changed.items():
            setattr(layer, name, value)
        values: Tensor = layer(case.query, case.key, case.value).values
        return values

    return attend


def torch_sparse(case: Case) -> Tensor:
    """Attention by ``torch.sparse``, head by head: ``sampled_addmm``, softmax over rows, and sparse times dense."""
    model = case.block_model()
    edges = sample_edges(model)
    gate = model.gate(edges) if torch.is_grad_enabled() else edges.keys.new_ones(edges.n_edges, dtype=torch.float32)
    n = case.setting.n
    heads = []
    with warnings.catch_warnings():
        for message in ("Sparse CSR tensor support is in beta", "Sparse invariant checks"):
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        for head in range(case.setting.n_heads):
            row_ptr = edges.row_ptr[head * n : (head + 1) * n + 1]
            mine = slice(int(row_ptr[0]), int(row_ptr[-1]))
            pattern = row_ptr - row_ptr[0], edges.keys[mine]
            query, key, value = (x[0, head].to(gate.dtype) for x in (case.query, case.key, case.value))
            heads.append(_sparse_head(query, key, value, *pattern, gate[mine]))
    return torch.stack(heads)[None].to(case.value.dtype)


def _sparse_head(query: Tensor, key: Tensor, value: Tensor, row_ptr: Tensor, keys: Tensor, gate: Tensor) -> Tensor:
    size = (query.shape[0], key.shape[0])
    zeros = torch.sparse_csr_tensor(row_ptr, keys, torch.zeros_like(gate), size, check_invariants=False)
    product = torch.sparse.sampled_addmm(zeros, query, key.mT, beta=0.0, alpha=query.shape[1] ** -0.5)
    scores, degrees = product.values() * gate, row_ptr.diff()
    most = torch.segment_reduce(scores.detach(), "max", offsets=row_ptr, initial=-math.inf)
    powers = (scores - most.repeat_interleave(degrees)).exp()
    weights = powers / torch.segment_reduce(powers, "sum", offsets=row_ptr).repeat_interleave(degrees)
    return torch.sparse_csr_tensor(row_ptr, keys, weights, size, check_invariants=False) @ value


def _flex_attention(case: Case) -> Tensor:
    """FlexAttention over the sampled mask, compiled as its documentation recommends; it has no gate."""
    make_blocks, attend = _compiled_flex()
    mask = sample_edges(case.block_model()).to_dense()

    def is_edge(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask[batch, head, query, key]

    plain = inspect.unwrap(is_edge)  # tests wrap everything in shape checks, which cannot be compiled
    blocks = make_blocks(plain, *mask.shape, device=str(mask.device))
    values: Tensor = attend(*(x.detach() for x in (case.query, case.key, case.value)), block_mask=blocks)
    return values


@cache
def _compiled_flex() -> tuple[Any, Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    return torch.compile(create_block_mask), torch.compile(flex_attention)


CONTESTANTS = {
    REFERENCE: Contestant("SDPA", _full_attention, most_cells=2**30, is_sbm=False),
    OURS: Contestant("SBM", layer_with()),
    "pyg": Contestant("pyg", layer_with(backend="pyg"), most_messages=2**27),
    "torch.sparse": Contestant("torch.sparse", torch_sparse, most_messages=2**27),
    "flex": Contestant(
        "flex",
        _flex_attention,
        most_cells=2**26,
        why_no_backward="forward only: on the CPU it has no backward pass",
    ),
    "dense": Contestant(
        "dense", layer_with(sampler="bernoulli", backend="dense"), most_cells=2**24, most_messages=2**28
    ),
}
FOREIGN = {"torch.sparse", "flex"}
"""Contestants that may not run on every machine."""
