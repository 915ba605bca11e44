"""Attention patterns as boolean matrices, with one row per query and one column per key.

Entry ``A[i, j]`` is an arc from key j to query i, which is the direction in which information flows. Impossible sizes,
such as more blocks than tokens, and relays that are not distinct tokens raise SbmtError.
"""

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

import numpy as np
from jaxtyping import Bool

from sbmt.errors import SbmtError, check_sizes, is_integer
from theory.checks import as_list

Pattern = Bool[np.ndarray, "n n"]
Relays = str | Sequence[SupportsIndex]


def blocks(n: int, k: int) -> np.ndarray:
    """Returns the block of every token, ``(i·k) // n``. There are k blocks, whose sizes differ by at most one."""
    check_sizes(n=n, k=k)
    if k > n:
        raise SbmtError("1 ≤ k ≤ n", f"n = {n}, k = {k}", "give every block at least one token")
    return np.arange(n, dtype=np.int64) * k // n


def block_sizes(n: int, k: int) -> list[int]:
    """Returns the sizes of the k blocks. If n = qk + r, r blocks have q + 1 tokens and the others have q."""
    return np.bincount(blocks(n, k), minlength=k).tolist()


def relay_tokens(n: int, k: int, relays: Relays = "last") -> list[int]:
    """Returns the tokens that read every token and are read by every token.

    ``"last"`` means the last k tokens, as in the paper, and ``"per_block"`` means the last token of each block.
    """
    block, expected = blocks(n, k), "relays 'last', 'per_block' or a list of tokens"
    if isinstance(relays, str):
        if relays == "last":
            return list(range(n - k, n))
        if relays == "per_block":
            return np.flatnonzero(np.append(block[1:] != block[:-1], True)).tolist()
        raise SbmtError(expected, repr(relays), "use one of these")
    listed = as_list(relays, expected, "use one of these")
    if not all(map(is_integer, listed)):
        raise SbmtError("relays to be integers", listed, "count tokens from 0")
    tokens = [index(token) for token in listed]
    if any(not 0 <= token < n for token in tokens) or len(set(tokens)) != len(tokens):
        raise SbmtError(f"distinct relays in [0, {n})", tokens, "list each token once")
    return tokens


def three_patterns(n: int, k: int, relays: Relays = "last") -> list[Pattern]:
    """Returns ``[A1, A2, A3]``, where tokens read their blocks, all tokens read relays, and relays read all tokens.

    Each pattern has a full diagonal; A3 is the transpose of A2.

    Paper: appendix on universal approximation and Figure 6, with tokens numbered from 0 (see :func:`one_based_blocks`).

    Cost: O(n²) memory.
    """
    block = blocks(n, k)
    is_relay = np.zeros(n, dtype=bool)
    is_relay[relay_tokens(n, k, relays)] = True
    diagonal = np.eye(n, dtype=bool)
    return [block[:, None] == block[None, :], diagonal | is_relay[None, :], diagonal | is_relay[:, None]]


def pattern_counts(n: int, k: int, relays: Relays = "last") -> dict[str, int]:
    """Computes the numbers of entries of the three patterns and of their union from formulas.

    A1 has the sum of the squared block sizes; with R relays, A2 and A3 have n R + n − R each, and the union has
    2 n R − R² plus the sum of the squared numbers of non-relays in each block. If patterns are supports of E[M], blocks
    are complete, and there are n²/k + 2kn + 2n − 2k entries in all, at least about 2.83 n^1.5, near k = √(n/2).

    Example:
        >>> pattern_counts(16, 4)
        {'A1': 64, 'A2': 76, 'A3': 76, 'union': 160}
    """
    block, chosen = blocks(n, k), relay_tokens(n, k, relays)
    n, many = int(n), len(chosen)  # NumPy's small integers would overflow
    in_blocks, rest = (int((np.bincount(tokens) ** 2).sum()) for tokens in (block, np.delete(block, chosen)))
    star = n * many + n - many
    return {"A1": in_blocks, "A2": star, "A3": star, "union": 2 * n * many - many * many + rest}


def one_based_blocks(n: int, k: int) -> np.ndarray:
    """Applies the paper's ⌊ik/n⌋ literally, with i from 1. This gives k + 1 classes, with token n alone in class k."""
    check_sizes(n=n, k=k)
    return np.arange(1, int(n) + 1, dtype=np.int64) * k // n


def strided(n: int, stride: int) -> list[Pattern]:
    """Returns the two strided factorised patterns, which are causal.

    With stride l, query i reads the l + 1 keys i − l … i in the first, and the keys i, i − l, i − 2l … in the second.

    Source: Child et al. (2019), section 4.2.
    """
    check_sizes(n=n, stride=stride)
    i, j = np.ogrid[:n, :n]
    return [(j <= i) & (j >= i - stride), (j <= i) & ((i - j) % stride == 0)]


def fixed(n: int, stride: int, c: int, *, causal: bool = True, self_loops: bool = False) -> list[Pattern]:
    """Returns the fixed factorised patterns: a token's block of ``stride`` tokens, and the last c tokens of each block.

    With ``causal``, no token attends to a later token. With ``self_loops``, the second pattern has a full diagonal;
    otherwise, its diagonal entries with i mod l < l − c are missing, where l is the stride.

    Source: Child et al. (2019), section 4.2.
    """
    check_sizes(n=n, stride=stride)
    if not is_integer(c) or not 0 <= c <= stride:
        raise SbmtError(f"c in [0, {stride}]", c, "use at most the number of tokens in a block")
    i, j = np.ogrid[:n, :n]
    is_allowed = (j <= i) if causal else np.ones((n, n), dtype=bool)
    own = (i // stride == j // stride) & is_allowed
    summary = (j % stride >= stride - c) & is_allowed
    return [own, summary | np.eye(n, dtype=bool) if self_loops else summary]
