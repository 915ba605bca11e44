"""The repeated-tokens task: which values of a sequence occur more than once?"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes


def sample_repeated_tokens(
    batch_size: int, length: int, *, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """Draws n values uniformly from 0 … n − 1, and marks those that are repeated. Paper: section 5.1."""
    check_sizes(batch_size=batch_size, length=length)
    tokens = torch.randint(length, (batch_size, length), generator=generator)
    return tokens, mark_repeats(tokens, length)


def mark_repeats(values: Int[Tensor, "batch n"], n_values: int) -> Float[Tensor, "batch n"]:
    """Returns 1.0 for each value in [0, n_values) that also occurs elsewhere in its row, and 0.0 for all others."""
    counts = torch.zeros(len(values), n_values, dtype=torch.int64).scatter_add_(1, values, torch.ones_like(values))
    return (counts.gather(1, values) > 1).float()


D_VALUE = 16  # dimension of a fresh value
NOISE = 0.1  # standard deviation of the noise in each copy of a fresh value


def sample_fresh_values(
    batch_size: int, length: int, *, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "batch n d_value"], Float[Tensor, "batch n"]]:
    """Draws repeated tokens that are noisy copies of normal vectors, which are drawn afresh for every sequence."""
    check_sizes(batch_size=batch_size, length=length)
    # A single call draws all numbers, so that a batch equals the same sequences drawn one by one.
    uniform = torch.rand(batch_size, length, 1 + 2 * D_VALUE, dtype=torch.float64, generator=generator)
    chosen = (uniform[..., 0] * length).long()
    normal = torch.special.ndtri(uniform[..., 1:].clamp(min=1e-300)).float()
    values, noise = normal.split(D_VALUE, 2)
    copies = values.gather(1, chosen[..., None].expand_as(values))
    return copies + NOISE * noise, mark_repeats(chosen, length)


def majority_accuracy(length: int) -> float:
    """Returns the accuracy of always predicting the more frequent label, given P(unique) = (1 − 1/n)^(n−1)."""
    check_sizes(length=length)
    unique = (1 - 1 / length) ** (length - 1)
    return max(unique, 1 - unique)


def random_mask_ceiling(length: int, mask_density: float) -> float:
    r"""Returns the best possible accuracy of one layer with a random mask of the given density.

    A token that attends to a copy of itself is certainly repeated. A token that attends to d others, none of them a
    copy, is unique with probability $r^{n-1-d}$, where $r = 1 - 1/n$; the layer then predicts the more likely label.
    """
    from scipy.stats import binom

    check_sizes(length=length)
    if not 0 <= mask_density <= 1:
        raise SbmtError("mask_density in [0, 1]", mask_density, "give a fraction of all pairs")
    n_seen = torch.arange(length, dtype=torch.float64)
    share = torch.from_numpy(binom.pmf(n_seen.numpy(), length - 1, mask_density))
    no_repeat = (1 - 1 / length) ** n_seen  # r^d
    unique = no_repeat[-1]
    return float(share @ (1 - no_repeat + torch.maximum(unique, no_repeat - unique)))
