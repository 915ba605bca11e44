"""The exact law on the CPU: every row is drawn in the cheaper of two ways."""

import numpy as np
from torch import Tensor

from sbmt.kernels import MAX_BOOST
from sbmt.kernels.cpu.draws.bounds import KeyBounds, Model, RowBounds, as_model, bound_keys, bound_rows
from sbmt.kernels.cpu.draws.lookup_tables import with_tables
from sbmt.kernels.cpu.draws.pieces import Pieces, draw_in_pieces, join
from sbmt.kernels.cpu.draws.rows import draw_pieces
from sbmt.kernels.cpu.threads.parallel import balanced_parts
from sbmt.kernels.structures import RateFactors

# Nanoseconds per step, hit, multiplication, cluster of a row and entry of a table; only their ratios matter.
STEP, HIT, PRODUCT, CLUSTER, ENTRY = 4.0, 20.0, 0.08, 1.0, 2.5
LOOK_UPS = 0.2  # per entry of a table, from which on its guide pays


def sample(factors: RateFactors, seed: int, first_example: int) -> tuple[Tensor, Tensor]:
    r"""``row_ptr`` and ``keys`` of a mask; see :func:`sbmt.kernels.draws.draw_exact`.

    *Skipping*: with $\bar p_i \ge p_{ij}$ over row i, geometric steps visit each key with probability $\bar p_i$, and a
    visited key is kept with probability $p_{ij} / \bar p_i$. With M the clusters' largest memberships and
    $l_j M \le \hat K_j \le b_j M$, the rate lies between $l_j\, T_i M$ and $b_j\, T_i M$, so that the product
    $T_i \hat K_j$ is computed only where the coin falls between the two. Little work is wasted while the tokens'
    memberships are nearly proportional, and none on a row whose edges are all certain.

    *Clusters*: Poisson points along the row's clusters each name a key; keys are merged and thinned as in
    :func:`sbmt.samplers.exact.sample_with_torch`. The cost follows the number of edges however much memberships differ.
    It needs a table of all key memberships, which is built for the graphs where it pays.

    Both read only the streams of their row, so edges depend neither on the number of threads nor on the batch.

    Cost: O(n k) for bounds and tables, O(k) for each edge that is in doubt. Rows are drawn once, and
    copied when the number of all edges is known.
    """
    model = as_model(factors)
    bounds = bound_keys(model)
    rows = bound_rows(model, bounds)
    boost = np.ones_like(rows.upper) if factors.is_poisson else _boost(rows.upper)
    by_clusters = prefer_clusters(model, bounds, rows, boost)
    most_expected = np.minimum(rows.expected, rows.upper * _per_row(model.n_real, rows))
    counts = np.empty(rows.upper.size, np.int64)
    drawn: list[Pieces] = []
    n_look_ups = float((rows.expected * boost)[by_clusters].sum())
    has_guide = n_look_ups > LOOK_UPS * model.key.size
    for of_group, tables in with_tables(model, bounds.total, by_clusters, has_guide):
        share = np.concatenate([[0], most_expected[of_group.start : of_group.stop].cumsum()]).astype(np.int64)
        given = model, bounds, rows, boost, by_clusters, tables, seed, first_example, counts
        drawn += draw_in_pieces(draw_pieces, balanced_parts(share, 32) + of_group.start, model.real.shape[1], *given)
    return join(counts, drawn)


def prefer_clusters(model: Model, bounds: KeyBounds, rows: RowBounds, boost: np.ndarray) -> np.ndarray:
    """Which rows are cheaper by clusters, in graphs where together they save more than the table costs."""
    n_graphs, n_clusters = bounds.total.shape
    n_keys = model.real.shape[1]
    visits = rows.upper * _per_row(model.n_real, rows)
    product = PRODUCT * n_clusters
    in_doubt = (bounds.at_most - bounds.at_least).reshape(n_graphs, n_keys).mean(1)
    skipping = visits * (STEP + product * _per_row(in_doubt, rows))
    clusters = rows.expected * (boost * HIT + product * (1 - 1 / boost)) + CLUSTER * n_clusters
    gain = (skipping - clusters).reshape(n_graphs, -1)
    pays = np.maximum(gain, 0).sum(1) > ENTRY * n_keys * n_clusters
    return ((gain > 0) & pays[:, None]).ravel()


def _per_row(numbers: np.ndarray, rows: RowBounds) -> np.ndarray:
    """Numbers of each example or graph, repeated for each of its rows."""
    return np.repeat(numbers, rows.upper.size // numbers.size)


def _boost(upper: np.ndarray) -> np.ndarray:
    """The factor c of every row, rounded up: −ln(1 − p̄)/p̄, at most 32."""
    bound = np.clip(upper, 1e-300, 1.0)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log1p(-bound) / bound * (1 + 1e-12), MAX_BOOST)
