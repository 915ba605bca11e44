"""The exact law on the CPU, by compiled kernels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbmt.block_model.link import MAX_BOOST
from sbmt.block_model.model import BlockModel
from sbmt.graph.edges import EdgeList

# Nanoseconds per step, hit, multiplication, cluster of a row and entry of a table; only their ratios matter.
STEP, HIT, PRODUCT, CLUSTER, ENTRY = 4.0, 20.0, 0.08, 1.0, 2.5
_TABLE_ENTRIES = 1 << 20  # of the graphs drawn at a time
_SPARE = 64.0, 8.0  # room beyond the expected number of edges: so many, and so many standard deviations


def sample_compiled(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    r"""Draws every row by the cheaper of two ways, which have the same law.

    *Skipping*: with $\bar p_i \ge p_{ij}$ over row i, geometric steps visit each key with probability $\bar p_i$, and a
    visited key is kept with probability $p_{ij} / \bar p_i$. With M the clusters' largest memberships and
    $l_j M \le \hat K_j \le b_j M$, the rate lies between $l_j\, T_i M$ and $b_j\, T_i M$, so that the product
    $T_i \hat K_j$ is formed only where the coin falls between the two. Nothing is wasted while memberships are alike,
    up to a factor per token, nor on a row whose edges are all certain.

    *Clusters*: Poisson points along the row's clusters, each of which names a key by its place; they are merged and
    thinned as in :func:`~sbmt.samplers.exact.sample_exact`. The cost follows the edges however unlike the memberships
    are. It takes a table of all key memberships, so graphs use it where that pays.

    Both read only the streams of their row: edges depend neither on the threads nor on the batch.

    Cost: O(n k²) for the rates, O(n k) for bounds and tables, O(k) for each edge that is in doubt. Rows are drawn once,
    into room for what is expected of them, and copied when the number of all edges is known.
    """
    rates, key = (t.detach() for t in block_model.rate_factors())
    masks = block_model.query_mask, block_model.key_mask
    is_poisson = block_model.link.is_poisson
    row_ptr, keys = _sample(rates, key, *masks, exploration, is_poisson, seed, first_example)
    return EdgeList(row_ptr, keys, block_model.shape, *masks)


@torch.library.custom_op("sbmt::sample_exact", mutates_args=(), device_types="cpu")
def _sample(
    rates: Tensor,
    key: Tensor,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    is_poisson: bool,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys``."""
    from sbmt.kernels.cpu.draws import draw_rows
    from sbmt.kernels.cpu.parallel import balanced_parts, in_parallel

    work = _Work.of(rates, key, query_mask, key_mask, exploration, is_poisson)
    most, upper, expected = work.bound_rows()
    boost = np.ones_like(upper) if work.is_poisson else _boost(upper)
    by_clusters = work.prefers_clusters(upper, expected, boost)
    most_expected = np.minimum(expected, upper * np.repeat(work.n_real, upper.size // work.n_real.size))
    counts = np.empty(upper.size, np.int64)
    n_queries, n_keys = rates.shape[2], key.shape[2]
    pieces: list[np.ndarray] = []
    for rows, tables in work.with_tables(by_clusters):

        def draw(start: int, stop: int, tables: tuple[np.ndarray, ...] = tables) -> np.ndarray:
            mean = float(most_expected[start:stop].sum())
            room = int(_SPARE[0] + max(mean + _SPARE[1] * mean**0.5, 0.0))
            while True:
                out = np.empty(room, np.int32)
                found = draw_rows(
                    start, stop, work.query, work.key, work.real, work.n_real, most, upper, boost, work.at_least,
                    work.at_most, work.total, *tables, by_clusters, exploration, work.is_poisson, seed, n_queries,
                    n_keys, work.heads, first_example, counts, out,
                )  # fmt: skip
                if found >= 0:
                    return out[:found]
                room *= 2

        share = np.concatenate([[0], most_expected[rows.start : rows.stop].cumsum()]).astype(np.int64)
        pieces += in_parallel(draw, balanced_parts(share, 32) + rows.start)
    return _join(counts, pieces)


@_sample.register_fake
def _(rates: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    return rates.new_empty(rates[..., 0].numel() + 1, dtype=torch.int64), key.new_empty(n_edges, dtype=torch.int64)


@dataclass
class _Work:
    """A block model as arrays, flattened over (example, head, token), with summaries of each cluster's keys."""

    query: np.ndarray  # rates T = Q̂ S
    key: np.ndarray
    is_real_query: np.ndarray  # batch n_queries
    real: np.ndarray  # batch n_keys: the real keys first
    n_real: np.ndarray  # batch
    largest: np.ndarray  # graphs k
    total: np.ndarray
    at_least: np.ndarray  # shares of the largest memberships that bound each key's
    at_most: np.ndarray
    margin: float  # relative, for rounding
    exploration: float
    is_poisson: bool
    heads: int

    @staticmethod
    def of(
        rates: Tensor,
        key_membership: Tensor,
        query_mask: Tensor | None,
        key_mask: Tensor | None,
        exploration: float,
        is_poisson: bool,
    ) -> "_Work":
        from sbmt.kernels.cpu.parallel import equal_parts, in_parallel
        from sbmt.kernels.cpu.row_bounds import compare_keys, summarise_clusters

        batch, heads, n_queries, n_clusters = rates.shape
        n_keys = key_membership.shape[2]
        query, key = (t.flatten(0, 2).contiguous().numpy() for t in (rates, key_membership))
        real = np.tile(np.arange(n_keys, dtype=np.int32), (batch, 1))
        n_real = np.full(batch, n_keys)
        is_real_query = np.ones((batch, n_queries), np.bool_)
        if query_mask is not None:
            is_real_query = query_mask.contiguous().numpy()
        if key_mask is not None:
            is_real = key_mask.numpy()
            real, n_real = np.argsort(~is_real, axis=1, kind="stable").astype(np.int32), is_real.sum(1)
        largest, total = (np.empty((batch * heads, n_clusters)) for _ in range(2))
        parts = equal_parts(batch * heads, n_keys * n_clusters)
        in_parallel(summarise_clusters, parts, key, real, n_real, heads, n_keys, largest, total)
        has_inverse = largest >= np.finfo(key.dtype).tiny  # below it 1 / largest overflows
        inverse = np.divide(1.0, largest, out=np.zeros_like(largest), where=has_inverse).astype(key.dtype)
        at_least, at_most = np.empty(len(key), key.dtype), np.empty(len(key), key.dtype)
        margin = 4 * n_clusters * float(np.finfo(key.dtype).eps)
        parts = equal_parts(len(key), 4 * n_clusters)
        in_parallel(compare_keys, parts, key, inverse, margin, n_keys, at_least, at_most)
        return _Work(
            query, key, is_real_query, real, n_real, largest, total, at_least, at_most, margin, exploration,
            is_poisson, heads,
        )  # fmt: skip

    def bound_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each row's T_i · M, the bound on its probabilities that follows, and the sum of its rates."""
        from sbmt.kernels.cpu.parallel import equal_parts, in_parallel
        from sbmt.kernels.cpu.row_bounds import bound_rows

        n_rows, n_clusters = self.query.shape
        found = [np.empty(n_rows) for _ in range(3)]
        in_parallel(
            bound_rows, equal_parts(n_rows, 3 * n_clusters), self.query, self.largest, self.total, self.n_real,
            self.is_real_query, self.exploration, self.margin, self.is_real_query.shape[1], self.heads,
            self.is_poisson, *found,
        )  # fmt: skip
        return found[0], found[1], found[2]

    def prefers_clusters(self, upper: np.ndarray, expected: np.ndarray, boost: np.ndarray) -> np.ndarray:
        """Which rows are cheaper by clusters, in graphs where all of them together pay for the table."""
        n_clusters, n_graphs = self.query.shape[1], self.total.shape[0]
        n_keys = self.real.shape[1]
        visits = upper * np.repeat(self.n_real, upper.size // self.n_real.size)
        product = PRODUCT * n_clusters
        in_doubt = (self.at_most - self.at_least).reshape(n_graphs, n_keys).mean(1)
        skipping = visits * (STEP + product * np.repeat(in_doubt, upper.size // n_graphs))
        clusters = expected * (boost * HIT + product * (1 - 1 / boost)) + CLUSTER * n_clusters
        gain = (skipping - clusters).reshape(n_graphs, -1)
        pays = np.maximum(gain, 0).sum(1) > ENTRY * n_keys * n_clusters
        return ((gain > 0) & pays[:, None]).ravel()

    def with_tables(self, by_clusters: np.ndarray) -> Iterator[tuple[range, tuple[np.ndarray, ...]]]:
        """Consecutive rows of as many graphs as may have tables at a time, and those tables, which stay in cache."""
        from sbmt.kernels.cpu.cluster_tables import COLUMNS

        n_clusters, n_graphs = self.query.shape[1], self.total.shape[0]
        n_queries, n_keys = by_clusters.size // n_graphs, self.real.shape[1]
        needs = np.any(by_clusters.reshape(n_graphs, -1), axis=1)
        at_once = max(1, _TABLE_ENTRIES // (n_keys * n_clusters))
        group = (needs.cumsum() - needs) // at_once
        size = min(at_once, int(needs.sum())), n_clusters
        # The spare line keeps columns that are filled together from falling on the same few places of the cache.
        n_guide = 1 << (n_keys - 1).bit_length()
        room = np.empty((*size, n_keys + COLUMNS), np.uint32), np.empty((*size, n_guide), np.uint64)
        for number in np.unique(group):
            graphs = np.flatnonzero(group == number)
            tables = self._tables(graphs[needs[graphs]], *room)
            yield range(int(graphs[0]) * n_queries, (int(graphs[-1]) + 1) * n_queries), tables

    def _tables(
        self, graphs: np.ndarray, cumulative: np.ndarray, guide: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        from sbmt.kernels.cpu.cluster_tables import COLUMNS, build_tables
        from sbmt.kernels.cpu.parallel import equal_parts, in_parallel

        n_clusters, n_keys = self.query.shape[1], self.real.shape[1]
        table_of = np.zeros(self.total.shape[0], np.int64)
        table_of[graphs] = np.arange(graphs.size)
        parts = equal_parts(graphs.size * -(-n_clusters // COLUMNS), 2 * COLUMNS * n_keys)
        in_parallel(build_tables, parts, graphs, self.key, self.total, n_keys, n_clusters, cumulative, guide)
        return table_of, cumulative, guide


def _boost(upper: np.ndarray) -> np.ndarray:
    """The factor c of every row, rounded up: −ln(1 − p̄)/p̄, at most 32."""
    bound = np.clip(upper, 1e-300, 1.0)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log1p(-bound) / bound * (1 + 1e-12), MAX_BOOST)


def _join(counts: np.ndarray, pieces: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of rows that were drawn piece by piece."""
    from sbmt.kernels.cpu.parallel import in_parallel

    row_ptr = np.concatenate([[0], counts.cumsum()])
    keys = torch.empty(int(row_ptr[-1]), dtype=torch.int64)
    to, ends = keys.numpy(), np.cumsum([0, *(piece.size for piece in pieces)])

    def copy(start: int, stop: int) -> None:
        for piece in range(start, stop):
            to[ends[piece] : ends[piece + 1]] = pieces[piece]

    in_parallel(copy, np.arange(len(pieces) + 1))
    return torch.from_numpy(row_ptr), keys
