"""Associative recall: which value was stored with this key?"""

import torch
from jaxtyping import Int
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes

NO_ANSWER = -1  # where nothing is asked


def check_recall(n_pairs: int, n_queries: int, n_distractors: int, n_keys: int, n_values: int) -> None:
    """Raises SbmtError unless sequences of these numbers exist, see :func:`sample_recall`."""
    check_sizes(n_pairs=n_pairs, n_queries=n_queries, n_keys=n_keys, n_values=n_values)
    if n_distractors:  # none at all is allowed
        check_sizes(n_distractors=n_distractors)
    needed = n_pairs + bool(n_distractors)
    if n_keys < needed:
        expected = f"n_keys ≥ {needed}, a key for every pair{' and one for distractors' if n_distractors else ''}"
        raise SbmtError(expected, n_keys, "give more keys, or fewer pairs")


def sample_recall(
    batch_size: int,
    n_pairs: int = 16,
    n_queries: int = 16,
    n_distractors: int = 32,
    n_keys: int = 128,
    n_values: int = 32,
    *,
    permutation: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "batch n 2"], Int[Tensor, "batch n"]]:
    """Draws sequences of items, each a key with a value, and of queries, each a key without one, in random order.

    A query asks for its key's value, or with ``permutation`` for that of the key before; none asks for distractors.
    A token's ids are its key in [0, n_keys), and n_keys plus its value, or plus ``n_values`` in a query. An answer is a
    value in [0, n_values), or ``NO_ANSWER`` at items.
    """
    check_recall(n_pairs, n_queries, n_distractors, n_keys, n_values)
    check_sizes(batch_size=batch_size)
    n_items = n_pairs + n_distractors
    # All in one draw, so that a batch holds what single sequences would.
    n_draws = n_keys + n_items + n_items + n_queries
    uniform = torch.rand(batch_size, n_draws, dtype=torch.float64, generator=generator)
    keys, values, places = uniform.split([n_keys, n_items, n_items + n_queries], 1)

    keys = keys.argsort(1)
    others = n_pairs + torch.arange(n_distractors) % max(1, n_keys - n_pairs)
    keys = keys[:, torch.cat([torch.arange(n_pairs), others])]  # batch n_items
    values = (values * n_values).long()
    asked = torch.arange(n_queries) % n_pairs
    queries = (keys[:, asked] + permutation) % n_keys
    marks = torch.full_like(queries, n_values)

    tokens = torch.stack([torch.cat([keys, queries], 1), n_keys + torch.cat([values, marks], 1)], 2)
    answers = torch.cat([torch.full_like(values, NO_ANSWER), values[:, asked]], 1)
    order = places.argsort(1)
    return tokens.gather(1, order[..., None].expand_as(tokens)), answers.gather(1, order)
