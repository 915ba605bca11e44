"""The synthetic task: which values of a sequence occur more than once?"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes


def sample_repeated_tokens(
    batch_size: int, length: int, *, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """Draws values uniform on 0 … n − 1, n being the length, and marks those that are repeated (paper, section 5.1)."""
    check_sizes(batch_size=batch_size, length=length)
    tokens = torch.randint(length, (batch_size, length), generator=generator)
    return tokens, mark_repeats(tokens, length)


def mark_repeats(values: Int[Tensor, "batch n"], n_values: int) -> Float[Tensor, "batch n"]:
    """1.0 where a value, an integer in [0, n_values), occurs elsewhere in its row."""
    counts = torch.zeros(len(values), n_values, dtype=torch.int64).scatter_add_(1, values, torch.ones_like(values))
    return (counts.gather(1, values) > 1).float()


D_VALUE = 16  # entries of a fresh value
NOISE = 0.1  # standard deviation of the noise in each copy of a fresh value


def sample_fresh_values(
    batch_size: int, length: int, *, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "batch n d_value"], Float[Tensor, "batch n"]]:
    """Repeated tokens whose values, 16 normal entries, are new in every sequence; copies have independent noise."""
    check_sizes(batch_size=batch_size, length=length)
    # All in one draw, so that a batch equals sequences drawn one by one.
    uniform = torch.rand(batch_size, length, 1 + 2 * D_VALUE, dtype=torch.float64, generator=generator)
    chosen = (uniform[..., 0] * length).long()
    normal = torch.special.ndtri(uniform[..., 1:].clamp(min=1e-300)).float()
    values, noise = normal.split(D_VALUE, 2)
    copies = values.gather(1, chosen[..., None].expand_as(values))
    return copies + NOISE * noise, mark_repeats(chosen, length)


def majority_accuracy(length: int) -> float:
    """Accuracy of always guessing the more frequent label, max(q, 1 − q); q = (1 − 1/n)^(n−1) are unique."""
    check_sizes(length=length)
    unique = (1 - 1 / length) ** (length - 1)
    return max(unique, 1 - unique)


def random_mask_ceiling(length: int, mask_density: float) -> float:
    r"""The best possible accuracy of one layer that sees each pair with probability p, independently of the input.

    A repeat that is seen is certain. A token that has seen d others and no repeat is unique with probability
    $r^{n-1-d}$, where $r = 1 - 1/n$, and the more likely label is guessed.
    """
    from scipy.stats import binom

    check_sizes(length=length)
    if not 0 <= mask_density <= 1:
        raise SbmtError("mask_density in [0, 1]", mask_density, "give a share of all pairs")
    n_seen = torch.arange(length, dtype=torch.float64)
    share = torch.from_numpy(binom.pmf(n_seen.numpy(), length - 1, mask_density))
    no_repeat = (1 - 1 / length) ** n_seen  # r^d
    unique = no_repeat[-1]
    return float(share @ (1 - no_repeat + torch.maximum(unique, no_repeat - unique)))
