"""The synthetic task: which values occur more than once?"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmt.errors import check_sizes


def sample_repeated_tokens(
    batch_size: int, length: int, *, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """Draws sequences of values and marks those that occur elsewhere in their sequence.

    Args:
        batch_size: Number of sequences.
        length: n, the number of tokens and of values; values are uniform on 0 … n − 1.
        generator: Source of the draws.

    Returns:
        Tokens int64 ``(batch, n)`` and labels ``(batch, n)``, 1.0 where the value occurs again.

    Paper: section 5.1, with values from 0 instead of 1.

    Example:
        >>> tokens, labels = sample_repeated_tokens(1, 4, generator=torch.Generator().manual_seed(1))
        >>> tokens.tolist(), labels.tolist()
        ([[1, 1, 2, 0]], [[1.0, 1.0, 0.0, 0.0]])
    """
    check_sizes(batch_size=batch_size, length=length)
    tokens = torch.randint(length, (batch_size, length), generator=generator)
    counts = torch.zeros(batch_size, length, dtype=torch.int64).scatter_add_(1, tokens, torch.ones_like(tokens))
    return tokens, (counts.gather(1, tokens) > 1).float()


def majority_accuracy(length: int) -> float:
    """Accuracy of always guessing the commoner label: max(q, 1 − q), q = (1 − 1/n)^(n−1) the share of unique tokens.

    Example:
        >>> round(majority_accuracy(64), 3)
        0.629
    """
    unique = (1 - 1 / length) ** (length - 1)
    return max(unique, 1 - unique)


def random_mask_ceiling(length: int, mask_density: float) -> float:
    r"""Best accuracy of one layer that sees each pair with probability p, independently of the input.

    A repeat that is seen is known for sure, everything else is guessed to be unique, or all is guessed alike:
    with q the share of unique tokens and each other token a seen repeat with probability p/n, that is right
    with probability $1 - (1 - p/n)^{n-1} + q$, which tends to $1 - e^{-p} + e^{-1}$.

    Args:
        length: n.
        mask_density: p in [0, 1].

    Example:
        >>> round(random_mask_ceiling(64, 1.0), 6)
        1.0
    """
    unique = (1 - 1 / length) ** (length - 1)
    unseen = (1 - mask_density / length) ** (length - 1)  # each other token repeats and is seen with probability p/n
    return max(majority_accuracy(length), 1 - unseen + unique)
