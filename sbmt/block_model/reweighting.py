"""Reweighting: an edge that is drawn with probability p counts as the 1/p pairs that it stands for."""

from jaxtyping import Float
from torch import Tensor

SMALLEST_PROBABILITY = 0.05
"""Rarer edges are weighted as if they had this probability: no weight grows beyond 20 times, at the price of a bias."""


def reweighting_bias(drawn_with: Float[Tensor, " n_edges"]) -> Float[Tensor, " n_edges"]:
    r"""$-\ln p_{ij}$ for drawn edges, to be added to their scores (Horvitz and Thompson, 1952).

    An edge that is drawn with probability p then stands for 1/p pairs, so that the softmax's numerator and denominator
    over drawn edges estimate those over all pairs without bias, as long as p is at least
    :data:`SMALLEST_PROBABILITY`. It carries no gradient.

    Args:
        drawn_with: The probability with which each edge was drawn, exploration included; 1 for certain edges.

    Not in the paper.
    """
    return -drawn_with.detach().clamp(min=SMALLEST_PROBABILITY).log()
