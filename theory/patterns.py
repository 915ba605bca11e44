"""Attention patterns as boolean matrices: row = query, column = key.

The arc of an entry goes from key to query: ``A[i, j]`` is the arc j → i, the way information flows.
"""

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

import numpy as np
from jaxtyping import Bool

from sbmt.errors import SbmtError, check_sizes, is_integer
from sbmt.graph.patterns import check_window
from theory.checks import as_list

Pattern = Bool[np.ndarray, "n n"]
Relays = str | Sequence[SupportsIndex]


def blocks(n: int, k: int) -> np.ndarray:
    """The block of every token, ``(i·k) // n`` in integers: k blocks whose sizes differ by at most one.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n.

    Example:
        >>> blocks(10, 4).tolist()
        [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    """
    check_sizes(n=n, k=k)
    if k > n:
        raise SbmtError("1 ≤ k ≤ n", f"n = {n}, k = {k}", "give every block at least one token")
    return np.arange(n, dtype=np.int64) * k // n


def block_sizes(n: int, k: int) -> list[int]:
    """Sizes of the k blocks; with n = qk + r, r of them have q + 1 tokens.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n.

    Example:
        >>> block_sizes(10, 4)
        [3, 2, 3, 2]
    """
    return np.bincount(blocks(n, k), minlength=k).tolist()


def relay_tokens(n: int, k: int, relays: Relays = "last") -> list[int]:
    """The tokens that read every token and are read by every token.

    Args:
        n: Tokens.
        k: Blocks.
        relays: ``"last"`` for the last k tokens, as in the paper, ``"per_block"`` for the last of each, or a list.

    Raises:
        SbmtError: If the name is unknown, or a token is not an integer, out of range or repeated.

    Example:
        >>> relay_tokens(10, 4), relay_tokens(10, 4, "per_block")
        ([6, 7, 8, 9], [2, 4, 7, 9])
    """
    block = blocks(n, k)
    if isinstance(relays, str):
        if relays == "last":
            return list(range(n - k, n))
        if relays == "per_block":
            return np.flatnonzero(np.append(block[1:] != block[:-1], True)).tolist()
        raise SbmtError("relays 'last', 'per_block' or a list of tokens", repr(relays), "use one of those")
    listed = as_list(relays, "relays 'last', 'per_block' or a list of tokens", "use one of those")
    if not all(map(is_integer, listed)):
        raise SbmtError("relays as integers", listed, "count tokens from 0")
    tokens = [index(token) for token in listed]
    if any(not 0 <= token < n for token in tokens) or len(set(tokens)) != len(tokens):
        raise SbmtError(f"distinct relays in [0, {n})", tokens, "list each token once")
    return tokens


def three_patterns(n: int, k: int, relays: Relays = "last") -> list[Pattern]:
    """``[A1, A2, A3]``: tokens read their own block, all read the relays, and the relays read all.

    Each has a full diagonal; A3 is the transpose of A2.

    Paper: appendix on universal approximation and Figure 6, with tokens numbered from 0 (see :func:`one_based_blocks`).

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n and the relays are valid.

    Cost: O(n²) memory.
    """
    block = blocks(n, k)
    is_relay = np.zeros(n, dtype=bool)
    is_relay[relay_tokens(n, k, relays)] = True
    diagonal = np.eye(n, dtype=bool)
    return [block[:, None] == block[None, :], diagonal | is_relay[None, :], diagonal | is_relay[:, None]]


def pattern_counts(n: int, k: int, relays: Relays = "last") -> dict[str, int]:
    """Numbers of entries of the three patterns and of their union, by formula.

    With n = qk + r: A1 has (k − r) q² + r (q + 1)² entries, A2 and A3 with R relays n R + n − R each, and the union
    2 n R − R² plus the squared number of non-relays of each block.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n and the relays are valid.

    Example:
        >>> pattern_counts(16, 4)
        {'A1': 64, 'A2': 76, 'A3': 76, 'union': 160}
    """
    block, chosen = blocks(n, k), relay_tokens(n, k, relays)
    n, k = int(n), int(k)  # NumPy's small integers would overflow
    q, r = divmod(n, k)
    many = len(chosen)
    rest = np.bincount(np.delete(block, chosen), minlength=k)
    return {
        "A1": (k - r) * q * q + r * (q + 1) ** 2,
        "A2": n * many + n - many,
        "A3": n * many + n - many,
        "union": 2 * n * many - many * many + int((rest**2).sum()),
    }


def one_based_blocks(n: int, k: int) -> np.ndarray:
    """The paper's ⌊ik/n⌋ read literally, with i from 1, which makes k + 1 classes: token n is alone in class k.

    Raises:
        SbmtError: Unless n ≥ 1 and k ≥ 1.

    Example:
        >>> np.bincount(one_based_blocks(16, 4)).tolist()
        [3, 4, 4, 4, 1]
    """
    check_sizes(n=n, k=k)
    return np.arange(1, int(n) + 1, dtype=np.int64) * k // n


def strided(n: int, stride: int) -> list[Pattern]:
    """The strided factorised patterns (causal): a token with the ``stride`` before it, and every ``stride``-th back.

    The first has the keys i − l … i for the stride l, so l + 1 of them; the second has i, i − l, i − 2l and so on.

    Raises:
        SbmtError: Unless n ≥ 1 and stride ≥ 1.

    Source: Child et al. (2019), section 4.2.
    """
    check_sizes(n=n, stride=stride)
    i, j = np.ogrid[:n, :n]
    return [(j <= i) & (j >= i - stride), (j <= i) & ((i - j) % stride == 0)]


def fixed(n: int, stride: int, c: int, *, causal: bool = True, self_loops: bool = False) -> list[Pattern]:
    """The fixed factorised patterns: a token's own block of ``stride`` tokens, and the last c tokens of every block.

    Args:
        n: Tokens.
        stride: Block length l.
        c: Summary tokens per block, 0 ≤ c ≤ stride.
        causal: Whether tokens attend to no later ones.
        self_loops: Whether the second pattern gets a full diagonal, which it lacks where i mod l < l − c.

    Raises:
        SbmtError: Unless n ≥ 1, stride ≥ 1 and 0 ≤ c ≤ stride.

    Source: Child et al. (2019), section 4.2.
    """
    check_sizes(n=n, stride=stride)
    if not is_integer(c) or not 0 <= c <= stride:
        raise SbmtError(f"c in [0, {stride}]", c, "a block has only stride tokens")
    i, j = np.ogrid[:n, :n]
    is_allowed = (j <= i) if causal else np.ones((n, n), dtype=bool)
    own = (i // stride == j // stride) & is_allowed
    summary = (j % stride >= stride - c) & is_allowed
    return [own, summary | np.eye(n, dtype=bool) if self_loops else summary]


def sliding_window(n: int, window: int) -> Pattern:
    """Every token attends to those at most ``window / 2`` places away, itself included.

    :func:`sbmt.graph.patterns.sliding_window` gives the same pattern as edges.

    Raises:
        SbmtError: Unless n ≥ 1 and window ≥ 0.
    """
    check_sizes(n=n)
    check_window(window)
    i, j = np.ogrid[:n, :n]
    return np.abs(i - j) <= window // 2
