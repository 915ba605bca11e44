"""Universality "in expectation": the theorem's claim, assumptions that can be checked, and means over masks.

The theorem bounds ∫ ‖f(X) − E[g(X)]‖ dX: the approximating function is a mean over all masks, not the result of one
forward pass. Its proof rests on two assumptions about fixed patterns. *Assumption 1*, conditions 1 to 3, is checked by
:mod:`theory.certificate`, but never on E[M], whose support says nothing about E[g(X)] (see :func:`mask_means`).
*Assumption 2*, that softmax sharpens to a hard maximum, holds for each mask at the scale of :func:`sharpening_scale`.
If |g| ≤ G, then |E[g(M)] − g(A)| ≤ 2 G P(M ≠ A). If the mask equals a fixed pattern A with probability near 1, then
E[g(X)] is therefore near g on this pattern. For probabilities well inside (0, 1), neither this module nor the paper
shows that E[g(X)] is universal. Numbers out of range and lists of wrong lengths raise SbmtError.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.samplers import sample_edges
from theory.checks import as_floats, is_number
from theory.realisability import edge_law

OfMask = Callable[[EdgeList], Tensor]
MAX_UNCERTAIN = 18  # maximum number of uncertain edges, which give 262,144 masks


class MaskMeans(NamedTuple):
    """The attention output of one token under a random mask, averaged in three ways."""

    expectation: np.ndarray  # exact, by enumerating all masks; the empty mask gives 0
    on_support: np.ndarray  # the softmax over all keys with P(M_j = 1) > 0
    weighted: np.ndarray  # the mean with weights proportional to P(M_j = 1) e^score


def mask_means(
    probability: float | int | Sequence[float | int],
    values: Sequence[float | int] | Sequence[Sequence[float | int]],
    scores: Sequence[float | int],
    self_loop: bool = True,
) -> MaskMeans:
    """Compares E[softmax over a random mask] with the softmax over the support, and with weights P(M_j = 1) e^score.

    The three differ, so a statement about the support of E[M] does not carry over to E[g(X)]. Each of up to 18 keys has
    a value (a number or a vector), a score, and a probability; a single probability applies to all keys. Keys are drawn
    independently, but with ``self_loop`` the first key is always included.
    """
    expected, do = f"finite values and scores of 1 to {MAX_UNCERTAIN} keys", "omit keys without a score"
    value, score = (as_floats(part, expected, do) for part in (values, scores))
    p = as_floats(probability, "probabilities in [0, 1]", "give P(M_j = 1)", 0, 1)
    n = score.size
    fits = score.ndim == 1 and value.ndim in (1, 2) and len(value) == n and p.shape in ((), (n,))
    if not fits or not 1 <= n <= MAX_UNCERTAIN:
        raise SbmtError(expected, f"shapes {value.shape}, {score.shape} and {p.shape}", do)
    p = np.array(np.broadcast_to(p, n))
    if self_loop:
        p[0] = 1.0

    def attend(masks: np.ndarray) -> np.ndarray:
        weights = masks * np.exp(score - score.max())
        total = weights.sum(-1, keepdims=True)
        return np.asarray(weights / np.where(total > 0, total, 1) @ value)

    masks = np.array(list(product((0.0, 1.0), repeat=n)))
    chance = np.where(masks > 0, p, 1 - p).prod(1)
    return MaskMeans(np.asarray(chance @ attend(masks)), attend(p > 0), attend(p))


def sharpening_scale(n_keys: int, gap: float | int, tolerance: float | int) -> float:
    """Returns the smallest t for which softmax(t · scores) over m keys gives the best key a weight of at least 1 − η.

    If the best score exceeds all others by ζ > 0 (the gap), the worst case is that the others tie. The weight is then
    1/(1 + (m − 1) e^(−tζ)), so t = ln((m − 1)(1 − η)/η)/ζ. Fewer keys, as in a sparse mask, need no larger scale.

    Paper: Assumption 2, for η ≤ ½ (from Yun et al., 2020).
    """
    check_sizes(n_keys=n_keys)
    if not is_number(gap, 0) or not is_number(tolerance, 0, 1) or gap in (0, math.inf) or tolerance in (0, 1):
        raise SbmtError("a gap > 0 and a tolerance in (0, 1)", (gap, tolerance), "avoid ties, which no scale resolves")
    odds = (1 - float(tolerance)) / float(tolerance)
    return max(0.0, math.log((int(n_keys) - 1) * odds) / float(gap)) if n_keys > 1 else 0.0


def exact_expectation(of_mask: OfMask, block_model: BlockModel, sampler: str = "exact") -> Tensor:
    """Computes E[g(M)] by calling g on all masks that the sampler can draw: 2^(uncertain edges), at most 2^18.

    g is a function of an EdgeList with the block model's shape.
    """
    law = edge_law(block_model, sampler).double().flatten()
    uncertain = ((law > 0) & (law < 1)).nonzero()[:, 0]
    if uncertain.numel() > MAX_UNCERTAIN:
        do = "estimate the expectation instead"
        raise SbmtError(f"at most {MAX_UNCERTAIN} uncertain edges", uncertain.numel(), do)
    total = torch.zeros((), dtype=torch.float64)
    for bits in product((False, True), repeat=uncertain.numel()):
        mask = law == 1
        mask[uncertain] = torch.tensor(bits, dtype=torch.bool)
        edges = EdgeList.from_dense(mask.view(block_model.shape), block_model.query_mask, block_model.key_mask)
        total = total + torch.where(mask, law, 1 - law).prod() * of_mask(edges).double()
    return total


def error_against_draws(
    of_mask: OfMask,
    block_model: BlockModel,
    n_draws: Sequence[int],
    n_repetitions: int,
    *,
    truth: Tensor,
    generator: torch.Generator | None = None,
) -> list[float]:
    """Returns the root mean square error of the mean of g over random masks, for each number of masks in ``n_draws``.

    The true value is E[g(M)], for example from :func:`exact_expectation`. Errors are averaged over the entries of g and
    over ``n_repetitions`` means. The expected squared error is σ²/n_draws.
    """
    check_sizes(n_repetitions=n_repetitions, **{f"n_draws[{place}]": many for place, many in enumerate(n_draws)})

    def mean(many: int) -> Tensor:
        draws = (sample_edges(block_model, generator=generator) for _ in range(many))
        return torch.stack([of_mask(edges).detach().double() for edges in draws]).mean(0)

    squares = ([float((mean(many) - truth).square().mean()) for _ in range(n_repetitions)] for many in n_draws)
    return [math.sqrt(sum(one) / n_repetitions) for one in squares]


def decay_exponent(n_draws: Sequence[int], errors: Sequence[float]) -> float:
    """Returns the least-squares slope of log error against log draws, which is −½ for means of independent draws."""
    expected, do = "two or more numbers of draws, and positive errors", "measure at more numbers of draws"
    draws, found = (as_floats(part, expected, do) for part in (n_draws, errors))
    if draws.ndim != 1 or draws.shape != found.shape or len(set(draws)) < 2 or min(*draws, *found) <= 0:
        raise SbmtError(expected, (n_draws, errors), do)
    return float(np.polyfit(np.log(draws), np.log(found), 1)[0])
