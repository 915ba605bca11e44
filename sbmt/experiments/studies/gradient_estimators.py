r"""How good gradients through sampled masks are, measured exactly on graphs small enough to list all their masks.

The loss of a network with a sampled mask is random, and training should lower its mean over masks. That mean is linear
in each edge's probability, with the slope

$$\frac{\partial\, \mathbb{E}[L(M)]}{\partial p_e} = \mathbb{E}[L \mid M_e = 1] - \mathbb{E}[L \mid M_e = 0] .$$

Training sees one mask at a time and must guess this slope from it. Here every guess is weighted by its probability, so
that means and variances of the guesses have no sampling error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention import edge_attention
from sbmt.attention.dispatch import GateRule, check_attention_inputs
from sbmt.block_model.model import check_exploration, straight_through_gate
from sbmt.errors import SbmtError, describe
from sbmt.graph.edges import EdgeList

MOST_RANDOM_EDGES = 16
ESTIMATORS = ("exact", "score", "weight", "removal", "score/q", "weight/q", "removal/q", "reinforce")
Loss = Callable[[Tensor], Tensor]
"""From values ``(batch, n_queries, d_value)`` to one loss per example, ``(batch,)``."""


@dataclass(frozen=True, eq=False)
class EstimatorReport:
    """One way to guess the gradient, against the gradient. Cells of certain edges are 0 throughout."""

    exact: Float[Tensor, "n_queries n_keys"]  # gradient of the expected loss with respect to p, without exploration
    mean: Float[Tensor, "n_queries n_keys"]  # mean of the guess over masks
    variance: Float[Tensor, "n_queries n_keys"]  # variance of one guess
    draw_cosine: float  # mean cosine between one guess and the exact gradient; a guess of zero counts as 0

    @property
    def bias(self) -> Tensor:
        """Mean minus exact, ``(n_queries, n_keys)``."""
        return self.mean - self.exact

    @property
    def relative_bias(self) -> float:
        """|mean − exact| / |exact|: 0 is unbiased, 1 no better than always guessing zero."""
        return float(self.bias.norm() / self.exact.norm())

    @property
    def total_variance(self) -> float:
        """Variance of one guess, summed over edges."""
        return float(self.variance.sum())

    @property
    def relative_variance(self) -> float:
        """Total variance / |exact|²: the number of draws whose mean has noise as long as the exact gradient."""
        return float(self.variance.sum() / self.exact.square().sum())

    @property
    def cosine(self) -> float:
        """Cosine between mean and exact gradient, which the guesses of many draws approach; 0 for a zero mean."""
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
    r"""Means and variances, by enumeration of all masks, of one-draw estimates of dE[L]/dp for one head.

    Masks have independent edges, drawn with $q_e = \min(p_e + \delta, 1)$. With $g_e$ for the gate of edge $e$,
    $h(M)$ for the values under mask $M$ and $L = L(h(M))$, the estimates for edge $e$ are

    - ``"exact"``: no guess but $\mathbb{E}_q[L \mid M_e = 1] - \mathbb{E}_q[L \mid M_e = 0]$, for reference;
    - ``"score"``: $M_e\, \partial L / \partial g_e$ with the gate on the score, as in equation 9;
    - ``"weight"``: $M_e\, \partial L / \partial g_e$ with the gate on the weight;
    - ``"removal"``: $M_e \langle \partial L / \partial h,\; h(M) - h(M \setminus e) \rangle$, what the edge's removal
      would cost if the loss were linear;
    - ``"score/q"``, ``"weight/q"``, ``"removal/q"``: the same divided by $q_e$, which makes up for the draws without
      the edge, when a gate learns nothing;
    - ``"reinforce"``: $(L - b)\, (M_e / q_e - (1 - M_e) / (1 - q_e))$ with the constant baseline
      $b = \mathbb{E}_q[L]$, which a running mean of the loss would approach.

    All are compared with the exact gradient at $\delta = 0$, since masks of a trained network are drawn from p. Under
    exploration even ``"exact"`` and ``"reinforce"`` are then biased. A gate is 1 whatever p, so p enters the
    straight-through estimates through the masks alone.

    Probabilities of exactly 0 or 1 are certain, exploration or not, and get no gradient; at least 1 and at most 16 are
    neither. ``loss`` maps values in float64 to the loss of each example alone.

    Cost: O(2^r · (n² + r n) · d) time for r random edges, and the memory of all masks and their values.

    Paper: equation 9 is ``"score"``. The released code has ``"weight"``, clipped; the others are comparisons of ours.

    Example:
        >>> ones = torch.ones(1, 1)
        >>> loss = lambda values: values.sum((1, 2))
        >>> reports = measure_estimators(ones, ones, ones, ones / 4, loss)
        >>> names = "exact", "score", "removal", "removal/q"
        >>> {name: round(reports[name].mean.item(), 2) for name in names}
        {'exact': 1.0, 'score': 0.0, 'removal': 0.25, 'removal/q': 1.0}
    """
    check_exploration(exploration)
    _check(query, key, value, probability, loss)
    is_random = (probability > 0) & (probability < 1)
    is_drawn, losses, differences, guesses = _enumerate(query, key, value, probability == 1, is_random, loss)
    probability = probability.detach()[is_random].double()
    inclusion = (probability + exploration).clamp(max=1)  # q
    chance = _chances(is_drawn, inclusion)  # masks
    surprise = torch.where(is_drawn, 1 / inclusion, -1 / (1 - inclusion))
    surprise = torch.where(chance[:, None] > 0, surprise, 0.0)  # where q = 1, masks without the edge are never drawn
    guesses |= {f"{name}/q": guess / inclusion for name, guess in guesses.items()}
    guesses["exact"] = (chance @ differences).expand_as(differences)
    guesses["reinforce"] = (losses - chance @ losses)[:, None] * surprise
    exact = _chances(is_drawn, probability) @ differences
    return {name: _report(guesses[name], chance, exact, is_random) for name in ESTIMATORS}


def _enumerate(
    query: Tensor, key: Tensor, value: Tensor, is_certain: Tensor, is_random: Tensor, loss: Loss
) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """For every mask: its random edges, its loss, what each edge adds to that loss, and each rule's guess of that."""
    # mask number x holds random edge e where x & bit[e]
    bit = 1 << torch.arange(int(is_random.sum()), device=is_random.device)
    number = torch.arange(1 << len(bit), device=is_random.device)
    is_drawn = (number[:, None] & bit) > 0  # masks r
    masks = is_certain.repeat(len(number), 1, 1)  # masks n_queries n_keys
    masks[:, is_random] = is_drawn
    edges = EdgeList.from_dense(masks[:, None])
    query, key, value = (t.detach().double().expand(len(number), 1, *t.shape) for t in (query, key, value))
    guesses = {}
    with torch.enable_grad():
        for rule in get_args(GateRule):
            any_probability = torch.ones(masks.shape, dtype=torch.float64, requires_grad=True)  # gates are 1 for all
            gate = straight_through_gate(any_probability[masks])
            values = edge_attention(query, key, value, edges, gate, gate_rule=rule, backend="dense").squeeze(1)
            guesses[rule] = _gradient(loss, values, any_probability)[1][:, is_random]
        values = values.detach().requires_grad_()
        losses, slope = _gradient(loss, values, values)
    values = values.detach()  # masks n_queries d_value
    without = number[:, None] & ~bit  # masks r: the number of the mask without the edge
    guesses["removal"] = torch.stack([(slope * (values - values[x])).sum((1, 2)) for x in without.T], 1)
    return is_drawn, losses, losses[number[:, None] | bit] - losses[without], guesses


def _gradient(loss: Loss, values: Tensor, leaf: Tensor) -> tuple[Tensor, Tensor]:
    """Losses of all examples, and the gradient of their sum."""
    losses = loss(values)
    if not isinstance(losses, Tensor) or losses.shape != values.shape[:1] or not losses.requires_grad:
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        do = "reduce over all but the first dimension, and do not detach"
        raise SbmtError(f"a differentiable loss of shape ({len(values)},)", got, do)
    if not bool(losses.isfinite().all()):
        raise SbmtError("a finite loss for every mask", "one that is not", "mind that queries without edges read zeros")
    (gradient,) = torch.autograd.grad(losses.sum(), leaf, allow_unused=True, materialize_grads=True)
    return losses.detach().double(), gradient


def _chances(is_drawn: Tensor, probability: Tensor) -> Tensor:
    return torch.where(is_drawn, probability, 1 - probability).prod(1)  # masks


def _report(guess: Tensor, chance: Tensor, exact: Tensor, is_random: Tensor) -> EstimatorReport:
    mean = chance @ guess
    draw_cosine = float(chance @ _cosine(guess, exact))
    variance = chance @ (guess - mean).square()
    spread = torch.zeros_like(is_random, dtype=torch.float64).masked_scatter  # over the cells
    return EstimatorReport(spread(is_random, exact), spread(is_random, mean), spread(is_random, variance), draw_cosine)


def _cosine(vector: Tensor, other: Tensor) -> Tensor:
    lengths = vector.norm(dim=-1) * other.norm(dim=-1)
    return torch.where(lengths > 0, (vector * other).sum(-1) / lengths, 0.0)


def _check(query: Tensor, key: Tensor, value: Tensor, probability: Tensor, loss: Loss) -> None:
    for name, tensor in (("probability", probability), ("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.dim() != 2 or not tensor.is_floating_point():
            raise SbmtError(f"{name} as a floating-point matrix", describe(tensor), "give one head of one example")
    check_attention_inputs(query[None, None], key[None, None], value[None, None])
    for name, tensor in (("probability", probability), ("query", query), ("key", key), ("value", value)):
        if not bool(tensor.isfinite().all()):
            raise SbmtError(f"finite numbers in {name}", "one that is not", "look for a division by zero")
    if not callable(loss):
        raise SbmtError("loss as a function of the values", describe(loss), "give one loss per example")
    if probability.shape != (len(query), len(key)):
        raise SbmtError(f"probability ({len(query)}, {len(key)})", tuple(probability.shape), "give one for each pair")
    if not bool(((probability >= 0) & (probability <= 1)).all()):
        got = f"{float(probability.min())} to {float(probability.max())}"
        raise SbmtError("probability in [0, 1]", got, "mind that rates may exceed 1, probabilities not")
    n_random = int(((probability > 0) & (probability < 1)).sum())
    if not 1 <= n_random <= MOST_RANDOM_EDGES:
        do = "choose which edges have a probability strictly between 0 and 1: every one more doubles the masks"
        raise SbmtError(f"1 to {MOST_RANDOM_EDGES} random edges", n_random, do)
