"""How often random patterns meet the conditions of the theory: estimates with intervals, from reproducible draws."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from sbmt.errors import SbmtError, check_sizes
from theory.draws import Estimate
from theory.hamiltonian import find_hamiltonian_cycle, find_hamiltonian_path
from theory.path_cover import cover_with_few_paths
from theory.patterns import Relays, block_sizes, relay_tokens
from theory.random_graphs import Probability, arc_probability
from theory.solver import Undecided

Item = TypeVar("Item")
TIME_LIMIT = 20.0  # seconds per graph


def estimate(
    event: Callable[[np.random.Generator], bool], n_draws: int, *, seed: int = 0, show_progress: bool = False
) -> Estimate:
    """Counts how often an event happens.

    Args:
        event: Draws from the generator and decides; it may raise :class:`~theory.solver.Undecided`.
        n_draws: Number of draws.
        seed: Draw t has its own generator, seeded with (seed, t), so that more draws repeat the first ones.
        show_progress: Whether to show a progress bar on standard error.
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
    """The items, with a progress bar on standard error if ``show_progress``."""
    if not show_progress:
        return items
    from rich.console import Console
    from rich.progress import track as with_bar

    return with_bar(items, "drawing", total, console=Console(stderr=True))


def draw_graph(n: int, p: Probability, rng: np.random.Generator) -> np.ndarray:
    """Draws a directed G(n, p) without loops, as a pattern: row = query, so entry (i, j) is the arc j → i."""
    pattern = rng.random((n, n)) < arc_probability(n, p)
    np.fill_diagonal(pattern, False)
    return pattern


def draw_block_arcs(n: int, k: int, p: Probability, rng: np.random.Generator) -> csr_array:
    """Draws a G(m, p) in each of k blocks; ``"lemma1"`` means each block's own p_L(m). Row = where an arc starts."""
    starts, ends, first = [], [], 0
    for size in block_sizes(n, k):
        start, end = draw_graph(size, p, rng).T.nonzero()
        starts.append(start + first)
        ends.append(end + first)
        first += size
    start, end = np.concatenate(starts), np.concatenate(ends)
    return csr_array((np.ones(start.size, dtype=bool), (start, end)), shape=(n, n))


def simulate_cycle(n: int, p: Probability, n_draws: int, **options: Any) -> Estimate:
    """P(directed G(n, p) has a Hamiltonian cycle); two tokens with both arcs between them count as one.

    Args:
        n: Tokens.
        p: Arc probability in [0, 1], or ``"lemma1"``.
        n_draws: Number of graphs.
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
        n_draws: Number of unions.
        relay_probability: P of each arc from and to a relay, drawn independently; at 1 the relay theorem decides.
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
    """P(each of k blocks has a Hamiltonian cycle or is one token): with a relay in each, the union then has a path.

    Corrected lemma (b) takes p = 1/k, the whole block budget, and m/k ≥ ln m + ln k + ω.
    """

    def event(rng: np.random.Generator) -> bool:
        blocks_drawn = (draw_graph(size, p, rng) for size in block_sizes(n, k))
        return all(len(block) == 1 or find_hamiltonian_cycle(block, time_limit) is not None for block in blocks_drawn)

    return estimate(event, n_draws, **options)


def predict_block_cycles(n: int, k: int) -> float:
    """Approximation of :func:`simulate_block_cycles` at p = 1/k: exp(−2km (1 − 1/k)^(m − 1)), m = n/k.

    It takes tokens without arcs in or out to be the only obstacle, and their number to be Poisson.
    """
    block_sizes(n, k)
    return float(np.exp(-2 * n * (1 - 1 / k) ** (n / k - 1)))


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
