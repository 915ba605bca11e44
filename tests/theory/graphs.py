"""Small digraphs, and slow but simple decisions about them for comparison with the library."""

import numpy as np


def random_patterns(n_graphs, n_max, seed):
    """Draws patterns of all sizes and densities, some with a few universal tokens or planted paths."""
    rng = np.random.default_rng(seed)
    for number in range(n_graphs):
        n = int(rng.integers(1, n_max + 1))
        pattern = rng.random((n, n)) < rng.uniform(0, 0.9) / (1 + number % 3)
        if number % 4 == 1:
            relays = rng.permutation(n)[: int(rng.integers(1, 4))]
            pattern[relays] = pattern[:, relays] = True
        if number % 4 == 2:
            order = rng.permutation(n)
            pattern[order[1:], order[:-1]] = True
        yield pattern


def path_ends(pattern):
    """Returns, for every set of tokens, the tokens at which a path through exactly this set can end, both as bits."""
    n = len(pattern)
    into = [sum(1 << int(j) for j in np.flatnonzero(pattern[i]) if j != i) for i in range(n)]
    ends = [0] * (1 << n)
    for chosen in range(1, 1 << n):
        if chosen & (chosen - 1) == 0:
            ends[chosen] = chosen
            continue
        for i in range(n):
            bit = 1 << i
            if chosen & bit and ends[chosen ^ bit] & into[i]:
                ends[chosen] |= bit
    return ends


def has_path(pattern):
    """Returns whether there is a Hamiltonian path, by dynamic programming over all sets of tokens."""
    return path_ends(pattern)[-1] != 0


def has_cycle(pattern):
    """Returns whether there is a Hamiltonian cycle of two tokens or more, from closed paths from token 0."""
    from_first = pattern.copy()
    from_first[0] = False  # no arc leads to the first token, so paths through all tokens start there
    closing = sum(1 << int(j) for j in np.flatnonzero(pattern[0]) if j != 0)
    return len(pattern) > 1 and path_ends(from_first)[-1] & closing != 0


def least_paths(pattern):
    """Returns the path cover number, from the sets that single paths can visit."""
    n = len(pattern)
    is_walkable = [end != 0 for end in path_ends(pattern)]
    least = [0] + [n] * ((1 << n) - 1)
    for chosen in range(1, 1 << n):
        part = chosen
        while part:
            if is_walkable[part]:
                least[chosen] = min(least[chosen], 1 + least[chosen ^ part])
            part = (part - 1) & chosen
    return least[-1]


def products(layers, n_layers):
    """Yields S(1), S(2), …, as products of integer matrices."""
    reached = np.eye(len(layers[0]), dtype=np.int64)
    for t in range(n_layers):
        reached = (layers[t % len(layers)].astype(np.int64) @ reached > 0).astype(np.int64)
        yield reached.astype(bool)


def slow_min_layers(layers, n_layers):
    """Returns the first t ≤ ``n_layers`` with a full S(t), or None."""
    return next((t for t, reached in enumerate(products(layers, n_layers), start=1) if reached.all()), None)


def count_entries(patterns):
    """Returns the numbers of entries of the matrices and their union, named as by :func:`theory.pattern_counts`."""
    counts = {f"A{layer}": int(pattern.sum()) for layer, pattern in enumerate(patterns, start=1)}
    return counts | {"union": int(np.logical_or.reduce(patterns).sum())}


def three_triangles():
    """Returns a strongly connected graph, coverable by cycles, without a path: removing its hub leaves three parts.

    Degrees and matchings see nothing wrong with it, so only exact search tells.
    """
    pattern = np.eye(10, dtype=bool)
    for first in (1, 4, 7):
        pattern[first : first + 3, first : first + 3] = True
        pattern[0, first] = pattern[first, 0] = True
    return pattern
