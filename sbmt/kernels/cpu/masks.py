"""CSR masks: in the order of their keys, merged, with a window, one for many heads; and which edges are in a window."""

from sbmt.kernels.cpu.toolchain import inlined, kernel


@kernel
def transpose_graphs(start, stop, mask, by_key):
    """Fills ``by_key`` for graphs start … stop.

    It is a counting sort: it counts the edges of each column, adds the counts up to the columns' starts, and puts each
    edge in turn at the next free place of its column.
    """
    row_ptr, keys, n_queries, n_keys = mask
    column_ptr, queries, positions = by_key
    for graph in range(start, stop):
        base = row_ptr[graph * n_queries]
        end = row_ptr[(graph + 1) * n_queries]
        to = column_ptr[graph * n_keys : (graph + 1) * n_keys]
        to[:] = 0
        for e in range(base, end):
            to[keys[e]] += 1
        position = base
        for j in range(n_keys):  # counts become starts
            count = to[j]
            to[j] = position
            position += count
        for row in range(graph * n_queries, (graph + 1) * n_queries):
            for e in range(row_ptr[row], row_ptr[row + 1]):
                place = to[keys[e]]
                to[keys[e]] = place + 1
                queries[place] = row - graph * n_queries
                positions[place] = e - base
        for j in range(n_keys - 1, 0, -1):  # each start has moved to its end, which is the next one's start
            to[j] = to[j - 1]
        to[0] = base


@kernel
def count_union(start, stop, first_ptr, first_keys, second_ptr, second_keys, counts):
    """Counts the keys that each of rows start … stop has in either mask."""
    for row in range(start, stop):
        a, a_end, b, b_end = first_ptr[row], first_ptr[row + 1], second_ptr[row], second_ptr[row + 1]
        count = a_end - a + b_end - b
        while a < a_end and b < b_end:
            x, y = first_keys[a], second_keys[b]
            a += x <= y
            b += y <= x
            count -= x == y
        counts[row] = count


@kernel
def fill_union(start, stop, first_ptr, first_keys, second_ptr, second_keys, row_ptr, keys):
    """Writes the keys that each of rows start … stop has in either mask, in ascending order."""
    for row in range(start, stop):
        a, a_end, b, b_end = first_ptr[row], first_ptr[row + 1], second_ptr[row], second_ptr[row + 1]
        for to in range(row_ptr[row], row_ptr[row + 1]):
            if b == b_end or (a < a_end and first_keys[a] <= second_keys[b]):
                keys[to] = first_keys[a]
                b += b < b_end and second_keys[b] == first_keys[a]
                a += 1
            else:
                keys[to] = second_keys[b]
                b += 1


@inlined
def first_from(key, keys, start, stop):
    """The first place from start to stop whose key is not below ``key``, or stop; keys ascend."""
    while start < stop:
        middle = (start + stop) >> 1
        is_below = keys[middle] < key
        start, stop = (middle + 1 if is_below else start), (stop if is_below else middle)
    return start


@inlined
def near(row, mask, reach):
    """The edges of a row between tokens at most ``reach`` places apart, which lie side by side."""
    row_ptr, keys, n_queries, _ = mask
    query, first, last = row % n_queries, row_ptr[row], row_ptr[row + 1]
    end = first = first_from(query - reach, keys, first, last)
    while end < last and keys[end] <= query + reach:
        end += 1
    return range(first, end)


@kernel
def mark_near(start, stop, mask, reach, is_near):
    """Says of each edge of rows start … stop whether it joins tokens at most ``reach`` places apart."""
    is_near[mask.row_ptr[start] : mask.row_ptr[stop]] = False
    for row in range(start, stop):
        for e in near(row, mask, reach):
            is_near[e] = True


@kernel
def count_with_window(start, stop, mask, reach, heads, real, counts):
    """Counts the keys of each of rows start … stop, and those of real ones at most ``reach`` places away that it lacks.

    ``real`` says which tokens are real, as two arrays ``(batch, n)``.
    """
    row_ptr, _, n_queries, n_keys = mask
    is_real_query, is_real_key = real
    for row in range(start, stop):
        example, query = row // n_queries // heads, row % n_queries
        count = row_ptr[row + 1] - row_ptr[row]
        if is_real_query[example, query]:
            count -= len(near(row, mask, reach))
            for key in range(max(query - reach, 0), min(query + reach + 1, n_keys)):
                count += is_real_key[example, key]
        counts[row] = count


@kernel
def fill_with_window(start, stop, mask, reach, heads, real, new_ptr, new_keys):
    """Writes these keys in ascending order."""
    row_ptr, keys, n_queries, n_keys = mask
    is_real_query, is_real_key = real
    for row in range(start, stop):
        example, query, to = row // n_queries // heads, row % n_queries, new_ptr[row]
        e, end = row_ptr[row], row_ptr[row + 1]
        if is_real_query[example, query]:
            while e < end and keys[e] < query - reach:
                new_keys[to] = keys[e]
                e, to = e + 1, to + 1
            for key in range(max(query - reach, 0), min(query + reach + 1, n_keys)):
                if is_real_key[example, key]:
                    new_keys[to] = key
                    to += 1
            while e < end and keys[e] <= query + reach:
                e += 1
        while e < end:
            new_keys[to] = keys[e]
            e, to = e + 1, to + 1


@kernel
def repeat_graphs(start, stop, mask, heads, new_ptr, new_keys, source):
    """Writes copies start … stop of the graphs, each of which has ``heads``; and which edge each is a copy of."""
    row_ptr, keys, n_queries, _ = mask
    for copy in range(start, stop):
        row = copy // heads * n_queries
        first, last = row_ptr[row], row_ptr[row + n_queries]
        to = heads * first + copy % heads * (last - first)
        for i in range(n_queries):
            new_ptr[copy * n_queries + i] = to + row_ptr[row + i] - first
        for i in range(last - first):
            new_keys[to + i], source[to + i] = keys[first + i], first + i
