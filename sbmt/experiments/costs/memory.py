"""Peak memory of a forward pass of each case, measured by ``python -m sbmt.experiments.costs.memory CASES``."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sbmt.experiments.costs.methods import Case, build_case, method_of, sample_tokens
from sbmt.experiments.memory import MEBIBYTE, STEADY, give_back, held, in_fresh_process, reset_peak
from sbmt.layers import SBMAttention
from sbmt.registration import load_plugins

_STEPS = 40


def peak_memory(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """How much memory one forward pass of each case adds, at its peak, to what the process already holds.

    The batch is one example (a pair of documents for retrieval), in eval mode, without gradients and on one thread. All
    cases share one fresh process. Weights and inputs do not count, outputs do. Numbers vary by a few per cent.

    Returns:
        For each case ``forward`` and ``before`` (what was held) in MiB, and the ``density`` of the masks drawn, None if
        there are none; or ``missing`` with the reason.
    """
    found = in_fresh_process("sbmt.experiments.costs.memory", [case.to_dict() for case in cases], STEADY)
    return found if isinstance(found, list) else [found] * len(cases)


def measure_forward(case: Case) -> dict[str, Any]:
    """The same for one case in this process, which should be a fresh one."""
    kernels = nullcontext() if method_of(case.method).is_fused else sdpa_kernel(SDPBackend.MATH)
    with torch.inference_mode(), kernels:
        for size in (min(128, case.n), case.n):  # the small one loads kernels and starts thread pools
            mine = replace(case, n=size)
            model, tokens = build_case(mine), sample_tokens(mine)
            meet_density(model, tokens, case.density)
            give_back()
            reset_peak()
            before = held("VmRSS")
            output = model(tokens)
            peak = held("VmHWM")
    densities = torch.cat([attended.density.flatten() for attended in output.attention])
    density = round(float(densities.mean()), 5) if case.draws_mask else None
    sizes = {"forward": peak - before, "before": before}
    return {name: round(size / MEBIBYTE, 2) for name, size in sizes.items()} | {"density": density}


def meet_density(model: nn.Module, tokens: Tensor, density: float) -> None:
    """Sets the SBM layers of a fresh model so that each mask has this density in expectation.

    Clusters and nodes are first moved apart, so that memberships vary as much as their mean and the exact sampler
    builds its tables; in a fresh layer they are so alike that it does without, and needs up to a third less memory.
    Then all clusters of a head get the same component along one direction, and bisection finds how far to move the
    MLP's last bias, and with it all memberships, along that direction. Other attentions are not changed.
    """
    hooks = [
        layer.register_forward_pre_hook(partial(_shift, density=density))
        for layer in model.modules()
        if isinstance(layer, SBMAttention)
    ]
    if hooks:
        model(tokens)
    for hook in hooks:
        hook.remove()


def _shift(layer: nn.Module, inputs: tuple[Tensor, ...], density: float) -> None:
    assert isinstance(layer, SBMAttention)
    last = layer.node_mlp[-1]
    assert isinstance(last, nn.Linear)
    layer.clusters.mul_(5.0)
    last.weight.mul_(10.0)
    direction = torch.full((layer.clusters.shape[-1],), layer.clusters.shape[-1] ** -0.5)
    layer.clusters.sub_((layer.clusters @ direction - 1.0)[..., None] * direction)
    start = last.bias.clone()
    low, high = -40.0, 40.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        last.bias.copy_(start + middle * direction)
        mean = float(layer.block_model(*inputs[:2]).expected_density().mean())
        low, high = (middle, high) if mean < density else (low, middle)


if __name__ == "__main__":
    load_plugins()
    torch.set_num_threads(1)
    print(json.dumps([measure_forward(Case(**asked)) for asked in json.loads(sys.argv[1])]))
