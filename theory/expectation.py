"""Universality "in expectation": what the theorem says, what is checked here, and how fast means over masks converge.

The theorem bounds ∫ ‖f(X) − E[g(X)]‖ dX: the approximating function is a mean over all masks, not what one forward pass
returns. Its proof rests on two assumptions about fixed patterns. *Assumption 1*, conditions 1 to 3, is checked by
:mod:`theory.certificate`, never on E[M], whose support says nothing about E[g(X)] (see
:func:`theory.sampler_facts.mask_means`). *Assumption 2*, that softmax sharpens to a hard maximum, holds for each mask
at the scale of :func:`sharpening_scale`. :func:`transfer_bound` joins the two: where the mask equals a fixed pattern
with probability near 1, E[g(X)] is near g on that pattern. At probabilities well inside (0, 1), nothing here or in the
paper shows that E[g(X)] is universal.
"""

import math
import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.samplers import sample_edges
from theory.checks import as_floats, is_number
from theory.realisability import edge_law, law_and_pattern

OfMask = Callable[[EdgeList], Tensor]
MAX_OPEN_CELLS = 16


def sharpening_scale(n_keys: int, gap: float | int, tolerance: float | int) -> float:
    """The least t such that softmax(t · scores) over m keys gives the best one a weight of at least 1 − η.

    If the best score is ζ > 0 above all others (the gap), the worst case is that the others tie: the weight is then
    1/(1 + (m − 1) e^(−tζ)), so t = ln((m − 1)(1 − η)/η)/ζ. Fewer keys, as in a sparse mask, need no larger scale.

    Paper: Assumption 2, for η ≤ ½ (from Yun et al., 2020).

    Raises:
        SbmtError: If a number is out of range; without a gap no scale suffices.
    """
    check_sizes(n_keys=n_keys)
    if not (is_number(gap) and is_number(tolerance)) or not (0 < gap < math.inf and 0 < tolerance < 1):
        raise SbmtError("a gap > 0 and a tolerance in (0, 1)", (gap, tolerance), "ties are never resolved")
    odds = (1 - float(tolerance)) / float(tolerance)
    return max(0.0, math.log((int(n_keys) - 1) * odds) / float(gap)) if n_keys > 1 else 0.0


def exact_expectation(of_mask: OfMask, block_model: BlockModel, sampler: str = "exact") -> Tensor:
    """E[g(M)] by enumerating all masks with positive probability.

    Args:
        of_mask: g, a function of an EdgeList of the block model's shape.
        block_model: At most 16 of its edges may be uncertain.
        sampler: The sampler whose law is used, see :func:`~sbmt.samplers.sample_edges`.

    Raises:
        SbmtError: If more than 16 edges are uncertain.

    Cost: 2^(uncertain edges) calls.
    """
    law = edge_law(block_model, sampler).double().flatten()
    uncertain = ((law > 0) & (law < 1)).nonzero()[:, 0]
    if uncertain.numel() > MAX_OPEN_CELLS:
        do = "estimate the expectation instead"
        raise SbmtError(f"at most {MAX_OPEN_CELLS} uncertain edges", uncertain.numel(), do)
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
    sampler: str = "exact",
    generator: torch.Generator | None = None,
) -> list[float]:
    """Root mean square error of means over several numbers of masks, taken over entries and repetitions.

    Args:
        of_mask: g.
        block_model: What to draw from.
        n_draws: Numbers of masks per mean, each ≥ 1.
        n_repetitions: Means per number.
        truth: E[g(M)], for example from :func:`exact_expectation`.
        sampler: See :func:`~sbmt.samplers.sample_edges`.
        generator: Source of randomness.

    Returns:
        One error per number of masks; its square is σ²/n_draws in expectation.

    Raises:
        SbmtError: If a number of masks or repetitions is below 1, or the sampler is unknown.
    """
    check_sizes(n_repetitions=n_repetitions, **{f"n_draws[{place}]": many for place, many in enumerate(n_draws)})
    errors = []
    for many in n_draws:
        squares = 0.0
        for _ in range(n_repetitions):
            draws = (sample_edges(block_model, sampler, generator=generator) for _ in range(many))
            mean = torch.stack([of_mask(edges).detach().double() for edges in draws]).mean(0)
            squares += float((mean - truth).square().mean())
        errors.append(math.sqrt(squares / n_repetitions))
    return errors


def decay_exponent(n_draws: Sequence[int], errors: Sequence[float]) -> float:
    """The least-squares slope of log error over log draws; −½ for means of independent draws.

    Raises:
        SbmtError: Unless there are two different numbers of draws or more, and a positive error for each.
    """
    expected, do = "two or more numbers of draws, and positive errors", "measure more"
    draws, found = (as_floats(part, expected, do) for part in (n_draws, errors))
    if draws.ndim != 1 or draws.shape != found.shape or len(set(draws)) < 2 or min(*draws, *found) <= 0:
        raise SbmtError(expected, (n_draws, errors), do)
    return float(np.polyfit(np.log(draws), np.log(found), 1)[0])


def mask_deviation(block_model: BlockModel, pattern: Any, sampler: str = "exact") -> float:
    """P(the first head's mask differs from a pattern, both with self-loops added) under a sampler's law.

    Raises:
        SbmtError: If the pattern is not boolean or of another shape, or the sampler is unknown.
    """
    law, is_wanted = law_and_pattern(block_model, pattern, sampler)
    wrong = np.where(is_wanted, 1 - law, law)
    with np.errstate(divide="ignore"):
        return float(-np.expm1(np.log1p(-wrong).sum()))


def transfer_bound(largest: float | int, deviation: float | int) -> float:
    """The bound |E[g(M)] − g(A)| ≤ 2 G P(M ≠ A) for |g| ≤ G: how well a result on the pattern A carries over.

    For P(M ≠ A) see :func:`mask_deviation`; those of several independent masks add up. The paper argues from the
    support of E[M] instead, without a bound.

    Raises:
        SbmtError: Unless G ≥ 0 is finite and P(M ≠ A) a probability.
    """
    if not is_number(largest, 0, sys.float_info.max) or not is_number(deviation, 0, 1):
        raise SbmtError("a finite G ≥ 0 and a probability", (largest, deviation), "bound |g| from above")
    return 2 * float(largest) * float(deviation)
