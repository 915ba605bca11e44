"""Ways to attend: SBM attention, what it is compared with, and how large an input each can take."""

import copy
import math
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
from sbmt.samplers import sample_edges
from sbmt.types import AttentionOutput

REFERENCE, OURS = "sdpa", "sbm"


@dataclass(frozen=True)
class Contestant:
    """One way to attend.

    Attributes:
        title: Its name in tables.
        attend: Maps a case to the output ``(1, heads, n, d_head)``, or to an attention's whole output, whose auxiliary
            loss then takes part in a training step.
        most_cells: Largest number of pairs over all heads at which it takes part on a CPU; a GPU runs out of memory.
        most_edges: Largest number of edges over all heads at which it takes part on a CPU.
        is_sbm: Whether the layer's parameters take part.
        has_backward: Whether it has a backward pass on a CPU.
    """

    title: str
    attend: Callable[[Case], Tensor | AttentionOutput]
    most_cells: int | float = math.inf
    most_edges: int | float = math.inf
    is_sbm: bool = True
    has_backward: bool = True

    def why_not(self, setting: Setting, is_training: bool) -> str | None:
        """Why it does not take part on a CPU, or None."""
        if is_training and not self.has_backward:
            return "forward only: on the CPU it has no backward pass"
        n_cells = setting.n_heads * setting.n**2
        for size, most, what in (
            (n_cells, self.most_cells, "pairs"),
            (n_cells * setting.density, self.most_edges, "edges"),
        ):
            if size > most:
                return f"left out above {most / 2**20:.0f} Mi {what} over all heads"
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

    return Entry(training if is_training else forward)


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
        layer = copy.copy(case.layer)  # shares the parameters
        for name, value in changed.items():
            setattr(layer, name, value)
        layer.training = torch.is_grad_enabled()
        output: AttentionOutput = layer(case.query, case.key, case.value)
        return output

    return attend


def flex_attention(case: Case) -> Tensor:
    """FlexAttention over a sampled mask; it has no gate, so no gradient reaches the block model."""
    with torch.no_grad():
        edges = sample_edges(case.block_model())
        if case.layer.window is not None:
            edges = edges.with_window(case.layer.window)
        blocks = edges.to_block_mask()
    tokens = [x if torch.is_grad_enabled() else x.detach() for x in (case.query, case.key, case.value)]
    values: Tensor = _compiled_flex_attention()(*tokens, block_mask=blocks)
    return values


@cache
def _compiled_flex_attention() -> Any:
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = 64  # a variant for every n, with and without gradients; the default is 8
    return torch.compile(flex_attention, dynamic=False)


def window_attention(case: Case) -> AttentionOutput:
    """The window that holds as many keys as are drawn, through the library's own kernels."""
    setting = case.setting
    n_keys = round(setting.n * setting.density)
    layer = RandomMaskAttention(setting.d_head, setting.n_heads, mask_density=0.0, window=n_keys)
    output: AttentionOutput = layer(case.query, case.key, case.value)
    return output


CONTESTANTS = {
    REFERENCE: Contestant("SDPA", full_attention, most_cells=2**30, is_sbm=False),
    OURS: Contestant("SBM", layer_with()),
    "pyg": Contestant("pyg", layer_with(backend="pyg"), most_edges=2**22),
    "flex": Contestant("flex", flex_attention, most_cells=2**26, is_sbm=False, has_backward=False),
    "dense": Contestant("dense", layer_with(sampler="bernoulli", backend="dense"), most_cells=2**24),
}
FITTED_CONTESTANTS = {
    REFERENCE: CONTESTANTS[REFERENCE],
    OURS: replace(CONTESTANTS[OURS], title="fitted"),
    "window": Contestant("window", window_attention, is_sbm=False),
    "flex": CONTESTANTS["flex"],
    "dense": Contestant("dense", layer_with(backend="dense"), most_cells=2**24),
}
