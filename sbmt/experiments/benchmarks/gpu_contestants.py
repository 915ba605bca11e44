"""The contestants on a GPU, and how a case gets there."""

import copy
import inspect
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sbmt.experiments.benchmarks.cases import Case, Setting
from sbmt.experiments.benchmarks.contestants import REFERENCE, Contestant, layer_with, torch_sparse

SPARSE, TILED, AUTO = "sparse", "tiled", "auto"
BLOCK = 128  # FlexAttention's blocks


@dataclass(frozen=True)
class GpuContestant(Contestant):
    """A contestant that is left out if it cannot fit into memory.

    Attributes:
        most_edges: Number of edges over all heads below which it takes part.
        edge_bytes: Bytes that it holds of every edge at once, at the very least.
        cell_bytes: Bytes that it holds of every pair.
    """

    most_edges: int | float = math.inf
    edge_bytes: int = 0
    cell_bytes: int = 0

    def why_too_large(self, setting: Setting, room: int | None) -> str | None:
        """Why it is not even tried on a device with ``room`` bytes (None means unlimited), or None."""
        if setting.expected_edges >= self.most_edges:
            return f"left out from {self.most_edges / 2**20:.0f} Mi edges on"
        needed = self.edge_bytes * setting.expected_edges + self.cell_bytes * setting.n_cells
        if room is not None and needed > room:
            return "left out where edges or pairs alone need more memory than the GPU has"
        return None


def on_device(case: Case, device: torch.device, dtype: torch.dtype) -> Case:
    """The case on a device, with its layer in float32 and its tokens in ``dtype``, as under autocast."""
    tokens = [x.detach().to(device, dtype) for x in (case.query, case.key, case.value, case.cotangent)]
    for leaf in tokens[:3]:
        leaf.requires_grad_()
    return Case(case.setting, copy.deepcopy(case.layer).to(device), *tokens)


def flash_attention(case: Case) -> Tensor:
    """Full attention by the flash kernel and no other, which raises where it cannot run."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(case.query, case.key, case.value)


def flex_attention(case: Case) -> Tensor:
    """FlexAttention over a sampled mask; it has no gate, so nothing reaches the block model."""
    with torch.no_grad():
        probability = case.block_model().expected_mask()
        mask = torch.rand_like(probability) < probability
        del probability
        blocks = _block_mask(mask)
    values: Tensor = _compiled_flex_attention()(case.query, case.key, case.value, block_mask=blocks)
    return values


def _block_mask(mask: Tensor) -> Any:
    """Which blocks of a dense mask are visited, and in which of these the mask need not be read."""
    from torch.nn.attention.flex_attention import BlockMask

    n_queries, n_keys = mask.shape[2:]

    def is_edge(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask[batch, head, query, key]

    per_block = mask.unflatten(3, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).sum((3, 5))  # batch heads blocks blocks
    is_full = per_block == BLOCK**2
    return BlockMask.from_kv_blocks(
        *_ordered((per_block > 0) & ~is_full),
        *_ordered(is_full),
        BLOCK_SIZE=BLOCK,
        mask_mod=inspect.unwrap(is_edge),  # tests wrap everything in shape checks, which cannot be compiled
        seq_lengths=(n_queries, n_keys),
    )


def _ordered(is_chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many chosen blocks each row of blocks has, and the numbers of all blocks, the chosen ones first."""
    numbers = is_chosen.int().argsort(stable=True, dim=-1, descending=True)
    return is_chosen.sum(-1, dtype=torch.int32), numbers.int()


@cache
def _compiled_flex_attention() -> Any:
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = 64  # a variant for every n, with and without gradients; the default is 8
    return torch.compile(flex_attention, dynamic=False)


_INDEXED = 2**31  # edges that kernels number in 32 bits
CONTESTANTS: dict[str, GpuContestant] = {
    REFERENCE: GpuContestant("SDPA", flash_attention, is_sbm=False),
    SPARSE: GpuContestant("sparse", layer_with(sampler="exact", backend="gpu"), most_edges=_INDEXED, edge_bytes=5 * 8),
    TILED: GpuContestant("tiled", layer_with(sampler="bernoulli", backend="gpu")),
    AUTO: GpuContestant("auto", layer_with(backend="auto")),
    "flex": GpuContestant("flex", flex_attention, most_cells=2**31, is_sbm=False, cell_bytes=4 + 4 + 1),
    "pyg": GpuContestant("pyg", layer_with(backend="pyg"), most_edges=_INDEXED, edge_bytes=4 * 64 * 2),
    "torch.sparse": GpuContestant("torch.sparse", torch_sparse, most_edges=_INDEXED, edge_bytes=5 * 8),
}
"""The reference; ours along edges, over tiles, and by its own choice; and other libraries."""


def setting_at(n: int, density: float, kind: str) -> Setting:
    """One attention of eight heads of width 64, k = 128: a width that flash kernels are made for."""
    return replace(Setting(n, density, kind), n_heads=8, d_head=64)


def describe(setting: Setting) -> str:
    """A setting in a few words.

    Example:
        >>> describe(setting_at(4096, 0.01, "structured"))
        'structured, n = 4,096, density 1 %'
    """
    return f"{setting.kind}, n = {setting.n:,}, density {100 * setting.density:.3g} %"
