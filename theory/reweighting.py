"""Reweighted attention over drawn edges: how fast it approaches full attention, and the density after a fit.

The preset ``fitted`` draws edges with p = 1 − e^(−r), and gives a drawn edge the weight 1/p. The output is then a ratio
of two unbiased estimates. There are two different limits:

- *All rates grow, and n stays fixed.* Masks become complete, so outputs tend to those of full attention, at a rate that
  :func:`distance_bound` gives. Softmax memberships and blocks exp(C Cᵀ) make every rate positive, and therefore bounded
  away from 0 on a compact set of inputs. Every continuous function on such a set can be approximated, as with full
  attention (Yun et al., 2020; with positions, and with the sink's logit tending to −∞). This is universality, with or
  without capped weights, but masks are not sparse in this limit, and it does not need reweighting.
- *Edges stay rare, and c and n grow.* Here reweighting matters: the error falls like c^(−½), independent of n
  (:func:`predicted_error`), whereas without reweighting, or with capped weights, the limit is different
  (:func:`limit_output`). At a fixed c, an error remains.

Rows are queries and columns are keys. A certain edge has an infinite rate, and a sink is an additional key that is
certain and has value zero. In weights 1/p, ``smallest`` replaces probabilities below it.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from sbmt.block_model.fit import fit_loss
from sbmt.block_model.model import SMALLEST_PROBABILITY, BlockModel
from sbmt.graph.edges import EdgeList

Matrix = Float[np.ndarray, "_ _"]


def attend(weights: Matrix, values: Matrix) -> np.ndarray:
    """Returns weighted means of the values, with one row per query. Weights need not sum to 1."""
    return np.asarray(weights @ values / weights.sum(1, keepdims=True))


def limit_output(scores: Matrix, values: Matrix, rates: Matrix, smallest: float = SMALLEST_PROBABILITY) -> np.ndarray:
    """Returns the limit of attention over drawn edges as queries draw more and more edges at fixed probabilities.

    A drawn edge has weight e^s / max(p, smallest), so its mean weight is e^s min(p/smallest, 1). Without a cap
    (``smallest=0``), this is full attention. With a cap, keys of smaller p get too little weight. Without reweighting
    (``smallest=1``), every key is weighted by p, which squares the attention if p is proportional to it.
    """
    probability = -np.expm1(-rates)
    return attend(np.exp(scores) * probability / np.maximum(probability, smallest), values)


def drawn_outputs(
    scores: Matrix, values: Matrix, rates: Matrix, n_draws: int, smallest: float = SMALLEST_PROBABILITY
) -> np.ndarray:
    """Returns outputs ``(n_draws, n_queries, d)`` for edges drawn with seed 0 and weights 1/max(p, smallest).

    The output of a query without edges is NaN, so give each query a certain edge or many expected edges.
    """
    rng, probability = np.random.default_rng(0), -np.expm1(-rates)
    weights = np.exp(scores) / np.maximum(probability, smallest)
    return np.stack([attend(weights * (rng.random(rates.shape) < probability), values) for _ in range(n_draws)])


def predicted_error(scores: Matrix, values: Matrix, rates: Matrix) -> float:
    r"""Predicts the root mean square error ε over queries, relative to full attention, by the delta method.

    $$\varepsilon^2 = \frac{1}{n} \sum_i \sum_j a_{ij}^2 \Big(\frac{1}{p_{ij}} - 1\Big) \lVert v_j - o_i \rVert^2$$

    Since 1/p − 1 ≤ 1/r, rates of r = c·a bound ε² by the mean over queries of the variance of the values under
    attention, divided by c.
    """
    attention = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    output = attention @ values
    distances = ((values[None] - output[:, None]) ** 2).sum(-1)  # squared, n_queries n_keys
    with np.errstate(over="ignore"):
        return float(np.sqrt((attention**2 / np.expm1(rates) * distances).sum(1).mean()))  # 1/p − 1 = 1/(e^r − 1)


def distance_bound(rates: Matrix, largest: float) -> np.ndarray:
    r"""Bounds each query's $E\lVert \hat o_i - o_i \rVert$ for values of norm at most G and any scores.

    $$4G \sum_j \frac{1}{e^{r_{ij}} - 1}$$

    *Proof.* Two outputs differ by at most 2G. Some edge is missing with probability at most $\sum_j e^{-r_{ij}}$. If
    none is, $\hat o - o = \sum_j a_j \eta_j (v_j - o) / (1 + \sum_j a_j \eta_j)$ with η = 1/p − 1 = 1/(e^r − 1), which
    also exceeds e^(−r). If a weight is capped, its term alone exceeds 1, so the bound is vacuous.
    """
    with np.errstate(over="ignore"):
        return np.asarray(4 * largest * (1 / np.expm1(rates)).sum(1))


def fitted_rates(
    block_model: BlockModel, attention: Tensor, edges_per_query: float, exploration: float = 0.0
) -> np.ndarray:
    """Returns the rates γ·r of a block model with the best overall rate γ, for exactly known attention.

    At this optimum, Σ r = c Σ a·r/(r + δ) over all pairs, so rates sum to c times the attention, or to less if δ > 0.
    The block model must have one example, one head and the Poisson link. ``attention``, ``(n, n)``, contains the
    targets, where 0 excludes an edge such as a self-loop. ``edges_per_query`` is c, and ``exploration`` is δ.
    """
    edges = EdgeList.from_dense(torch.ones(block_model.shape, dtype=torch.bool))

    def scaled(log_rate: float) -> BlockModel:
        block_matrix = block_model.block_matrix * math.exp(log_rate)
        return BlockModel(block_model.query_membership, block_matrix, block_model.key_membership, link="poisson")

    def loss(log_rate: float) -> float:
        model = scaled(log_rate)
        return float(fit_loss(model, edges, model.edge_rate(edges), attention.flatten(), edges_per_query, exploration))

    best = scaled(minimize_scalar(loss, bracket=(-1.0, 1.0), tol=1e-12).x)
    return (best.query_rates @ best.key_membership.mT)[0, 0].numpy()
