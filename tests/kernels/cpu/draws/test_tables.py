"""A word names the key that a plain search of the cumulative table finds, and keys without weight are never named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbmt.kernels.cpu.draws.tables import COLUMNS, Tables, build_tables

WORDS = 1 << 32
LAST = WORDS - 2  # the largest word that is ever looked up


def build(key, start=0, stop=None, excess=0.0):
    """``cumulative`` and ``guide`` of the given graphs × keys × clusters, or of some blocks of columns alone.

    The columns' totals may exceed their sums, as if by rounding.
    """
    n_graphs, n_keys, n_clusters = key.shape
    graphs = np.arange(n_graphs)
    blocks = n_graphs * -(-n_clusters // COLUMNS)
    cumulative = np.zeros((n_graphs, n_clusters, n_keys + COLUMNS), np.uint32)
    guide = np.zeros((n_graphs, n_clusters, 1 << (n_keys - 1).bit_length()), np.uint64)
    flat, total = key.reshape(-1, n_clusters), key.astype(np.float64).sum(1) * (1 + excess)
    tables = Tables(graphs, cumulative, guide)
    build_tables(start, blocks if stop is None else stop, graphs, flat, total, tables)
    return cumulative[..., :n_keys].astype(np.int64), guide


def look_up(word, cumulative, guide):
    """The documented way to read one column: the guide, and where it says so, the table from there on."""
    entry = int(guide[word * guide.size // WORDS])
    upper, end = divmod(entry, WORDS)
    key = upper // 2
    if upper % 2 == 0:
        return key + (word >= end)
    while cumulative[key] <= word:
        key += 1
    return key


def interesting_words(cumulative, n_guide, seed=0):
    """Where keys and stretches of the guide begin and end, and some in between."""
    edges = np.concatenate([cumulative, np.arange(n_guide + 1) * (WORDS // n_guide)])
    random = np.random.default_rng(seed).integers(0, LAST + 1, 200)
    return np.unique(np.concatenate([edges - 1, edges, edges + 1, random]).clip(0, LAST))


def assert_names_keys(weights, excess=0.0):
    """``weights``: keys × clusters."""
    cumulative, guide = (table[0] for table in build(weights[None], excess=excess))
    for v in np.flatnonzero(weights.sum(0) > 0):
        words = interesting_words(cumulative[v], guide.shape[1])
        found = np.array([look_up(int(word), cumulative[v], guide[v]) for word in words])
        assert np.array_equal(found, np.searchsorted(cumulative[v], words, side="right"))
        assert found.max() < len(weights) and (weights[found, v] > 0).all()


memberships = st.one_of(st.just(0.0), st.floats(0, 1), st.sampled_from([1e-12, 1e-30, 0.5, 1.0]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.data())
def test_every_word_names_the_key_whose_interval_it_hits(dtype, data):
    n_keys, n_clusters = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 2))
    size = n_keys * n_clusters
    weights = data.draw(st.lists(memberships, min_size=size, max_size=size))
    assert_names_keys(np.array(weights, dtype).reshape(n_keys, n_clusters))


LARGE = {
    "all alike": lambda n: np.ones(n),
    "one heavy": lambda n: np.where(np.arange(n) == n // 2, 1.0, 1e-6),
    "one alone": lambda n: np.where(np.arange(n) == n // 3, 0.7, 0.0),
    "the first alone": lambda n: np.where(np.arange(n) == 0, 0.7, 0.0),
    "the last alone": lambda n: np.where(np.arange(n) == n - 1, 0.7, 0.0),
    "half of them zero": lambda n: np.arange(n) % 2 * 0.3,
    "a crowd at the end": lambda n: np.where(np.arange(n) < n // 2, 1.0, 1e-7),
    "over many magnitudes": lambda n: 2.0 ** -np.arange(n),
    "random": lambda n: np.random.default_rng(n).random(n) ** 8,
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(("dtype", "excess"), [(np.float32, 0.0), (np.float64, 1e-9), (np.float64, 1e-5)])
def test_so_they_do_among_many_keys(name, dtype, excess):
    """Words that rounding leaves to no key go to the last key of positive weight."""
    for n_keys in (1, 2, 31, 32, 33, 500):
        assert_names_keys(LARGE[name](n_keys)[:, None].astype(dtype), excess)


@pytest.mark.parametrize("name", ["all alike", "one heavy", "half of them zero", "random"])
def test_keys_own_words_in_proportion_to_their_weight(name):
    weights = LARGE[name](100)
    cumulative, _ = build(weights[None, :, None])
    owned = np.diff(cumulative[0, 0], prepend=0)
    np.testing.assert_allclose(owned / WORDS, weights / weights.sum(), rtol=0, atol=2 / WORDS)


@pytest.mark.parametrize("n_clusters", [1, COLUMNS - 1, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 3])
def test_columns_may_be_built_in_parts_and_stand_for_themselves(n_clusters):
    key = np.random.default_rng(0).random((3, 9, n_clusters), np.float32)
    whole = build(key)
    blocks = 3 * -(-n_clusters // COLUMNS)
    parts = [build(key, start=block, stop=block + 1) for block in range(blocks)]
    for i in range(2):
        assert np.array_equal(sum(part[i] for part in parts), whole[i])
    alone = build(key[1:2, :, n_clusters - 1 :])
    assert all(np.array_equal(a[0, 0], b[1, -1]) for a, b in zip(alone, whole, strict=True))


def test_tables_are_of_the_graphs_that_were_asked_for():
    key = np.random.default_rng(0).random((3, 5, 2))
    cumulative, guide = np.zeros((2, 2, 5 + COLUMNS), np.uint32), np.zeros((2, 2, 8), np.uint64)
    graphs = np.array([2, 0])
    build_tables(0, 2, graphs, key.reshape(-1, 2), key.sum(1), Tables(graphs, cumulative, guide))
    expected = build(key)
    assert np.array_equal(cumulative[..., :5], expected[0][[2, 0]]) and np.array_equal(guide, expected[1][[2, 0]])
