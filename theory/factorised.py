"""Causal patterns, and what replaces condition 3 for them: no causal pattern of two tokens or more can meet it."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from sbmt.errors import SbmtError
from theory.conditions import as_csrs, layer_by_layer, union


def is_causal(patterns: Sequence[Any]) -> bool:
    """Whether no token attends a later one in any pattern.

    Raises:
        SbmtError: If the patterns are invalid or of different sizes.
    """
    layers = as_csrs(patterns)
    return all(bool((queries >= keys).all()) for queries, keys in (matrix.nonzero() for matrix in layers))


def causal_layers(patterns: Sequence[Any], order: Sequence[int] | None = None) -> int | None:
    """Condition 3 for causal patterns: the least s such that S_i = {0 … i} for every token i; None if never.

    In causal patterns the sets stay within {0 … i}. Every cycle of the union is a loop at one token, so the sets
    settle: once a full cycle through the patterns leaves them unchanged, they never change again. For ``order`` see
    :func:`~theory.conditions.min_layers`.

    Raises:
        SbmtError: If a token attends a later one.

    Example:
        >>> from theory.patterns import strided
        >>> causal_layers(strided(16, 4))
        2
    """
    layers = as_csrs(patterns, order)
    if not is_causal(layers):
        raise SbmtError("causal patterns, j ≤ i", "one that attends a later token", "use min_layers")
    wanted, before = np.tri(layers[0].shape[0], dtype=bool), None
    for t, reached in enumerate(layer_by_layer(layers), start=1):
        if (reached == wanted).all():
            return t
        if t % len(layers) == 0:
            if before is not None and (reached == before).all():
                return None
            before = reached
    raise AssertionError("layers never end")


def links_all_earlier(patterns: Sequence[Any], order: Sequence[int] | None = None, *, is_layered: bool = True) -> bool:
    """Whether every pair j ≤ i is linked by a path of p + 1 locations, that is, of at most p hops, for p patterns.

    Raises:
        SbmtError: If the patterns or the order are invalid.

    Source: Child et al. (2019), section 4.2. It can be read in two ways: one hop in each layer, in the order of the
    layers, which is what p layers compute (``is_layered=True``), or at most p hops in the union of the patterns, which
    asks for less.

    Example:
        >>> from theory.patterns import fixed
        >>> patterns = fixed(16, 4, 1)
        >>> links_all_earlier(patterns), links_all_earlier(patterns, is_layered=False)
        (False, True)
    """
    layers = as_csrs(patterns, order)
    n, p = layers[0].shape[0], len(layers)
    if not is_layered:
        layers = [csr_array(union(layers) + csr_array(np.eye(n, dtype=bool)), dtype=bool)]
    reached = next(islice(layer_by_layer(layers), p - 1, None))
    return bool((reached | ~np.tri(n, dtype=bool)).all())
