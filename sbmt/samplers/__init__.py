"""Samplers: ways of drawing edges from a block model.

Start with :mod:`~sbmt.samplers.bernoulli`, which visits every pair, then read :mod:`~sbmt.samplers.exact`, which draws
from the same law in time that grows with the number of edges.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from sbmt.block_model.model import BlockModel, Link, check_exploration
from sbmt.counter_rng import draw_seed, number_examples
from sbmt.errors import SbmtError, choose
from sbmt.graph.edges import EdgeList
from sbmt.samplers.bernoulli import sample_bernoulli
from sbmt.samplers.exact import sample_exact
from sbmt.samplers.fastrg import sample_fastrg

Draw = Callable[[BlockModel, float, int, int], EdgeList]


class Sampler(NamedTuple):
    """A function that draws edges, called without gradients and with checked arguments, and their law.

    Edges have the block model's shape and masks. An edge depends only on the probabilities, the seed (an int64), and
    its address: ``first_example`` plus the position in the batch, head and query.
    """

    draw: Draw  # of a block model, δ, a seed and the number of the first example
    law: Link | None = None  # gives the probabilities of edges; None = the block model's link


SAMPLERS = {
    "exact": Sampler(sample_exact),
    "fastrg": Sampler(sample_fastrg, law="poisson"),
    "bernoulli": Sampler(sample_bernoulli),
}
"""Samplers by name; to add yours, add an entry before you build a layer with it."""
RESERVED = frozenset(SAMPLERS)


def sample_edges(
    block_model: BlockModel,
    sampler: str = "exact",
    *,
    exploration: float = 0.0,
    generator: torch.Generator | None = None,
    first_example: int = 0,
) -> EdgeList:
    r"""Draws one mask per example and head.

    | ``sampler`` | law of each edge, all independent | cost |
    |---|---|---|
    | ``exact`` | Bernoulli($\min(p + \delta, 1)$) | O(n k² + edges · k) |
    | ``bernoulli`` | the same, one uniform per pair | O(n² k) |
    | ``fastrg`` | Bernoulli($1 - e^{-(r + \delta)}$), r the pair's rate | O(n k² + edges) |

    Under the Poisson link all three agree: $1 - e^{-(r + \delta)}$ is the law.

    Args:
        block_model: The block model to draw from.
        sampler: A name in :data:`SAMPLERS`.
        exploration: δ in [0, 1), added to the probability (bilinear link) or the rate (Poisson link) of real pairs.
        generator: Source of the seed, an int64; None is torch's default CPU generator.
        first_example: Index of the batch's first example, relative to that of
            :func:`~sbmt.counter_rng.examples_from`. Examples 0…7 drawn at once equal 0…3 and 4…7 drawn from the same
            seed with ``first_example`` 0 and 4.

    Raises:
        SbmtError: On anything but a block model, an unknown sampler, or δ or ``first_example`` out of range.

    Paper: equation 8; ``fastrg`` is its Algorithm 1, and records how often each edge was drawn.

    Example:
        >>> ones = torch.ones(1, 1, 3, 1)
        >>> sample_edges(BlockModel(ones, torch.ones(1, 1, 1), ones)).n_edges
        9
    """
    if not isinstance(block_model, BlockModel):
        raise SbmtError("a BlockModel", type(block_model).__name__, "build one from memberships and a block matrix")
    choose("sampler", sampler, SAMPLERS)
    check_exploration(exploration)
    first = number_examples(first_example, block_model.shape[0])
    return draw_edges(block_model, sampler, exploration, draw_seed(generator), first)


def draw_edges(
    block_model: BlockModel, sampler: str, exploration: float, seed: int, first_example: int, window: int | None = None
) -> EdgeList:
    """:func:`sample_edges` without its checks, from a seed, with the edges of a window if there is one."""
    with torch.no_grad():
        if sampler == "exact":
            return sample_exact(block_model, exploration, seed, first_example, window)
        edges = SAMPLERS[sampler].draw(block_model, exploration, seed, first_example)
        if not isinstance(edges, EdgeList) or edges.shape != block_model.shape:
            got = edges.shape if isinstance(edges, EdgeList) else type(edges).__name__
            raise SbmtError(f"an EdgeList of shape {block_model.shape} from sampler {sampler!r}", got, "return one")
        return edges if window is None else edges.with_window(window)


def law_of(sampler: str, link: Link) -> Link:
    """The link whose probabilities a sampler draws with, given the block model's link."""
    return SAMPLERS[sampler].law or link
