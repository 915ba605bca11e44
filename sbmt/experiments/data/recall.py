"""Associative recall tasks: which value belongs to a key that occurs elsewhere in the sequence?"""

import torch
from jaxtyping import Int
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes

NO_ANSWER = -1  # the answer at positions without a query
POWER = 0.01  # exponent that determines the positions of queries in multi-query recall; small values favour early ones


def check_recall(n_pairs: int, n_queries: int, n_distractors: int, n_keys: int, n_values: int) -> None:
    """Raises SbmtError unless :func:`sample_recall` can draw sequences of these sizes."""
    check_sizes(n_pairs=n_pairs, n_queries=n_queries, n_keys=n_keys, n_values=n_values)
    if n_distractors:  # there may be none
        check_sizes(n_distractors=n_distractors)
    needed = n_pairs + bool(n_distractors)
    if n_keys < needed:
        expected = f"n_keys ≥ {needed} (one per pair{' and one for the distractors' if n_distractors else ''})"
        raise SbmtError(expected, n_keys, "use more keys or fewer pairs")


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
    """Draws sequences of items (keys with values) and queries (keys without values) in random order.

    The answer to a query is the value of its key or, with ``permutation``, the value of the preceding key. Distractors
    are items that are never queried. A token has two ids: its key in [0, n_keys), and ``n_keys`` plus its value, where
    ``n_values`` replaces the value in a query. Answers are values in [0, n_values), or ``NO_ANSWER`` at items.
    """
    check_recall(n_pairs, n_queries, n_distractors, n_keys, n_values)
    check_sizes(batch_size=batch_size)
    n_items = n_pairs + n_distractors
    # A single call draws all numbers, so that a batch equals the same sequences drawn one by one.
    sizes = [n_keys, n_items, n_items + n_queries]
    uniform = torch.rand(batch_size, sum(sizes), dtype=torch.float64, generator=generator)
    keys, values, places = uniform.split(sizes, 1)

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


def check_multi_query(length: int, n_pairs: int, vocab_size: int) -> None:
    """Raises SbmtError unless :func:`sample_multi_query` can draw sequences of these sizes."""
    check_sizes(length=length, n_pairs=n_pairs, vocab_size=vocab_size)
    if length < 4 * n_pairs:
        raise SbmtError(f"length must be at least 4 · n_pairs = {4 * n_pairs}, got {length}: use fewer pairs")
    if vocab_size // 2 <= n_pairs:
        raise SbmtError(f"vocab_size must be at least 2 · n_pairs + 2 = {2 * n_pairs + 2}, got {vocab_size}: use more")


def sample_multi_query(
    batch_size: int, length: int, n_pairs: int, vocab_size: int = 8192, *, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "batch n"], Int[Tensor, "batch n"]]:
    """Draws sequences that start with key-value pairs and later repeat each key once as a query.

    Keys are distinct symbols from the first half of the vocabulary, and values are distinct symbols from the second.
    After the pairs, every second position may hold a query, with a weight of t^(POWER − 1) for the t-th such position.
    All other positions contain random symbols.

    Returns the tokens and the answers, which are values at queries and ``NO_ANSWER`` elsewhere.

    Source: Arora et al., "Zoology" (2023), section 3.2 and appendix, with their vocabulary size and power.
    """
    check_multi_query(length, n_pairs, vocab_size)
    check_sizes(batch_size=batch_size)
    n_keys, n_places, asked = vocab_size // 2, (length - 2 * n_pairs) // 2, 2 * n_pairs
    sizes = [n_keys, vocab_size - n_keys, n_places, length]  # drawn by a single call, as in sample_recall
    uniform = torch.rand(batch_size, sum(sizes), dtype=torch.float64, generator=generator).split(sizes, 1)
    keys = uniform[0].topk(n_pairs).indices
    values = n_keys + uniform[1].topk(n_pairs).indices
    log_share = (POWER - 1) * torch.arange(1, n_places + 1, dtype=torch.float64).log()
    gumbel = -(-uniform[2].clamp(min=1e-300).log()).log()
    places = asked + 2 * (log_share + gumbel).topk(n_pairs).indices  # drawn without replacement

    tokens = (uniform[3] * vocab_size).long()
    tokens[:, 0:asked:2], tokens[:, 1:asked:2] = keys, values
    return tokens.scatter(1, places, keys), torch.full_like(tokens, NO_ANSWER).scatter(1, places, values)
