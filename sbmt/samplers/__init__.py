"""Draws edges from block models."""

import torch

from sbmt.block_model import BlockModel
from sbmt.compiled import can_run_on
from sbmt.counter_rng import WORD, draw_seed
from sbmt.counter_rng import first_example as example_offset
from sbmt.edges import EdgeList
from sbmt.errors import SbmtError, choose
from sbmt.exploration import check_exploration
from sbmt.samplers.bernoulli import sample_bernoulli
from sbmt.samplers.compiled import sample_compiled
from sbmt.samplers.exact import sample_exact
from sbmt.samplers.fastrg import sample_fastrg


def _sample_exact(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    """By compiled kernels on the CPU, by torch elsewhere: one law, but not the same edges from the same seed."""
    draw = sample_compiled if can_run_on(block_model.block_matrix.device) else sample_exact
    return draw(block_model, exploration, seed, first_example)


SAMPLERS = {"exact": _sample_exact, "fastrg": sample_fastrg, "bernoulli": sample_bernoulli}


def sample_edges(
    block_model: BlockModel,
    sampler: str = "exact",
    *,
    exploration: float = 0.0,
    generator: torch.Generator | None = None,
    first_example: int = 0,
) -> EdgeList:
    r"""Draws one mask per example and head.

    | ``sampler`` | law of an edge, cells independent | cost |
    |---|---|---|
    | ``exact`` | Bernoulli($\min(p + \delta, 1)$) | O(n k² + edges · k) |
    | ``bernoulli`` | the same, one uniform per pair | O(n² k) |
    | ``fastrg`` | Bernoulli($1 - e^{-(r + \delta)}$), r the pair's rate | O(n k² + edges) |

    Under the Poisson link all three agree: $1 - e^{-(r + \delta)}$ is the law.

    Args:
        block_model: What to draw from.
        sampler: One of the names above.
        exploration: δ in [0, 1), added to the probability (bilinear link) or the rate (Poisson link) of real pairs.
        generator: Source of the call's one random int64; None is torch's default CPU generator.
        first_example: Number of the batch's first example. Examples 0…7 drawn at once equal 0…3 and 4…7 drawn from
            the same seed with ``first_example`` 0 and 4. Counts from the number that
            :func:`~sbmt.counter_rng.examples_from` sets, if it does.

    Returns:
        The edges; ``fastrg`` also keeps how often each was drawn.

    Raises:
        SbmtError: On something else than a block model, an unknown sampler, δ outside [0, 1), or a ``first_example``
            that is negative or beyond 2³².

    Paper: equation 8; ``fastrg`` is its Algorithm 1.

    Example:
        >>> ones = torch.ones(1, 1, 3, 1)
        >>> sample_edges(BlockModel(ones, torch.ones(1, 1, 1), ones)).n_edges
        9
    """
    if not isinstance(block_model, BlockModel):
        raise SbmtError("a BlockModel", type(block_model).__name__, "build one from memberships and a block matrix")
    draw = choose("sampler", sampler, SAMPLERS)
    check_exploration(exploration)
    if isinstance(first_example, int):
        first_example += example_offset()
    if not isinstance(first_example, int) or not 0 <= first_example <= WORD - block_model.shape[0]:
        raise SbmtError("an integer first_example ≥ 0, all examples below 2³²", first_example, "count examples from 0")
    with torch.no_grad():
        return draw(block_model, exploration, draw_seed(generator), first_example)


__all__ = ["SAMPLERS", "sample_edges"]
