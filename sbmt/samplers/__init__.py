"""Samplers, which draw edges from a block model.

Start with :mod:`~sbmt.samplers.bernoulli`, which visits every pair, then read :mod:`~sbmt.samplers.exact`, which draws
from the same distribution in time proportional to the number of edges.
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
    """A function that draws edges, called with checked arguments and without gradients, and the law of these edges.

    Edges have the block model's shape and masks. An edge depends only on the probabilities, the seed (an int64), and
    its address, which consists of the example (``first_example`` plus the index in the batch), the head and the query.
    """

    draw: Draw  # a function of a block model, δ, a seed and the number of the first example
    law: Link | None = None  # the link that gives the probabilities of edges; None means the block model's


SAMPLERS = {
    "exact": Sampler(sample_exact),
    "fastrg": Sampler(sample_fastrg, law="poisson"),
    "bernoulli": Sampler(sample_bernoulli),
}
"""The samplers by name; to use your own, add an entry before you build a layer with it."""
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

    | ``sampler`` | distribution of each edge, independent of the others | cost |
    |---|---|---|
    | ``exact`` | Bernoulli($\min(p + \delta, 1)$) | O(n k² + edges · k) |
    | ``bernoulli`` | the same, from one uniform number per pair | O(n² k) |
    | ``fastrg`` | Bernoulli($1 - e^{-(r + \delta)}$), where r is the rate of the pair | O(n k² + edges) |

    Under the Poisson link all three agree: each edge is Bernoulli($1 - e^{-(r + \delta)}$).

    Args:
        block_model: The block model to draw from.
        sampler: A name in :data:`SAMPLERS`.
        exploration: δ in [0, 1), added to the probability (bilinear link) or the rate (Poisson link) of real pairs.
        generator: Source of the seed, an int64; None means torch's default CPU generator.
        first_example: Index of the batch's first example, counted from the start that
            :func:`~sbmt.counter_rng.examples_from` sets. Drawing examples 0…7 at once gives the same masks as drawing
            0…3 and 4…7 from the same seed with ``first_example`` 0 and 4.

    Raises:
        SbmtError: If ``block_model`` has another type, the sampler is unknown, or a number is out of range.

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
    """Draws like :func:`sample_edges`, but from a seed and without checks, and adds the edges of a window, if any."""
    with torch.no_grad():
        if sampler == "exact":
            return sample_exact(block_model, exploration, seed, first_example, window)
        edges = SAMPLERS[sampler].draw(block_model, exploration, seed, first_example)
        if not isinstance(edges, EdgeList) or edges.shape != block_model.shape:
            got = edges.shape if isinstance(edges, EdgeList) else type(edges).__name__
            raise SbmtError(f"an EdgeList of shape {block_model.shape} from sampler {sampler!r}", got, "fix its code")
        return edges if window is None else edges.with_window(window)


def law_of(sampler: str, link: Link) -> Link:
    """Returns the link that gives the probabilities of a sampler's edges, for block models with the given link."""
    return SAMPLERS[sampler].law or link
