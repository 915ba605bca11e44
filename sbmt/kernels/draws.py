"""Drawing edges of rate factors by the exact law, on the CPU and on GPUs."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.crossed import FACTORS
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.operator import operator
from sbmt.kernels.structures import CrossedFactors, RateFactors


def draw_exact(factors: RateFactors, seed: int, first_example: int) -> tuple[Tensor, Tensor] | None:
    """Independent Bernoulli edges, as ``row_ptr`` and ``keys``.

    None where there are no kernels, or where plain torch is expected to be faster.
    """
    if can_run_on(factors.key.device):
        return draw_on_cpu(*factors, seed, first_example)
    if has_gpu_kernels(factors.key.device):
        from sbmt.kernels.gpu.draws import sample

        with torch.cuda.device_of(factors.key):
            return sample(factors, seed, first_example)
    return None


@operator("sbmt::sample_exact", device_types="cpu")
def draw_on_cpu(
    query: Tensor,
    key: Tensor,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    is_poisson: bool,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    """:func:`draw_exact` as an operator."""
    from sbmt.kernels.cpu.draws.sample import sample

    factors = RateFactors(query, key, query_mask, key_mask, exploration, is_poisson)
    return sample(factors, seed, first_example)


@draw_on_cpu.register_fake
def _(query: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    return query.new_empty(query[..., 0].numel() + 1, dtype=torch.int64), key.new_empty(n_edges, dtype=torch.int64)


def draw_from_parts(rate: Tensor, *rest: Any) -> Tensor | None:
    """Cells of independent edges of crossed partitions under the Poisson link and of a window, ascending, by a GPU.

    None where rows have so many points per key that other ways to draw are faster. The arguments are those of
    :func:`sbmt.kernels.gpu.crossed.launch.draw`.
    """
    from sbmt.kernels.gpu.crossed import launch

    with torch.cuda.device_of(rate):
        return launch.draw(rate, *rest)


CROSSED = (
    f"{FACTORS}, int[] shape, Tensor? query_mask, Tensor? key_mask, float exploration, int half_window, int seed, "
    "int first_example"
)


@operator("sbmt::sample_crossed", schema=f"({CROSSED}) -> (Tensor, Tensor)", device_types="cpu")
def draw_crossed(*arguments: Any) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of independent edges of crossed partitions under the Poisson link, and of a window."""
    from sbmt.kernels.cpu.draws.crossed import sample_crossed

    return sample_crossed(CrossedFactors(*arguments[:5]), *arguments[5:])


@draw_crossed.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    query, n_edges = arguments[1], torch.library.get_ctx().new_dynamic_size()
    return query.new_empty(query.shape[0] + 1, dtype=torch.int64), query.new_empty(n_edges, dtype=torch.int64)


@operator(
    "sbmt::attend_drawn",
    schema=f"(Tensor query, Tensor key, Tensor value, Tensor sink, float smallest, {CROSSED}) "
    "-> (Tensor, Tensor, Tensor)",
    device_types="cpu",
)
def attend_drawn(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What attention along the edges of :func:`draw_crossed` gives, without gradients.

    Queries, keys and values are flattened over (example, head, token); if there are more heads than graphs of an
    example, each graph serves as many. There is a sink for each head, or none. A drawn edge's score is raised by
    −ln max(p, ``smallest``), so by nothing if that is 1.

    Returns:
        Values, and for each graph how many edges it has and how many it expects without exploration.
    """
    from sbmt.kernels.cpu.draws.attend import attend_crossed
    from sbmt.kernels.cpu.graphs import Tokens

    return attend_crossed(Tokens(*arguments[:4]), arguments[4], CrossedFactors(*arguments[5:10]), *arguments[10:])


@attend_drawn.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    weight, (batch, heads, *_) = rest[3], rest[7]
    n_edges = weight.new_empty(batch * heads, dtype=torch.int64)
    return value.new_empty(query.shape[0], value.shape[1]), n_edges, weight.new_empty(batch * heads)
