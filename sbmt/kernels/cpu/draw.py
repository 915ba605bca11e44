"""Drawing edges row by row, in time that follows their number.

A row's rates lie one after the other on a line, cluster by cluster; a Poisson process on that line hits a cluster in
proportion to its rate, and each hit draws a key from the cluster's alias table. So a key is hit at all with probability
1 − e^(−rate), independently of all others.
"""

import math

import numpy as np

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.cpu.attend import dot
from sbmt.kernels.cpu.compile import inline_loop, loop, strict_loop
from sbmt.kernels.cpu.rng import cell_uniform, fine_uniform, philox, uniform

MAX_BOOST = 32.0  # the law is off by less than 2e-14 with so many candidates for a probability of 1
DENSE_SHARE = 0.125  # a row that expects more candidates than this share of its keys is drawn key by key
_CELL = int(Purpose.CELL) * MAX_HEADS
_CANDIDATE = int(Purpose.CANDIDATE) * MAX_HEADS
_KEEP = int(Purpose.KEEP) * MAX_HEADS


@inline_loop
def _gap(word):
    """An exponential variate, the distance to the next point."""
    return -math.log(uniform(word))


@loop
def _fill_alias_table(weights, keep, alias, small, large):
    """Walker's alias method: entry k is drawn if ``keep[k]`` exceeds the fraction of a uniform, else its alias is.

    The weights are overwritten; ``small`` and ``large`` are scratch space as long as they. Source: Vose (1991).
    """
    n, total = weights.shape[0], weights.sum()
    n_small = n_large = many = 0
    for k in range(n):
        weights[k] *= n / total  # in float64, since one may be reduced n times
        alias[k], keep[k] = k, 1.0
        if weights[k] < 1.0:
            small[n_small] = k
            n_small += 1
        else:
            large[n_large] = k
            n_large += 1
    while n_small and n_large:
        few, many = small[n_small - 1], large[n_large - 1]
        keep[few], alias[few] = weights[few], many
        weights[many] -= 1.0 - weights[few]
        n_small -= 1
        if weights[many] < 1.0:
            n_large -= 1
            small[n_small] = many
            n_small += 1
    for k in range(n_small):  # what rounding leaves over
        if weights[small[k]] <= 0:
            keep[small[k]], alias[small[k]] = 0.0, many


@inline_loop
def _choose(keep, alias, start, n, u):
    """One of n entries by a uniform; their alias table starts at ``start``."""
    place = u * n
    k = min(int(place), n - 1)
    other = alias[start + k]  # read in any case: a branch would be mispredicted
    return k if place - k < keep[start + k] else other


@inline_loop
def _first_above(ends, x):
    """The first of the ascending ``ends`` above x, at most the last, without a branch that depends on x."""
    first, n = 0, ends.shape[0]
    while n > 1:
        half = n >> 1
        first += half * (ends[first + half - 1] <= x)
        n -= half
    return first


@loop
def _keep_distinct(found, n_found):
    """Sorts the first entries, moves the distinct ones to the front, and returns how many there are."""
    if n_found > 48:
        found[:n_found] = np.sort(found[:n_found])
    else:
        for e in range(1, n_found):
            x, place = found[e], e
            while place > 0 and found[place - 1] > x:
                found[place] = found[place - 1]
                place -= 1
            found[place] = x
    end = min(1, n_found)
    for e in range(1, n_found):
        if found[end - 1] != found[e]:
            found[end] = found[e]
            end += 1
    return end


@loop
def _add_row(keys, n_keys_so_far, found, n_found, row, reach, is_real):
    """Appends a row's sorted keys to ``keys``, with all real ones at most ``reach`` places from the row among them.

    Returns the array, which may be a larger one, and its new end.
    """
    low, high = row - reach, row + reach
    most = n_keys_so_far + n_found + max(0, 2 * reach + 1)
    if most > keys.shape[0]:
        larger = np.empty(2 * most, np.int64)
        larger[:n_keys_so_far] = keys[:n_keys_so_far]
        keys = larger
    end, e = n_keys_so_far, 0
    while e < n_found and found[e] < low:
        keys[end] = found[e]
        end, e = end + 1, e + 1
    for j in range(max(0, low), min(is_real.shape[0], high + 1)):
        if is_real[j]:
            keys[end] = j
            end += 1
    while e < n_found and found[e] <= high:
        e += 1
    while e < n_found:
        keys[end] = found[e]
        end, e = end + 1, e + 1
    return keys, end


@inline_loop
def most_points(n_keys):
    """More points than a row is ever drawn key by key for: beyond twelve standard deviations of a Poisson number."""
    return int(DENSE_SHARE * n_keys + 12 * math.sqrt(DENSE_SHARE * n_keys)) + 64


@strict_loop
def _draw_row_exact(
    query, at, key, first_key, n_keys, total, most, keep, alias, is_poisson, seed, row, head, example, found
):
    """Distinct keys of one row in ``found``, and how many there are."""
    n_clusters = total.shape[0]
    rate = bound = 0.0
    for v in range(n_clusters):
        rate += query[at, v] * total[v]
        bound += query[at, v] * most[v]
    bound, boost = min(max(bound * (1 + 1e-12), 1e-300), 1.0), 1.0
    if not is_poisson:
        boost = MAX_BOOST if bound == 1.0 else min(MAX_BOOST, -math.log1p(-bound) / bound * (1 + 1e-12))
    n_found = 0
    if rate * boost > DENSE_SHARE * n_keys:
        for j in range(n_keys):
            x = dot(query, at, key, first_key + j)
            if cell_uniform(seed, j, row, head + _CELL, example) < (-math.expm1(-x) if is_poisson else x):
                found[n_found] = j
                n_found += 1
        return n_found
    w0, _, w2, w3 = philox(seed, 0, row, head + _CANDIDATE, example)
    place, n_drawn, after = _gap(w0), 0, 0.0
    for v in range(n_clusters):
        after += query[at, v] * boost * total[v]
        while place < after:
            found[n_drawn] = _choose(keep, alias, v * n_keys, n_keys, fine_uniform(w2, w3))
            n_drawn += 1
            w0, _, w2, w3 = philox(seed, n_drawn, row, head + _CANDIDATE, example)
            place += _gap(w0)
    n_found = _keep_distinct(found, n_drawn)
    if is_poisson:
        return n_found
    n_kept = 0
    for e in range(n_found):
        j = found[e]
        u = cell_uniform(seed, j, row, head + _KEEP, example)
        if u * boost >= 1:  # else it is kept whatever its rate
            x = dot(query, at, key, first_key + j)
            if u * -math.expm1(-boost * x) >= min(x, 1.0):
                continue
        found[n_kept] = j
        n_kept += 1
    return n_kept


@inline_loop
def _end_of_keys(is_real, example):
    """Where an example's real keys end, so that what is drawn does not depend on padding behind them."""
    end = is_real.shape[1]
    while end > 1 and not is_real[example, end - 1]:
        end -= 1
    return end


@strict_loop
def draw_exact(start, stop, query, key, is_poisson, seed, first_example, reach, queries, real_keys, sizes, degrees):
    """Keys of the edges of rows start … stop, whose numbers it writes to ``degrees``; each pair is drawn alone.

    The probability of a pair with rate x = ⟨query_i, key_j⟩ is 1 − e^(−x), or min(x, 1). In the second case the
    process runs c times as fast, so that it hits at least as often, and a hit is kept with the remaining probability:
    see :func:`sbmt.samplers.exact.sample_with_torch`.
    """
    n_queries, n_keys, heads = sizes
    n_clusters = query.shape[1]
    drawn, end = np.empty(64 + 16 * (stop - start), np.int64), 0
    found = np.empty(max(n_keys, most_points(n_keys)), np.int32)
    keep, alias = np.empty(n_clusters * n_keys, np.float32), np.empty(n_clusters * n_keys, np.int32)
    total, most, column = np.empty(n_clusters), np.empty(n_clusters), np.empty(n_keys)
    small, large = np.empty(n_keys, np.int32), np.empty(n_keys, np.int32)
    last_graph, n_used = -1, n_keys
    for at in range(start, stop):
        graph, row = at // n_queries, at % n_queries
        head, example = graph % heads, graph // heads
        first_key = graph * n_keys
        if graph != last_graph:
            last_graph, n_used = graph, _end_of_keys(real_keys, example)
            for v in range(n_clusters):
                for j in range(n_used):
                    column[j] = key[first_key + j, v]
                total[v], most[v] = column[:n_used].sum(), column[:n_used].max()
                if total[v] > 0:
                    place = slice(v * n_used, (v + 1) * n_used)
                    _fill_alias_table(column[:n_used], keep[place], alias[place], small, large)
        before = end
        if queries[example, row]:
            address = row, head, example + first_example
            tables = first_key, n_used, total, most, keep, alias, is_poisson
            n_found = _draw_row_exact(query, at, key, *tables, seed, *address, found)
            drawn, end = _add_row(drawn, end, found, n_found, row, reach, real_keys[example])
        degrees[at] = end - before
    return drawn[:end]


@loop
def _fill_pair_tables(blocks, part, weight, first, members, keep, alias, mass):
    """Alias tables of the keys in each pair of parts, and how much weight of keys is in each pair.

    Cluster c = (group, part, part) has places ``first[c]`` to ``first[c + 1]`` in ``members``, ``keep`` and ``alias``.
    """
    n_groups, size = blocks.shape[0] // 2, blocks.shape[1]
    n_keys = part.shape[0]
    cluster, share = np.empty((n_keys, 4 * n_groups), np.int32), np.empty(4 * n_keys * n_groups)
    first[:] = 0
    for j in range(n_keys):
        for g in range(n_groups):
            for i in range(4):
                a, b = part[j, 4 * g + (i >> 1)] - 2 * g * size, part[j, 4 * g + 2 + (i & 1)] - (2 * g + 1) * size
                cluster[j, 4 * g + i] = (g * size + a) * size + b
                first[cluster[j, 4 * g + i] + 2] += 1
    for c in range(2, first.shape[0]):
        first[c] += first[c - 1]
    for j in range(n_keys):
        for e in range(4 * n_groups):
            slot = first[cluster[j, e] + 1]
            first[cluster[j, e] + 1] += 1
            x = 4 * (e >> 2)
            members[slot], share[slot] = j, float(weight[j, x + (e >> 1 & 1)]) * float(weight[j, x + 2 + (e & 1)])
    small, large = np.empty(n_keys * 4, np.int32), np.empty(n_keys * 4, np.int32)
    for c in range(first.shape[0] - 2):
        some = share[first[c] : first[c + 1]]
        in_all = some.sum()
        mass[c // (size * size), c // size % size, c % size] = in_all
        if in_all > 0:
            _fill_alias_table(some, keep[first[c] : first[c + 1]], alias[first[c] : first[c + 1]], small, large)


@loop
def _fill_part_tables(blocks, mass, to_first, keep_first, alias_first, keep_second, alias_second):
    """Alias tables that lead from a query's pair of parts to a key's, and what such a pair reaches in all.

    A query in parts x and y draws a key in part a of the first partition with weight S_xa Σ_b S_yb N_ab, and then in
    part b of the second with weight S_yb N_ab, where N is ``mass``.
    """
    n_groups, size = blocks.shape[0] // 2, blocks.shape[1]
    weights, small, large = np.empty(size), np.empty(size, np.int32), np.empty(size, np.int32)
    reached = np.empty(size)
    for g in range(n_groups):
        for y in range(size):
            for a in range(size):
                reached[a] = 0.0
                for b in range(size):
                    weights[b] = blocks[2 * g + 1, y, b] * mass[g, a, b]
                    reached[a] += weights[b]
                if reached[a] > 0:
                    place = slice(((g * size + y) * size + a) * size, ((g * size + y) * size + a + 1) * size)
                    _fill_alias_table(weights, keep_second[place], alias_second[place], small, large)
            for x in range(size):
                for a in range(size):
                    weights[a] = blocks[2 * g, x, a] * reached[a]
                to_first[g, x, y] = weights.sum()
                if to_first[g, x, y] > 0:
                    place = slice(((g * size + x) * size + y) * size, ((g * size + x) * size + y + 1) * size)
                    _fill_alias_table(weights, keep_first[place], alias_first[place], small, large)


@inline_loop
def fill_rates(part, weight, at, blocks, head, rates):
    """Rates of query ``at`` to every part, from its memberships in two parts of each partition."""
    size = blocks.shape[2]
    for f in range(blocks.shape[1]):
        x, y = part[at, 2 * f] - f * size, part[at, 2 * f + 1] - f * size
        for a in range(size):
            of_first, of_second = (
                weight[at, 2 * f] * blocks[head, f, x, a],
                weight[at, 2 * f + 1] * blocks[head, f, y, a],
            )
            rates[f * size + a] = of_first + of_second


@inline_loop
def pair_rate(rates, part, weight, j):
    """The rate of a pair with key j: over groups, the product of what two partitions contribute, two parts of each."""
    rate = rates.dtype.type(0.0)
    for c in range(0, part.shape[1], 4):
        x = rates[part[j, c]] * weight[j, c] + rates[part[j, c + 1]] * weight[j, c + 1]
        rate += x * (rates[part[j, c + 2]] * weight[j, c + 2] + rates[part[j, c + 3]] * weight[j, c + 3])
    return rate


@strict_loop
def _draw_row_crossed(
    part, weight, at, blocks, rates, ends, to_first, keep_first, alias_first, keep_second, alias_second, first, members,
    keep, alias, key_part, key_weight, first_key, reals, extra, seed, row, head, example, n_keys, found,
):  # fmt: skip
    """Distinct keys of one row in ``found``, and how many there are."""
    n_groups, size, _ = to_first.shape
    n_found, after = 0, 0.0
    for e in range(4 * n_groups):
        g, i, j = e >> 2, 4 * (e >> 2) + (e >> 1 & 1), 4 * (e >> 2) + 2 + (e & 1)
        x, y = part[at, i] - 2 * g * size, part[at, j] - (2 * g + 1) * size
        after += float(weight[at, i]) * float(weight[at, j]) * to_first[g, x, y]
        ends[e] = after  # of this pair of the query's parts on the line
    total = after + extra * reals.shape[0]
    if total > DENSE_SHARE * n_keys:
        fill_rates(part, weight, at, blocks, head, rates)
        for j in reals:
            x = pair_rate(rates, key_part, key_weight, first_key + j) + extra
            if cell_uniform(seed, j, row, head + _CELL, example) < -math.expm1(-x):
                found[n_found] = j
                n_found += 1
        return n_found
    w0, w1, w2, w3 = philox(seed, 0, row, head + _CANDIDATE, example)
    place, n_drawn = _gap(w0), 0
    while place < total:
        if place < after:
            e = _first_above(ends, place)
            g = e >> 2
            x = part[at, 4 * g + (e >> 1 & 1)] - 2 * g * size
            y = part[at, 4 * g + 2 + (e & 1)] - (2 * g + 1) * size
            a = _choose(keep_first, alias_first, ((g * size + x) * size + y) * size, size, uniform(w1))
            b = _choose(keep_second, alias_second, ((g * size + y) * size + a) * size, size, uniform(w2))
            c = (g * size + a) * size + b
            n_members = first[c + 1] - first[c]
            if n_members:  # rounding alone leads to a cluster without keys
                found[n_found] = members[first[c] + _choose(keep, alias, first[c], n_members, uniform(w3))]
                n_found += 1
        else:
            found[n_found] = reals[int(uniform(w1) * reals.shape[0])]
            n_found += 1
        n_drawn += 1
        w0, w1, w2, w3 = philox(seed, n_drawn, row, head + _CANDIDATE, example)
        place += _gap(w0)
    return _keep_distinct(found, n_found)


@loop
def draw_crossed(
    start, stop, query_part, query_weight, blocks, key_part, key_weight, extra, seed, first_example, reach, queries,
    real_keys, sizes, degrees,
):  # fmt: skip
    """:func:`draw_exact` under the Poisson link, from queries' and keys' memberships in two parts of each partition.

    A query picks one of its pairs of parts, which picks a pair of parts of keys, which picks a key. ``blocks`` are
    those of each head; ``extra`` is added to the rate of each pair of real tokens.
    """
    n_queries, n_keys, heads = sizes
    n_groups, size = blocks.shape[1] // 2, blocks.shape[2]
    drawn, end = np.empty(64 + 16 * (stop - start), np.int64), 0
    found = np.empty(max(n_keys, most_points(n_keys)), np.int32)
    first = np.empty(n_groups * size * size + 2, np.int64)
    members, alias = np.empty(4 * n_groups * n_keys, np.int32), np.empty(4 * n_groups * n_keys, np.int32)
    keep, mass = np.empty(4 * n_groups * n_keys, np.float32), np.empty((n_groups, size, size))
    to_first, rates, ends = np.empty(mass.shape), np.empty(2 * n_groups * size), np.empty(4 * n_groups)
    keep_first, keep_second = np.empty(size * mass.size, np.float32), np.empty(size * mass.size, np.float32)
    alias_first, alias_second = np.empty(size * mass.size, np.int32), np.empty(size * mass.size, np.int32)
    reals, last_graph, n_used = np.empty(0, np.int64), -1, n_keys
    for at in range(start, stop):
        graph, row = at // n_queries, at % n_queries
        head, example, first_key = graph % heads, graph // heads, graph * n_keys
        if graph != last_graph:
            last_graph, n_used = graph, _end_of_keys(real_keys, example)
            reals = real_keys[example].nonzero()[0]
            part, weight = key_part[first_key : first_key + n_used], key_weight[first_key : first_key + n_used]
            _fill_pair_tables(blocks[head], part, weight, first, members, keep, alias, mass)
            _fill_part_tables(blocks[head], mass, to_first, keep_first, alias_first, keep_second, alias_second)
        before = end
        if queries[example, row]:
            n_found = _draw_row_crossed(
                query_part, query_weight, at, blocks, rates, ends, to_first, keep_first, alias_first, keep_second,
                alias_second, first, members, keep, alias, key_part, key_weight, first_key, reals, extra, seed, row,
                head, example + first_example, n_used, found,
            )  # fmt: skip
            drawn, end = _add_row(drawn, end, found, n_found, row, reach, real_keys[example])
        degrees[at] = end - before
    return drawn[:end]
