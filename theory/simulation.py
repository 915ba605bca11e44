"""How often random patterns meet the conditions of the theory: estimates with intervals, from reproducible draws."""

from collections.abc import Callable

import numpy as np
from scipy.sparse import block_diag, coo_array, csr_array

from sbmt.errors import check_sizes
from theory.checks import as_number
from theory.draws import Estimate
from theory.exact_search import TIME_LIMIT, Undecided
from theory.hamiltonian import find_hamiltonian_cycle, find_hamiltonian_path
from theory.path_cover import cover_with_few_paths
from theory.patterns import Relays, block_sizes, relay_tokens
from theory.random_graphs import Probability, arc_probability


def estimate(event: Callable[[np.random.Generator], bool], n_draws: int, *, seed: int = 0) -> Estimate:
    """Counts how often an event happens.

    Args:
        event: Draws from the generator and decides; it may raise :class:`~theory.exact_search.Undecided`.
        n_draws: Number of draws.
        seed: Draw t has its own generator, seeded with (seed, t), so more draws begin with the same ones.

    Raises:
        SbmtError: Unless n_draws ≥ 1.
    """
    check_sizes(n_draws=n_draws)
    hits = n_undecided = 0
    for draw in range(n_draws):
        try:
            hits += bool(event(np.random.default_rng([seed, draw])))
        except Undecided:
            n_undecided += 1
    return Estimate(hits, n_draws, n_undecided)


def draw_graph(n: int, p: Probability, rng: np.random.Generator) -> np.ndarray:
    """Draws a directed G(n, p) without loops, as a pattern: row = query, so entry (i, j) is the arc j → i.

    Raises:
        SbmtError: Unless n ≥ 1 and p is a probability or ``"lemma1"``.
    """
    probability = arc_probability(n, p)
    pattern = rng.random((n, n)) < probability
    np.fill_diagonal(pattern, False)
    return pattern


def draw_block_arcs(n: int, k: int, p: Probability, rng: np.random.Generator) -> csr_array:
    """Draws a G(m, p) in each of k blocks; ``"lemma1"`` means each block's own p_L(m). Row = where an arc starts.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n and p is a probability or ``"lemma1"``.
    """
    return csr_array(block_diag([coo_array(draw_graph(size, p, rng).T) for size in block_sizes(n, k)]), dtype=bool)


def simulate_cycle(n: int, p: Probability, n_draws: int, *, seed: int = 0, time_limit: float = TIME_LIMIT) -> Estimate:
    """P(directed G(n, p) has a Hamiltonian cycle); two tokens with both arcs between them count as one.

    Raises:
        SbmtError: If a size, a probability or the time limit is invalid.
    """

    def event(rng: np.random.Generator) -> bool:
        return find_hamiltonian_cycle(draw_graph(n, p, rng), time_limit) is not None

    return estimate(event, n_draws, seed=seed)


def simulate_path(n: int, p: Probability, n_draws: int, *, seed: int = 0, time_limit: float = TIME_LIMIT) -> Estimate:
    """P(directed G(n, p) has a Hamiltonian path), on the same graphs as :func:`simulate_cycle` with the same seed.

    Raises:
        SbmtError: If a size, a probability or the time limit is invalid.
    """

    def event(rng: np.random.Generator) -> bool:
        return find_hamiltonian_path(draw_graph(n, p, rng), time_limit) is not None

    return estimate(event, n_draws, seed=seed)


def simulate_relay_path(
    n: int,
    k: int,
    p: Probability = "lemma1",
    n_draws: int = 100,
    *,
    relay_probability: float | int = 1.0,
    relays: Relays = "last",
    seed: int = 0,
    time_limit: float = TIME_LIMIT,
) -> Estimate:
    """P(the union of the three patterns has a Hamiltonian path), n tokens in k blocks drawn at p.

    Args:
        n: Tokens.
        k: Blocks.
        p: In-block probability; ``"lemma1"`` is p_L of the block's size.
        n_draws: Number of unions.
        relay_probability: Of each arc from and to a relay, independently; at 1 the relay theorem decides.
        relays: See :func:`~theory.patterns.relay_tokens`.
        seed: See :func:`estimate`.
        time_limit: Seconds per graph.

    Raises:
        SbmtError: If a size, a probability or a relay is invalid.
    """
    chosen = relay_tokens(n, k, relays)
    is_relay = np.isin(np.arange(n), chosen)
    rest = np.flatnonzero(~is_relay)
    q = as_number(relay_probability, "a relay probability in [0, 1]", "1 makes relay arcs certain", 0, 1)

    def event(rng: np.random.Generator) -> bool:
        arcs = draw_block_arcs(n, k, p, rng)
        if q < 1:
            stars = rng.random((2, n, n)) < q
            pattern = arcs.toarray().T | (stars[0] & is_relay[None, :]) | (stars[1] & is_relay[:, None])
            return find_hamiltonian_path(pattern, time_limit) is not None
        cover = cover_with_few_paths(csr_array(arcs[rest][:, rest]), len(chosen) + 1, time_limit)
        if cover.lower <= len(chosen) + 1 < len(cover.paths):
            raise Undecided(f"between {cover.lower} and {len(cover.paths)} paths cover the non-relays")
        return len(cover.paths) <= len(chosen) + 1

    return estimate(event, n_draws, seed=seed)


def simulate_block_cycles(
    n: int, k: int, p: Probability, n_draws: int, *, seed: int = 0, time_limit: float = TIME_LIMIT
) -> Estimate:
    """P(each of k blocks has a Hamiltonian cycle or is one token): with a relay in each, the union then has a path.

    Corrected lemma (b) takes p = 1/k, the whole block budget, and m/k ≥ ln m + ln k + ω.

    Raises:
        SbmtError: If a size, a probability or the time limit is invalid.
    """

    def event(rng: np.random.Generator) -> bool:
        blocks_drawn = (draw_graph(size, p, rng) for size in block_sizes(n, k))
        return all(len(block) == 1 or find_hamiltonian_cycle(block, time_limit) is not None for block in blocks_drawn)

    return estimate(event, n_draws, seed=seed)


def predict_block_cycles(n: int, k: int) -> float:
    """Approximation of :func:`simulate_block_cycles` at p = 1/k: exp(−2km (1 − 1/k)^(m − 1)), m = n/k.

    It assumes that tokens without incoming or outgoing arcs are the only obstacle, and their number Poisson. For m = 1
    every block is one token, which needs no cycle: the answer is 1.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n.
    """
    block_sizes(n, k)
    n, k = int(n), int(k)
    return 1.0 if n == k else float(np.exp(-2 * n * (1 - 1 / k) ** (n / k - 1)))
