"""Both ways to propose keys, and the tables that name them, against NumPy on the same random numbers."""

import numpy as np
import pytest

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.cpu.draws.candidates import (
    GAPS,
    Stream,
    _name_keys,
    new_scratch,
    skip_through,
    walk_clusters,
)
from sbmt.kernels.cpu.draws.lookup_tables import COLUMNS, Tables, build_tables
from sbmt.kernels.cpu.philox import BATCH, fill_exponentials

HEAD, EXAMPLE = 2, 3


def exponentials(n, seed=0, row=1):
    """The first ``n`` or more variates of the candidates' stream."""
    out, scratch = np.empty(GAPS), np.empty((4, BATCH), np.uint32)
    parts = []
    for block in range(0, n, BATCH):
        fill_exponentials(out, scratch, seed, block, row, HEAD + Purpose.CANDIDATE * MAX_HEADS, EXAMPLE)
        parts.append(out.copy())
    return np.concatenate(parts)


def tables(weights, start=0, stop=None, excess=0.0):
    """``cumulative`` and ``guide`` of graphs × keys × clusters, or of some blocks of columns alone.

    The columns' totals may exceed their sums, as if by rounding.
    """
    n_graphs, n_keys, n_clusters = weights.shape
    cumulative = np.zeros((n_graphs, n_clusters, n_keys + COLUMNS), np.uint32)
    guide = np.zeros((n_graphs, n_clusters, 1 << (n_keys - 1).bit_length()), np.uint64)
    total, graphs = weights.astype(np.float64).sum(1) * (1 + excess), np.arange(n_graphs)
    stop = n_graphs * -(-n_clusters // COLUMNS) if stop is None else stop
    build_tables(start, stop, graphs, weights.reshape(-1, n_clusters), total, Tables(graphs, cumulative, guide))
    return cumulative, guide


def guarded_scratch(n_keys, n_clusters=1):
    """Scratch for so many keys, and the room for proposed keys with a guard behind it."""
    room = np.full(n_keys + 1, -7, np.int32)
    return new_scratch(n_keys, n_clusters)._replace(proposed=room[:-1]), room


def skip(upper, real, seed=0, row=1):
    """``skip_through`` in exactly the room that all real keys take."""
    real = np.asarray(real, np.int32)
    scratch, room = guarded_scratch(real.size)
    count = skip_through(upper, real, Stream(seed, row, HEAD, EXAMPLE), scratch)
    assert room[-1] == -7
    return room[:count]


def walk(rates, weights, boost=1.0, extra=0.0, n_real=None, seed=0, row=1):
    """``walk_clusters`` for clusters of the given rates; ``weights``: keys × clusters, of which the first are real."""
    n_keys, n_clusters = weights.shape
    real = np.arange(n_keys if n_real is None else n_real, dtype=np.int32)
    scratch, room = guarded_scratch(n_keys, n_clusters)
    scratch.line[:] = [*(boost * np.asarray(rates, np.float64) * weights.sum(0)), extra]
    count = walk_clusters(
        real, *(table[0] for table in tables(weights[None])), Stream(seed, row, HEAD, EXAMPLE), scratch
    )
    assert room[-1] == -7 and not scratch.bitmap.any()
    return room[:count]


@pytest.mark.parametrize("upper", [0.02, 0.5, 0.97])
def test_skipping_takes_geometric_steps(upper):
    real = np.arange(700) * 2
    steps = 1 + np.floor(exponentials(1000) / -np.log1p(-upper)).astype(int)
    places = steps.cumsum() - 1
    assert np.array_equal(skip(upper, real), real[places[places < 700]])


@pytest.mark.parametrize("n_real", [0, 1, GAPS, GAPS + 1, 1000])
def test_skipping_with_certainty_proposes_every_real_key(n_real):
    real = np.arange(n_real) * 3
    assert np.array_equal(skip(1.0, real), real)


def test_tiny_probabilities_and_empty_lines_propose_nothing():
    for upper in (1e-12, 1e-100, 5e-324):
        assert skip(upper, np.arange(1000)).size == 0
    assert walk([0.0, 0.0], np.ones((5, 2))).size == 0
    assert walk([1.0, 1.0], np.zeros((5, 2))).size == 0
    assert walk([1.0], np.ones((5, 1)), boost=1e-12).size == 0


@pytest.mark.parametrize(("n_keys", "n_clusters"), [(1, 1), (64, 3), (300, 17)])
@pytest.mark.parametrize("boost", [0.3, 5.0])
def test_walking_names_the_keys_at_the_points_of_a_poisson_process(n_keys, n_clusters, boost):
    """Point by point: the cluster it falls into, the place in it as a word, and the key that owns the word."""
    rng = np.random.default_rng(n_keys)
    weights, rates = rng.random((n_keys, n_clusters)) ** 9, rng.random(n_clusters) / n_clusters
    rates[n_clusters // 2 :: 3], weights[::3, 0], n_real = 0.0, 0.0, n_keys - n_keys // 5
    weights[n_real:] = 0.0
    line = np.append(boost * rates * weights.sum(0), 2.0)
    ends, points = line.cumsum(), exponentials(4000).cumsum()
    points = points[points < ends[-1]]
    cluster = np.searchsorted(ends, points, side="right")
    words = np.floor((points - (ends - line)[cluster]) / line[cluster] * 2.0**32).astype(np.int64)
    cumulative = tables(weights[None])[0][0, :, :n_keys].astype(np.int64)
    keys = [
        word * n_real >> 32 if v == n_clusters else np.searchsorted(cumulative[v], word, side="right")
        for v, word in zip(cluster, words, strict=True)
    ]
    assert np.array_equal(walk(rates, weights, boost, extra=2.0, n_real=n_real), np.unique(keys))


@pytest.mark.parametrize("n_keys", [1, 65, 200])
def test_walking_a_long_line_proposes_every_key_of_weight(n_keys):
    """Each is missed with probability e⁻⁵⁰; there are far more points than keys, so they are merged on the way."""
    weights = np.zeros((n_keys, 3))
    weights[::2, 0], weights[1::3, 2] = 1.0, 0.5
    found = walk([1.0, 1.0, 1.0], weights, boost=100.0)
    assert np.array_equal(found, np.flatnonzero(weights.sum(1)))
    assert np.array_equal(walk([1.0, 0.0, 0.0], weights, boost=100.0), np.arange(n_keys)[::2])


@pytest.mark.parametrize(
    "propose", [lambda **a: skip(0.5, np.arange(300), **a), lambda **a: walk([0.7], np.ones((300, 1)), **a)]
)
def test_rows_and_seeds_have_streams_of_their_own(propose):
    found = [tuple(propose(row=row, seed=seed)) for row in (0, 1) for seed in (0, 1, 1 << 32, -1)]
    assert len(set(found)) == len(found)


# --- tables: each word names the key that a search of the cumulative table finds, and none without weight ---

WEIGHTS = {
    "all alike": lambda n: np.ones(n),
    "the first alone": lambda n: np.where(np.arange(n) == 0, 0.7, 0.0),
    "the last alone": lambda n: np.where(np.arange(n) == n - 1, 0.7, 0.0),
    "half of them zero": lambda n: np.arange(n) % 2 * 0.3,
    "a crowd at the end": lambda n: np.where(np.arange(n) < n // 2, 1.0, 1e-7),
    "over many magnitudes": lambda n: 2.0 ** -np.arange(n),
    "random": lambda n: np.random.default_rng(n).random(n) ** 8,
}


def name_keys(words, cumulative, guide):
    """The keys that words name in the only cluster: on a line 2³² long, the points are the words."""
    n_keys = cumulative.shape[1] - COLUMNS
    scratch, hits = new_scratch(n_keys, 1), np.full(words.size, -7, np.int32)
    scratch.line[:], scratch.ends[:] = [2.0**32, 0.0], [2.0**32, 2.0**32, np.inf, np.inf]
    real = np.arange(n_keys, dtype=np.int32)
    for start in range(0, words.size, GAPS):
        part = words[start : start + GAPS]
        scratch.points[: part.size], scratch.cluster[: part.size] = part, 0
        _name_keys(part.size, real, n_keys, cumulative, guide, scratch, hits[start:])
    return hits


@pytest.mark.parametrize("has_guide", [True, False])
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize(("dtype", "excess"), [(np.float32, 0.0), (np.float64, 1e-5)])
def test_each_word_names_its_owner_to_the_last(name, dtype, excess, has_guide):
    """Words at the borders between keys and stretches; those that rounding leaves over go to the last key of weight."""
    for n_keys in (1, 2, 32, 33, 500):
        weights = WEIGHTS[name](n_keys).astype(dtype)
        if not weights.any():
            continue
        cumulative, guide = (table[0] for table in tables(weights[None, :, None], excess=excess))
        owned = cumulative[0, :n_keys].astype(np.int64)
        borders = np.concatenate([owned, np.arange(guide.shape[1] + 1) * (2**32 // guide.shape[1])])
        words = np.unique(np.concatenate([borders - 1, borders, borders + 1]).clip(0, 2**32 - 2))
        found = name_keys(words, cumulative, guide if has_guide else guide[:, :0])
        assert np.array_equal(found, np.searchsorted(owned, words, side="right"))
        assert found.max() < n_keys and (weights[found] > 0).all()
        if not excess:
            shares = np.diff(owned, prepend=0) / 2**32
            np.testing.assert_allclose(shares, weights / weights.sum(dtype=np.float64), rtol=0, atol=2.0**-31)


@pytest.mark.parametrize("n_clusters", [1, COLUMNS, 2 * COLUMNS + 3])
def test_columns_may_be_built_in_parts_and_stand_for_themselves(n_clusters):
    key = np.random.default_rng(0).random((3, 9, n_clusters), np.float32)
    whole = tables(key)
    parts = [tables(key, start=block, stop=block + 1) for block in range(3 * -(-n_clusters // COLUMNS))]
    for i in range(2):
        assert np.array_equal(sum(part[i] for part in parts), whole[i])
    alone = tables(key[1:2, :, n_clusters - 1 :])
    assert all(np.array_equal(a[0, 0], b[1, -1]) for a, b in zip(alone, whole, strict=True))


def test_tables_are_of_the_graphs_that_were_asked_for():
    key = np.random.default_rng(0).random((3, 5, 2))
    cumulative, guide = np.zeros((2, 2, 5 + COLUMNS), np.uint32), np.zeros((2, 2, 8), np.uint64)
    graphs = np.array([2, 0])
    build_tables(0, 2, graphs, key.reshape(-1, 2), key.sum(1), Tables(graphs, cumulative, guide))
    for found, expected in zip((cumulative, guide), tables(key), strict=True):
        assert np.array_equal(found, expected[[2, 0]])
