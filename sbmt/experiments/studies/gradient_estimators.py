r"""Exact quality of gradient estimators for sampled masks, on graphs small enough to list all masks.

Training should lower the mean loss over masks, whose derivative with respect to an edge's probability is
$\mathbb{E}[L \mid M_e = 1] - \mathbb{E}[L \mid M_e = 0]$. In practice, it is estimated from one mask at a time. Here,
each estimate is weighted by the probability of its mask, so that means and variances have no sampling error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention import edge_attention
from sbmt.attention.dispatch import GateRule
from sbmt.block_model.model import straight_through_gate
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList

MOST_RANDOM_EDGES = 16
ESTIMATORS = ("exact", "score", "weight", "removal", "score/q", "weight/q", "removal/q", "reinforce")
_cosine = partial(torch.cosine_similarity, dim=-1, eps=1e-300)  # 0 for a zero vector
Loss = Callable[[Tensor], Tensor]  # maps values (batch, n_queries, d_value) to one loss per example


@dataclass(frozen=True, eq=False)
class EstimatorReport:
    """Comparison of a gradient estimator with the exact gradient. Entries for edges of probability 0 or 1 are 0."""

    exact: Float[Tensor, "n_queries n_keys"]  # gradient of the expected loss with respect to p, without exploration
    mean: Float[Tensor, "n_queries n_keys"]  # mean of the estimate over masks
    variance: Float[Tensor, "n_queries n_keys"]  # variance of a single estimate
    draw_cosine: float  # mean cosine between a single estimate and the exact gradient; 0 for zero estimates

    @property
    def relative_bias(self) -> float:
        """|mean − exact| / |exact|: 0 means unbiased, and 1 is no better than a zero estimate."""
        return float((self.mean - self.exact).norm() / self.exact.norm())

    @property
    def relative_variance(self) -> float:
        """Total variance over edges / |exact|², the number of averaged draws at which noise and gradient are equal."""
        return float(self.variance.sum() / self.exact.square().sum())

    @property
    def cosine(self) -> float:
        """Cosine between the mean estimate and the exact gradient, or 0 if the mean is zero."""
        return float(_cosine(self.mean.flatten(), self.exact.flatten()))


def measure_estimators(
    query: Float[Tensor, "n_queries d"],
    key: Float[Tensor, "n_keys d"],
    value: Float[Tensor, "n_keys d_value"],
    probability: Float[Tensor, "n_queries n_keys"],
    loss: Loss,
    *,
    exploration: float = 0.0,
) -> dict[str, EstimatorReport]:
    r"""Computes means and variances of one-draw estimates of dE[L]/dp for one head, by enumerating all masks.

    Edges are drawn independently with probabilities $q_e = \min(p_e + \delta, 1)$. Let $g_e$ be the gate of edge $e$,
    $h(M)$ the output values under mask $M$, and $L = L(h(M))$. Then the estimates for edge $e$ are:

    - ``"exact"``: the reference, $\mathbb{E}_q[L \mid M_e = 1] - \mathbb{E}_q[L \mid M_e = 0]$;
    - ``"score"``: $M_e\, \partial L / \partial g_e$ with the gate on the score, as in equation 9;
    - ``"weight"``: $M_e\, \partial L / \partial g_e$ with the gate on the weight, as in the released code;
    - ``"removal"``: $M_e \langle \partial L / \partial h,\; h(M) - h(M \setminus e) \rangle$, the cost of removing
      the edge if the loss were linear;
    - ``"score/q"``, ``"weight/q"``, ``"removal/q"``: the same divided by $q_e$, to compensate for draws without
      the edge, in which its gate has no gradient;
    - ``"reinforce"``: $(L - b)\, (M_e / q_e - (1 - M_e) / (1 - q_e))$ with the baseline $b = \mathbb{E}_q[L]$.

    All are compared with the exact gradient at $\delta = 0$, since masks of a trained network are drawn from p. Edges
    of probability 0 or 1 stay certain under exploration, and have no gradient. 1 to 16 edges must be random.

    Example:
        >>> ones = torch.ones(1, 1)
        >>> reports = measure_estimators(ones, ones, ones, ones / 4, lambda values: values.sum((1, 2)))
        >>> {name: round(reports[name].mean.item(), 2) for name in ("exact", "score", "removal", "removal/q")}
        {'exact': 1.0, 'score': 0.0, 'removal': 0.25, 'removal/q': 1.0}
    """
    is_random = (probability > 0) & (probability < 1)
    if not bool(((probability >= 0) & (probability <= 1)).all()) or not 1 <= int(is_random.sum()) <= MOST_RANDOM_EDGES:
        do = "use probabilities in [0, 1], mostly 0 or 1, since every other value doubles the number of masks"
        raise SbmtError(f"1 to {MOST_RANDOM_EDGES} random edges", int(is_random.sum()), do)
    # mask number x contains random edge e if x & bit[e] is not 0
    bit = 1 << torch.arange(int(is_random.sum()))
    number = torch.arange(1 << len(bit))
    is_drawn = (number[:, None] & bit) > 0  # masks r
    masks = (probability == 1).repeat(len(number), 1, 1)  # masks n_queries n_keys
    masks[:, is_random] = is_drawn
    edges = EdgeList.from_dense(masks[:, None])
    query, key, value = (t.detach().double().expand(len(number), 1, *t.shape) for t in (query, key, value))
    guesses = {}
    for rule in get_args(GateRule):
        any_probability = torch.ones(masks.shape, dtype=torch.float64, requires_grad=True)  # all gates have the value 1
        gate = straight_through_gate(any_probability[masks])
        values = edge_attention(query, key, value, edges, gate, gate_rule=rule, backend="dense").squeeze(1)
        (gradient,) = torch.autograd.grad(loss(values).sum(), any_probability)
        guesses[rule] = gradient[:, is_random]  # masks r
    values = values.detach().requires_grad_()  # masks n_queries d_value
    losses = loss(values)
    if losses.shape != number.shape or not bool(losses.isfinite().all()):
        do = "reduce all dimensions but the first, and allow for the zero outputs of queries without edges"
        raise SbmtError(f"finite losses of shape ({len(number)},), one per mask", tuple(losses.shape), do)
    (slope,) = torch.autograd.grad(losses.sum(), values)
    losses, values = losses.detach().double(), values.detach()
    without = number[:, None] & ~bit  # masks r: number of the same mask without the edge
    guesses["removal"] = torch.stack([(slope * (values - values[x])).sum((1, 2)) for x in without.T], 1)
    differences = losses[number[:, None] | bit] - losses[without]

    p = probability.detach()[is_random].double()
    q = (p + exploration).clamp(max=1)
    chance = torch.where(is_drawn, q, 1 - q).prod(1)  # masks
    surprise = torch.where(is_drawn, 1 / q, -1 / (1 - q))
    surprise = torch.where(chance[:, None] > 0, surprise, 0.0)  # if q = 1, masks without the edge are never drawn
    guesses |= {f"{name}/q": guess / q for name, guess in guesses.items()}
    guesses["exact"] = (chance @ differences).expand_as(differences)
    guesses["reinforce"] = (losses - chance @ losses)[:, None] * surprise
    exact = torch.where(is_drawn, p, 1 - p).prod(1) @ differences
    spread = torch.zeros(probability.shape, dtype=torch.float64).masked_scatter  # fills the random entries
    reports = {}
    for name in ESTIMATORS:
        mean = chance @ guesses[name]
        variance = chance @ (guesses[name] - mean).square()
        draw_cosine = float(chance @ _cosine(guesses[name], exact))
        exact_cells, mean_cells, variance_cells = (spread(is_random, x) for x in (exact, mean, variance))
        reports[name] = EstimatorReport(exact_cells, mean_cells, variance_cells, draw_cosine)
    return reports
