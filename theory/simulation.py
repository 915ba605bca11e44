"""How often random patterns have what the theory asks of them: estimates with intervals, from reproducible draws."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_array

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.samplers import sample_edges
from theory.draws import clopper_pearson
from theory.hamiltonian import find_hamiltonian_cycle, find_hamiltonian_path
from theory.path_cover import cover_with_few_paths
from theory.patterns import Relays, block_sizes, relay_tokens
from theory.random_graphs import (
    Probability,
    arc_probability,
    expected_hamiltonian_cycles,
    prob_no_zero_out_degree,
    threshold_probability,
)
from theory.solver import Undecided

Item = TypeVar("Item")
TIME_LIMIT = 20.0  # seconds per graph


@dataclass(frozen=True)
class Estimate:
    """How often an event was seen.

    Attributes:
        hits: Draws in which it was proved to happen.
        n_draws: All draws.
        n_undecided: Draws in which neither it nor its contrary was proved in time. They count as neither.
    """

    hits: int
    n_draws: int
    n_undecided: int = 0

    @property
    def share(self) -> float:
        """Share of hits; NaN if a draw is undecided, since leaving it out would favour one side."""
        return float("nan") if self.n_undecided else self.hits / self.n_draws

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Clopper and Pearson's interval, its lower end as if all undecided draws were misses, its upper as if hits.

        It holds the probability with at least this confidence, whatever the probability is.
        """
        if not 0 < confidence < 1:
            raise SbmtError("a confidence between 0 and 1", confidence, "0.95 is usual")
        lower, _ = clopper_pearson(self.hits, self.n_draws, confidence)
        _, upper = clopper_pearson(self.hits + self.n_undecided, self.n_draws, confidence)
        return lower, upper


def estimate(
    event: Callable[[np.random.Generator], bool], n_draws: int, *, seed: int = 0, show_progress: bool = False
) -> Estimate:
    """Counts how often an event happens.

    Args:
        event: Draws from the generator and decides; it may raise :class:`~theory.solver.Undecided`.
        n_draws: How often.
        seed: Draw t has a generator of its own, seeded with (seed, t): more draws repeat the first ones.
        show_progress: Whether to show a bar on standard error.
    """
    check_sizes(n_draws=n_draws)
    hits = n_undecided = 0
    for draw in track(range(n_draws), n_draws, show_progress):
        try:
            hits += bool(event(np.random.default_rng([seed, draw])))
        except Undecided:
            n_undecided += 1
    return Estimate(hits, n_draws, n_undecided)


def track(items: Iterable[Item], total: int, show_progress: bool = True) -> Iterable[Item]:
    """The items, with a progress bar on standard error if asked for."""
    if not show_progress:
        return items
    from rich.console import Console
    from rich.progress import track as with_bar

    return with_bar(items, "drawing", total, console=Console(stderr=True))


def draw_graph(n: int, p: Probability, rng: np.random.Generator) -> np.ndarray:
    """A directed G(n, p) without loops, as a pattern: row = query, so entry (i, j) is the arc j → i."""
    pattern = rng.random((n, n)) < arc_probability(n, p)
    np.fill_diagonal(pattern, False)
    return pattern


def draw_block_arcs(n: int, k: int, p: Probability, rng: np.random.Generator) -> csr_array:
    """Arcs of a G(m, p) in each of k blocks; ``"lemma1"`` is each block's own p_L(m). Row = where the arc starts."""
    starts, ends, first = [], [], 0
    for size in block_sizes(n, k):
        start, end = draw_graph(size, p, rng).T.nonzero()
        starts.append(start + first)
        ends.append(end + first)
        first += size
    start, end = np.concatenate(starts), np.concatenate(ends)
    return csr_array((np.ones(start.size, dtype=bool), (start, end)), shape=(n, n))


def simulate_cycle(n: int, p: Probability, n_draws: int, **options: Any) -> Estimate:
    """P(directed G(n, p) has a Hamiltonian cycle); n = 2 counts the two arcs between two tokens.

    Args:
        n: Tokens.
        p: Arc probability in [0, 1], or ``"lemma1"``.
        n_draws: How many graphs.
        **options: ``seed`` and ``show_progress`` as in :func:`estimate`; ``time_limit`` in seconds per graph.
    """
    return _simulate(find_hamiltonian_cycle, n, p, n_draws, **options)


def simulate_path(n: int, p: Probability, n_draws: int, **options: Any) -> Estimate:
    """P(directed G(n, p) has a Hamiltonian path), on the same graphs as :func:`simulate_cycle` with the same seed."""
    return _simulate(find_hamiltonian_path, n, p, n_draws, **options)


def simulate_relay_path(
    n: int,
    k: int,
    p: Probability = "lemma1",
    n_draws: int = 100,
    *,
    relay_probability: float | int = 1.0,
    relays: Relays = "last",
    time_limit: float = TIME_LIMIT,
    **options: Any,
) -> Estimate:
    """P(the union of the three patterns has a Hamiltonian path), n tokens in k blocks drawn at p.

    Args:
        n: Tokens.
        k: Blocks.
        p: In-block probability; ``"lemma1"`` is p_L of the block's size.
        n_draws: How many unions.
        relay_probability: P of each arc from and to a relay, each drawn on its own; at 1 the relay theorem decides.
        relays: See :func:`~theory.patterns.relay_tokens`.
        time_limit: Seconds per graph.
        **options: ``seed`` and ``show_progress`` as in :func:`estimate`.
    """
    chosen = relay_tokens(n, k, relays)
    is_relay = np.isin(np.arange(n), chosen)
    rest = np.flatnonzero(~is_relay)
    if not 0 <= relay_probability <= 1:
        raise SbmtError("a relay probability in [0, 1]", relay_probability, "1 makes relay arcs certain")

    def event(rng: np.random.Generator) -> bool:
        arcs = draw_block_arcs(n, k, p, rng)
        if relay_probability < 1:
            stars = rng.random((2, n, n)) < relay_probability
            pattern = arcs.toarray().T | (stars[0] & is_relay[None, :]) | (stars[1] & is_relay[:, None])
            return find_hamiltonian_path(pattern, time_limit) is not None
        if not rest.size:
            return True
        cover = cover_with_few_paths(csr_array(arcs[rest][:, rest]), len(chosen) + 1, time_limit)
        if cover.lower <= len(chosen) + 1 < len(cover.paths):
            raise Undecided(f"between {cover.lower} and {len(cover.paths)} paths cover the non-relays")
        return len(cover.paths) <= len(chosen) + 1

    return estimate(event, n_draws, **options)


def simulate_block_cycles(
    n: int, k: int, p: Probability, n_draws: int, *, time_limit: float = TIME_LIMIT, **options: Any
) -> Estimate:
    """P(all k blocks have a Hamiltonian cycle, or are one token): with a relay in each, the union then has a path.

    Corrected lemma (b) takes p = 1/k, the whole block budget, and m/k ≥ ln m + ln k + ω.
    """

    def event(rng: np.random.Generator) -> bool:
        blocks_drawn = (draw_graph(size, p, rng) for size in block_sizes(n, k))
        return all(len(block) == 1 or find_hamiltonian_cycle(block, time_limit) is not None for block in blocks_drawn)

    return estimate(event, n_draws, **options)


def predict_block_cycles(n: int, k: int) -> float:
    """Approximation of :func:`simulate_block_cycles` at p = 1/k: exp(−2km (1 − 1/k)^(m − 1)), m = n/k.

    It takes the tokens without arcs in or out as the only obstacle, and their number as Poisson.
    """
    block_sizes(n, k)
    return float(np.exp(-2 * n * (1 - 1 / k) ** (n / k - 1)))


def draw_patterns(
    heads: Sequence[BlockModel], n_draws: int, *, sampler: str = "exact", seed: int = 0
) -> Iterator[list[EdgeList]]:
    """One pattern per block model and draw, self-loops added: what :func:`~theory.draws.certify_draws` judges.

    Args:
        heads: Block models of one example and head over the same tokens, in the order of the layers.
        n_draws: How many lists.
        sampler: See :func:`~sbmt.samplers.sample_edges`.
        seed: Of all draws.
    """
    check_sizes(n_draws=n_draws)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n_draws):
        yield [sample_edges(head, sampler, generator=generator).with_self_loops() for head in heads]


def lemma1_table(sizes: Sequence[int], n_draws: int, *, seed: int = 0) -> list[dict[str, float | int | Estimate]]:
    """Directed G(n, p_L): mean degree, expected cycles and P(no zero out-degree) beside P(cycle) and P(path)."""
    return [
        {
            "n": n,
            "n p": n * arc_probability(n, "lemma1"),
            "expected cycles": expected_hamiltonian_cycles(n, "lemma1"),
            "P(no zero out-degree)": prob_no_zero_out_degree(n, "lemma1"),
            "P(cycle)": simulate_cycle(n, "lemma1", n_draws, seed=seed),
            "P(path)": simulate_path(n, "lemma1", n_draws, seed=seed),
        }
        for n in sizes
    ]


def threshold_table(
    n: int, offsets: Sequence[float | int], n_draws: int, *, seed: int = 0
) -> list[dict[str, float | int | Estimate]]:
    """P(cycle) and P(path) at p = (ln n + c)/n for each offset c, to be read beside :func:`directed_limit`."""
    rows = []
    for c in offsets:
        p = threshold_probability(n, c)
        cycle, path = simulate_cycle(n, p, n_draws, seed=seed), simulate_path(n, p, n_draws, seed=seed)
        rows.append({"c": c, "p": p, "P(cycle)": cycle, "P(path)": path})
    return rows


def _simulate(
    find: Callable[..., list[int] | None],
    n: int,
    p: Probability,
    n_draws: int,
    *,
    time_limit: float = TIME_LIMIT,
    **options: Any,
) -> Estimate:
    def event(rng: np.random.Generator) -> bool:
        return find(draw_graph(n, p, rng), time_limit) is not None

    return estimate(event, n_draws, **options)
