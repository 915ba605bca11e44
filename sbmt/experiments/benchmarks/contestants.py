"""Ways to attend: SBM attention, what it is compared with, and how large an input each can take."""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sbmt.baselines.random_mask import RandomMaskAttention
from sbmt.experiments.benchmarks.cases import Case, Setting
from sbmt.experiments.benchmarks.timing import Entry
from sbmt.graph.edges import EdgeList
from sbmt.samplers import sample_edges
from sbmt.types import AttentionOutput

REFERENCE = "sdpa"
OURS = "sbm"


@dataclass(frozen=True)
class Contestant:
    """One way to attend.

    Attributes:
        title: Its name in tables.
        attend: Maps a case to the output ``(1, heads, n, d_head)``, or to an attention's whole output, whose auxiliary
            loss then takes part in a training step.
        most_cells: Largest number of pairs over all heads at which it takes part.
        most_edges: Largest number of edges over all heads at which it takes part.
        most_messages: Largest number of edges · d_head at which it takes part.
        is_sbm: Whether the layer's parameters take part.
        why_no_backward: Why it only runs forward; None if it runs both ways.
    """

    title: str
    attend: Callable[[Case], Tensor | AttentionOutput]
    most_cells: int | float = math.inf
    most_edges: int | float = math.inf
    most_messages: int | float = math.inf
    is_sbm: bool = True
    why_no_backward: str | None = None

    def why_not(self, setting: Setting, is_training: bool) -> str | None:
        """Why it does not take part, or None."""
        if is_training and self.why_no_backward is not None:
            return self.why_no_backward
        for size, most, what in (
            (setting.n_cells, self.most_cells, "pairs over all heads"),
            (setting.expected_edges, self.most_edges, "edges over all heads"),
            (setting.expected_edges * setting.d_head, self.most_messages, "numbers in messages (edges · d_head)"),
        ):
            if size > most:
                return f"left out above {most / 2**20:.0f} Mi {what}"
        return None


def entry(contestant: Contestant, case: Case, is_training: bool) -> Entry:
    """What is timed: the output and, with ``is_training``, all gradients of its product with the cotangent."""

    def forward(_: object) -> Tensor:
        with torch.no_grad():
            return _values(contestant.attend(case))

    def training(_: object) -> tuple[Tensor | None, ...]:
        leaves = case.leaves if contestant.is_sbm else case.leaves[:3]
        output = contestant.attend(case)
        outputs, cotangents = [_values(output)], [case.cotangent]
        if isinstance(output, AttentionOutput) and output.auxiliary_loss.requires_grad:
            outputs.append(output.auxiliary_loss)
            cotangents.append(torch.ones_like(output.auxiliary_loss))
        return torch.autograd.grad(outputs, leaves, cotangents, allow_unused=not contestant.is_sbm)

    return Entry(training if is_training else forward, device=case.query.device)


def _values(output: Tensor | AttentionOutput) -> Tensor:
    return output.values if isinstance(output, AttentionOutput) else output


def full_attention(case: Case) -> Tensor:
    """Full attention by torch; on a GPU by the flash kernel alone, which raises if it cannot run."""
    if not case.query.is_cuda:
        return scaled_dot_product_attention(case.query, case.key, case.value)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(case.query, case.key, case.value)


def layer_with(**changed: str) -> Callable[[Case], AttentionOutput]:
    """The case's layer with some settings changed, in training mode where gradients are wanted."""

    def attend(case: Case) -> AttentionOutput:
        layer = copy.copy(case.layer) if changed else case.layer  # a copy shares the parameters
        for name, value in changed.items():
            setattr(layer, name, value)
        layer.training = torch.is_grad_enabled()
        output: AttentionOutput = layer(case.query, case.key, case.value)
        return output

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


def flex_attention(case: Case) -> Tensor:
    """FlexAttention over a sampled mask; it has no gate, so no gradient reaches the block model."""
    with torch.no_grad():
        blocks = _drawn(case).to_block_mask()
    tokens = [x if torch.is_grad_enabled() else x.detach() for x in (case.query, case.key, case.value)]
    values: Tensor = _compiled_flex_attention()(*tokens, block_mask=blocks)
    return values


def transformer_conv(case: Case) -> Tensor:
    """PyTorch Geometric's ``TransformerConv`` along the sampled edges, with projections of its own."""
    from torch_geometric.nn import TransformerConv

    with torch.no_grad():
        edges = _drawn(case).to_edge_index()
    width = case.setting.d_head
    with torch.random.fork_rng(devices=[]):
        layer = TransformerConv(width, width, root_weight=False)
    out: Tensor = layer((case.value.flatten(0, 2), case.query.flatten(0, 2)), edges)
    return out.view_as(case.value)


def window_attention(case: Case) -> AttentionOutput:
    """The window that holds as many keys as are drawn, through the library's own kernels."""
    setting = case.setting
    n_keys = round(setting.n * setting.density)
    layer = RandomMaskAttention(setting.d_head, setting.n_heads, mask_density=0.0, window=n_keys)
    output: AttentionOutput = layer(case.query, case.key, case.value)
    return output


def _drawn(case: Case) -> EdgeList:
    """The mask that the case's layer would attend."""
    edges = sample_edges(case.block_model())
    return edges if case.layer.window is None else edges.with_window(case.layer.window)


@cache
def _compiled_flex_attention() -> Any:
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = 64  # a variant for every n, with and without gradients; the default is 8
    return torch.compile(flex_attention, dynamic=False)


CONTESTANTS = {
    REFERENCE: Contestant("SDPA", full_attention, most_cells=2**30, is_sbm=False),
    OURS: Contestant("SBM", layer_with()),
    "pyg": Contestant("pyg", layer_with(backend="pyg"), most_messages=2**27),
    "torch.sparse": Contestant("torch.sparse", torch_sparse, most_messages=2**27),
    "flex": Contestant(
        "flex", flex_attention, most_cells=2**26, why_no_backward="forward only: on the CPU it has no backward pass"
    ),
    "dense": Contestant(
        "dense", layer_with(sampler="bernoulli", backend="dense"), most_cells=2**24, most_messages=2**28
    ),
}

FITTED_CONTESTANTS = {
    REFERENCE: CONTESTANTS[REFERENCE],
    OURS: replace(CONTESTANTS[OURS], title="fitted"),
    "window": Contestant("window", window_attention, is_sbm=False),
    "transformer_conv": Contestant("TransformerConv", transformer_conv, most_messages=2**27, is_sbm=False),
    "flex": CONTESTANTS["flex"],
    "dense": Contestant("dense", layer_with(backend="dense"), most_cells=2**24),
}

_INDEXED = 2**31 - 1  # edges that 32 bits number
GPU_CONTESTANTS = {
    REFERENCE: Contestant("SDPA", full_attention, is_sbm=False),
    "sparse": Contestant("sparse", layer_with(sampler="exact", backend="gpu"), most_edges=_INDEXED),
    "dense": Contestant("dense", layer_with(sampler="bernoulli", backend="dense"), most_cells=2**30),
    "auto": Contestant("auto", layer_with(backend="auto")),
    "flex": Contestant("flex", flex_attention, most_cells=2**31, most_edges=_INDEXED, is_sbm=False),
    "pyg": Contestant("pyg", layer_with(backend="pyg"), most_edges=_INDEXED),
    "torch.sparse": Contestant("torch.sparse", torch_sparse, most_edges=_INDEXED),
}
"""The reference; ours along edges, over all pairs, and by its own choice; and other libraries."""
