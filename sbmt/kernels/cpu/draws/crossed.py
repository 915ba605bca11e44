"""Drawing edges where clusters are pairs of parts: from the row to a pair, from there to a key."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu.crossed import rate_of_key
from sbmt.kernels.cpu.draws.bounds import real_tokens
from sbmt.kernels.cpu.draws.candidates import (
    CANDIDATE,
    GAPS,
    WORD,
    Stream,
    first_above,
    make_room,
    new_scratch,
    sort_distinct,
    word_at,
)
from sbmt.kernels.cpu.draws.rows import toss
from sbmt.kernels.cpu.draws.sample import join
from sbmt.kernels.cpu.launch import active_parts
from sbmt.kernels.cpu.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.philox import BATCH, fill_exponentials
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import CrossedFactors, as_arrays

_LAST = 4294967295  # random words stay below it
_ROOM = 1 << 15  # keys that are drawn into one array
_WORK = 512  # roughly, per row
_DENSE = 0.5  # points per key from which on a row is drawn key by key


class Members(NamedTuple):
    """The keys of each pair v of parts of a graph: ``key[first[graph, v] : first[graph, v + 1]]``, ascending.

    ``cumulative`` sums their weights up in units of 2⁻³² of the ``total``, as
    :class:`~sbmt.kernels.cpu.draws.tables.Tables` does. A group's pairs come after those of the groups before it; those
    of a part of its second partition lie side by side.
    """

    first: np.ndarray  # (graphs, k + 1)
    key: np.ndarray
    cumulative: np.ndarray
    total: np.ndarray  # (graphs, k)


def sample_crossed(
    factors: CrossedFactors,
    shape: tuple[int, int, int, int],
    masks: tuple[Tensor | None, Tensor | None],
    exploration: float,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    r"""``row_ptr`` and ``keys`` of a mask whose edges have probability $1 - e^{-(r_{ij} + \delta)}$, independently.

    A row's Poisson points lie on a line on which a pair (a, b) of parts is $T_{ia} T_{ib} \sum_j \hat K_{ja} \hat
    K_{jb}$ long, and exploration $\delta n$; each names a key in proportion to its membership, and keys named twice are
    merged. There is nothing to thin, and no product with any key.

    Cost: O(n g (a s + a²) + g s³ + points · (s + log n)), for g groups of partitions into s parts, a of them active.
    """
    batch, heads, n_queries, n_keys = shape
    model, n_graphs, active = as_arrays(factors), batch * heads, active_parts(factors)
    n_groups, size = factors.blocks.shape[1] // 2, factors.blocks.shape[2]
    n_entries = n_keys * n_groups * len(active) ** 2
    first = np.empty((n_graphs, n_groups * size**2 + 1), np.int64)
    room = np.empty(n_graphs * n_entries, np.int32), np.empty(n_graphs * n_entries, np.uint32)
    members = Members(first, *room, np.empty((n_graphs, n_groups * size**2)))
    in_parallel(list_members, equal_parts(n_graphs, 4 * n_entries), model, n_keys, members)
    reach = _reach(factors, members).numpy()
    real = real_tokens(shape, *masks)
    counts = np.empty(n_graphs * n_queries, np.int64)

    def draw(start: int, stop: int) -> list[np.ndarray]:
        pieces = []
        while start < stop:
            out = np.empty(max(_ROOM, n_keys), np.int32)
            given = start, stop, active, model, members, reach, real, exploration, seed, first_example
            start, found = draw_rows(*given, counts, out)
            pieces.append(out[:found])
        return pieces

    return join(counts, [piece for part in in_parallel(draw, equal_parts(counts.size, _WORK)) for piece in part])


def _reach(factors: CrossedFactors, members: Members) -> Tensor:
    r"""M = S Σ, ``(graphs, g, s, s)``: S of a group's first partition, Σ how much keys are in each pair, transposed.

    A part c of the second partition, with all parts of the first, is $T_{ic} \sum_a \hat Q_{ia} M_{ac}$ long on the
    line of row i.
    """
    heads, _, size, _ = factors.blocks.shape
    totals = torch.from_numpy(members.total).view(-1, heads, factors.blocks.shape[1] // 2, size, size)
    return (factors.blocks[:, 0::2].double() @ totals.mT).flatten(0, 1)


@kernel
def list_members(start, stop, model, n_keys, members):
    """Lists the members of graphs start … stop by counting: of each pair of parts first how many, then which."""
    part, weight, size = model.key_part, model.key_weight, model.blocks.shape[2]
    first, key, cumulative, total = members
    n_groups, n_pairs = model.blocks.shape[1] // 2, total.shape[1]
    n_active = part.shape[1] // (2 * n_groups)
    n_entries = n_groups * n_active**2
    pair, share = np.empty(n_entries, np.int64), np.empty(n_entries)
    for graph in range(start, stop):
        begin, sums = first[graph], total[graph]
        begin[:] = 0
        sums[:] = 0.0
        for j in range(graph * n_keys, (graph + 1) * n_keys):
            _pairs_of(part, weight, j, size, n_active, pair, share)
            for i in range(n_entries):
                begin[pair[i]] += share[i] > 0
                sums[pair[i]] += share[i]
        place = graph * n_keys * n_entries
        for v in range(n_pairs):  # counts become starts
            count = begin[v]
            begin[v] = place
            place += count
        begin[n_pairs] = place
        so_far = np.zeros(n_pairs)
        for j in range(graph * n_keys, (graph + 1) * n_keys):
            _pairs_of(part, weight, j, size, n_active, pair, share)
            for i in range(n_entries):
                v = pair[i]
                if share[i] > 0:
                    so_far[v] += share[i]
                    key[begin[v]] = j - graph * n_keys
                    cumulative[begin[v]] = np.uint32(min(so_far[v] / sums[v] * WORD + 0.5, _LAST))
                    begin[v] += 1
        for v in range(n_pairs - 1, -1, -1):  # each start has moved to its end, which is the next one's start
            if begin[v] > (begin[v - 1] if v else graph * n_keys * n_entries):
                cumulative[begin[v] - 1] = np.uint32(_LAST)
            begin[v] = begin[v - 1] if v else graph * n_keys * n_entries


@kernel
def _pairs_of(part, weight, key, size, n_active, pair, share):
    """The pairs of parts that a key belongs to, and how much."""
    i = 0
    for group in range(part.shape[1] // (2 * n_active)):
        one = 2 * group * n_active
        for s in range(one, one + n_active):
            for t in range(one + n_active, one + 2 * n_active):
                a, b = part[key, s] - 2 * group * size, part[key, t] - (2 * group + 1) * size
                pair[i], share[i] = (group * size + b) * size + a, np.float64(weight[key, s]) * weight[key, t]
                i += 1


@kernel
def draw_rows(start, stop, active, model, members, reach, real, exploration, seed, first_example, counts, out):
    """Draws rows start … stop into ``out`` until it is full; returns which row is next, and how many keys there are."""
    heads, _, size, _ = model.blocks.shape
    is_real_query, real_keys, n_real = real
    n_queries, n_keys = is_real_query.shape[1], real_keys.shape[1]
    scratch = new_scratch(n_keys, reach.shape[1] * size)
    coins, line, proposed = np.empty(n_keys + 4 * BATCH), scratch.line, scratch.proposed
    end = 0
    for row in range(start, stop):
        graph = row // n_queries
        example, head = graph // heads, graph % heads
        counts[row] = 0
        if not is_real_query[example, row % n_queries]:
            continue
        keys = real_keys[example, : n_real[example]]
        _lay_out(row, graph, active, model, reach, line)
        line[-1] = exploration * n_real[example]
        stream = Stream(seed, row % n_queries, head, example + first_example)
        if line.sum() < _DENSE * n_real[example]:
            count = _walk_pairs(keys, model.rates, row, size, graph, members, stream, scratch)
        else:
            toss(keys.size, stream, scratch.words, coins)
            count = _visit(keys, active, model, row, graph * n_keys, exploration, coins, proposed)
        if end + count > out.shape[0]:
            return row, end
        out[end : end + count] = proposed[:count]
        counts[row] = count
        end += count
    return stop, end


@kernel
def _lay_out(row, graph, active, model, reach, line):
    """Writes how long each part of a group's second partition is, with all parts of its first."""
    part, weight, size = model.query_part, model.query_weight, model.blocks.shape[2]
    for g in range(reach.shape[1]):
        first, at, middle = 2 * g * len(active), 2 * g * size, (2 * g + 1) * size
        for c in range(size):
            line[g * size + c] = 0.0
        for s in range(first, first + len(active)):
            a, w = part[row, s] - at, weight[row, s]
            for c in range(size):
                line[g * size + c] += w * reach[graph, g, a, c]
        for c in range(size):
            line[g * size + c] *= model.rates[row, middle + c]


@kernel
def _walk_pairs(real, rates, row, size, graph, members, stream, scratch):
    """Proposes keys hit by Poisson points of rate 1 on the line, each once; returns how many.

    A key's piece of a pair needs no second point: after a hit the walk goes on where the piece ends, as if it had begun
    there, since gaps between points have no memory.
    """
    line, hits, gaps, most = scratch.line, scratch.hits, scratch.gaps, scratch.hits.shape[0]
    first, member, cumulative, total = members
    block = _next_gaps(0, scratch, stream)
    left, used, n_hits, at = gaps[0], 1, 0, 0  # ``left``: from here to the next point
    n_groups, n_real = line.shape[0] // size, real.shape[0]
    for g in range(n_groups):
        for b in range(size):
            if left >= line[at]:
                left -= line[at]
                at += 1
                continue
            of_second = rates[row, (2 * g + 1) * size + b]
            for a in range(size):
                v = at * size + a
                length = rates[row, 2 * g * size + a] * of_second * total[graph, v]
                if left >= length:
                    left -= length
                    continue
                begin, n_members = first[graph, v], first[graph, v + 1] - first[graph, v]
                while left < length:
                    place = first_above(cumulative, begin, n_members, word_at(left, length))
                    n_hits = make_room(n_hits, 1, scratch) if n_hits == most else n_hits
                    hits[n_hits] = member[begin + place]
                    n_hits += 1
                    is_last = place == n_members - 1
                    piece_ends = length if is_last else length * (cumulative[begin + place] / WORD)
                    if used == GAPS:
                        block, used = _next_gaps(block, scratch, stream), 0
                    left = piece_ends + gaps[used]
                    used += 1
                left -= length
            at += 1
    piece = line[at] / n_real  # exploration's
    while left < line[at]:
        place = min(np.int64(left / piece), n_real - 1)
        n_hits = make_room(n_hits, 1, scratch) if n_hits == most else n_hits
        hits[n_hits] = real[place]
        n_hits += 1
        if used == GAPS:
            block, used = _next_gaps(block, scratch, stream), 0
        left = (place + 1) * piece + gaps[used]
        used += 1
    return sort_distinct(hits[:n_hits], scratch.bitmap, scratch.proposed)


@kernel
def _next_gaps(block, scratch, stream):
    """Fills ``gaps`` with the exponential numbers of a row's stream from this block on; returns the next block."""
    seed, row, head, example = stream
    fill_exponentials(scratch.gaps, scratch.words, seed, block, row, head + CANDIDATE, example)
    return block + BATCH


@kernel
def _visit(keys, active, model, row, offset, exploration, coins, found):
    """Writes the keys whose coin is below their probability, and returns how many there are."""
    rates, part, weight, count = model.rates, model.key_part, model.key_weight, 0
    for i in range(keys.size):
        rate = exploration + rate_of_key(rates, row, active, part, weight, offset + keys[i])
        found[count] = keys[i]
        count += coins[i] < -math.expm1(-rate)
    return count
