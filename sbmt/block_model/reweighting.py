"""Reweighting: an edge that is drawn with probability p counts as the 1/p pairs that it stands for."""

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.block_model.density import estimated_density
from sbmt.block_model.link import Link
from sbmt.graph.csr import near_edges
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import share_of_pairs
from sbmt.kernels import poisson as kernels
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels

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


def weigh_edges(
    edges: EdgeList, rate: Float[Tensor, " n_edges"], link: Link, law: Link, exploration: float, reach: int
) -> tuple[Float[Tensor, " n_edges"], Float[Tensor, "batch heads"]]:
    """All that follows from the probabilities of drawn edges: what each weighs, and the density that they let expect.

    The first is :func:`reweighting_bias`, the second :func:`~sbmt.block_model.density.estimated_density`.

    Args:
        edges: The drawn edges, and all certain ones.
        rate: Their rates without exploration. Gradients pass to the density.
        link: Makes probabilities of rates.
        law: By whose probabilities edges were drawn; see :func:`~sbmt.samplers.law_of`.
        exploration: δ with which they were drawn.
        reach: Edges between tokens at most so many places apart are certain; -1 for none.

    Cost: O(edges).
    """
    arguments = edges.row_ptr, edges.keys, *edges.shape[2:]
    has_gradients = rate.requires_grad and torch.is_grad_enabled()
    use_gpu = not can_run_on(rate.device)
    has_kernels = has_gpu_kernels(rate.device) or not use_gpu
    if has_kernels and link.is_poisson and law.is_poisson and not has_gradients:
        bias, expected = kernels.weigh(rate, *arguments, exploration, reach, SMALLEST_PROBABILITY, use_gpu)
        return bias, share_of_pairs(expected.view(edges.shape[:2]), edges.shape, edges.query_mask, edges.key_mask)
    probability = link.probability(rate)
    is_drawn_so = law is link and exploration == 0
    drawn_with = probability.detach() if is_drawn_so else law.probability(rate.detach() + exploration)
    if reach >= 0:
        drawn_with = drawn_with.masked_fill(near_edges(*arguments, reach), 1.0)
    return reweighting_bias(drawn_with), estimated_density(edges, probability, drawn_with)
