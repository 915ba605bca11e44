"""Bounds of edge probabilities that need no product T_i · K_j for any pair."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from torch import Tensor

from sbmt.kernels.cpu.threads.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import RateFactors


class Model(NamedTuple):
    """A block model as arrays; queries and keys are flattened over (example, head, token)."""

    query: np.ndarray  # rates T = Q̂ S, (graphs · n_queries, k)
    key: np.ndarray  # memberships K, (graphs · n_keys, k)
    is_real_query: np.ndarray  # (batch, n_queries)
    real: np.ndarray  # (batch, n_keys), the numbers of the real keys before those of padding
    n_real: np.ndarray  # (batch,)
    heads: int
    exploration: float
    is_poisson: bool


class KeyBounds(NamedTuple):
    """Summaries of the keys' memberships."""

    largest: np.ndarray  # M, each cluster's largest membership, (graphs, k)
    total: np.ndarray  # each cluster's summed membership, (graphs, k)
    at_least: np.ndarray  # l of l_j M ≤ K_j ≤ b_j M, (graphs · n_keys,)
    at_most: np.ndarray  # b


class RowBounds(NamedTuple):
    """Summaries of the rows' rates, each (graphs · n_queries,)."""

    most: np.ndarray  # T_i · M
    upper: np.ndarray  # at least every probability of the row
    expected: np.ndarray  # the sum of the rates


def as_model(factors: RateFactors) -> Model:
    """The arrays of rate factors."""
    rates, key, query_mask, key_mask, exploration, is_poisson = factors
    shape = *rates.shape[:3], key.shape[2]
    query, flat_key = (t.flatten(0, 2).contiguous().numpy() for t in (rates, key))
    real = real_tokens(shape, query_mask, key_mask)
    return Model(query, flat_key, *real, rates.shape[1], exploration, is_poisson)


def real_tokens(
    shape: tuple[int, int, int, int], query_mask: Tensor | None, key_mask: Tensor | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``is_real_query``, ``real`` and ``n_real`` of a :class:`Model`."""
    batch, _, n_queries, n_keys = shape
    is_real_query, real, n_real = _without_padding(batch, n_queries, n_keys)
    if query_mask is not None:
        is_real_query = query_mask.contiguous().numpy()
    if key_mask is not None:
        is_real = key_mask.numpy()
        real, n_real = np.argsort(~is_real, axis=1, kind="stable").astype(np.int32), is_real.sum(1)
    return is_real_query, real, n_real


@lru_cache(4)
def _without_padding(batch: int, n_queries: int, n_keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What nobody changes."""
    real = np.arange(n_keys, dtype=np.int32)[None].repeat(batch, 0)
    return all_real(batch, n_queries), real, np.full(batch, n_keys)


@lru_cache(8)
def all_real(batch: int, n: int) -> np.ndarray:
    """A mask that hides nothing, likewise."""
    return np.ones((batch, n), np.bool_)


def bound_keys(model: Model) -> KeyBounds:
    """Cost: O(n k)."""
    n_keys, n_clusters = model.real.shape[1], model.key.shape[1]
    n_graphs = len(model.real) * model.heads
    largest, total = (np.empty((n_graphs, n_clusters)) for _ in range(2))
    in_parallel(summarise_clusters, equal_parts(n_graphs, n_keys * n_clusters), model, largest, total)
    dtype = model.key.dtype
    has_inverse = largest >= np.finfo(dtype).tiny  # below it 1 / largest overflows
    inverse = np.divide(1.0, largest, out=np.zeros_like(largest), where=has_inverse).astype(dtype)
    bounds = KeyBounds(largest, total, *(np.empty(len(model.key), dtype) for _ in range(2)))
    in_parallel(compare_keys, equal_parts(len(model.key), 4 * n_clusters), model, inverse, margin(model.key), bounds)
    return bounds


def bound_rows(model: Model, keys: KeyBounds) -> RowBounds:
    """Cost: O(n k)."""
    n_rows, n_clusters = model.query.shape
    bounds = RowBounds(*(np.empty(n_rows) for _ in range(3)))
    in_parallel(bound_each_row, equal_parts(n_rows, 3 * n_clusters), model, keys, margin(model.key), bounds)
    return bounds


def margin(key: np.ndarray) -> float:
    """By how much, relatively, bounds are widened for rounding."""
    return 4 * key.shape[1] * float(np.finfo(key.dtype).eps)


@kernel
def summarise_clusters(start, stop, model, largest, total):
    """Finds each cluster's largest and summed membership over the real keys of graphs start … stop."""
    key, real, n_real, heads = model.key, model.real, model.n_real, model.heads
    n_keys = real.shape[1]
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
def compare_keys(start, stop, model, inverse, margin, bounds):
    """Finds the shares of the clusters' largest memberships that bound each key's: l_j M ≤ K_j ≤ b_j M in every entry.

    It follows that l_j (T_i · M) ≤ T_i · K_j ≤ b_j (T_i · M) for every row. ``inverse`` is 1 / M.
    """
    key, n_keys = model.key, model.real.shape[1]
    at_least, at_most = bounds.at_least, bounds.at_most
    for row in range(start, stop):
        graph = row // n_keys
        a, b = key[row, 0] * inverse[graph, 0], key[row, 0] * inverse[graph, 0]
        for v in range(key.shape[1]):
            share = key[row, v] * inverse[graph, v]
            a = share if share < a else a
            b = share if share > b else b
        at_least[row], at_most[row] = a * (1.0 - margin), b * (1.0 + margin)


@kernel
def bound_each_row(start, stop, model, keys, margin, bounds):
    """Fills rows start … stop of ``bounds``."""
    query, _, is_real, _, n_real, heads, exploration, is_poisson = model
    largest, total, n_queries = keys.largest, keys.total, is_real.shape[1]
    most, upper, expected = bounds
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
