"""What can be said of edge probabilities without forming a single product T_i · K_j."""

import math

from sbmt.kernels.cpu.toolchain import kernel


@kernel
def summarise_clusters(start, stop, key, real, n_real, heads, n_keys, largest, total):
    """Each cluster's largest and summed membership over the real keys of graphs start … stop."""
    for graph in range(start, stop):
        example = graph // heads
        most, whole = largest[graph], total[graph]
        most[:] = 0.0
        whole[:] = 0.0
        for i in range(n_real[example]):
            row = key[graph * n_keys + real[example, i]]
            for v in range(key.shape[1]):
                x = float(row[v])
                most[v] = max(most[v], x)
                whole[v] += x


@kernel
def compare_keys(start, stop, key, inverse, margin, n_keys, at_least, at_most):
    """Between which shares of the clusters' largest memberships each key's lie: l_j M ≤ K_j ≤ b_j M, entry by entry.

    Then l_j (T_i · M) ≤ T_i · K_j ≤ b_j (T_i · M) for every row. Both are widened by ``margin``, for rounding.
    """
    for row in range(start, stop):
        graph = row // n_keys
        a, b = key[row, 0] * inverse[graph, 0], key[row, 0] * inverse[graph, 0]
        for v in range(key.shape[1]):
            share = key[row, v] * inverse[graph, v]
            a = share if share < a else a
            b = share if share > b else b
        at_least[row], at_most[row] = a * (1.0 - margin), b * (1.0 + margin)


@kernel
def bound_rows(
    start, stop, query, largest, total, n_real, is_real, exploration, margin, n_queries, heads, is_poisson,
    most, upper, expected,
):  # fmt: skip
    """For rows start … stop: T_i · M, an upper bound of the row's probabilities, and the sum of its rates."""
    for row in range(start, stop):
        graph = row // n_queries
        example = graph // heads
        if not is_real[example, row % n_queries]:
            most[row] = upper[row] = expected[row] = 0.0
            continue
        bound = rate = 0.0
        for v in range(query.shape[1]):
            t = float(query[row, v])
            bound += t * largest[graph, v]
            rate += t * total[graph, v]
        most[row] = bound
        expected[row] = rate + exploration * n_real[example]
        bound = (bound + exploration) * (1.0 + margin)
        upper[row] = -math.expm1(-bound) if is_poisson else min(bound, 1.0)
