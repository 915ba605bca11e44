"""Estimates how often sampled patterns satisfy the theory's conditions, with intervals and reproducible draws.

Sizes, probabilities and time limits out of range raise SbmtError.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import block_diag, coo_array, csr_array
from scipy.stats import binomtest

from sbmt.errors import SbmtError, check_sizes
from theory.certificate import NAMES, certify
from theory.checks import is_number
from theory.hamiltonian import find_hamiltonian_cycle, find_hamiltonian_path
from theory.path_cover import TIME_LIMIT, Undecided, cover_with_few_paths
from theory.patterns import Relays, block_sizes, relay_tokens
from theory.random_graphs import Probability, arc_probability


@dataclass(frozen=True)
class Estimate:
    """An estimate of a probability from the number of draws in which an event occurred."""

    hits: int  # number of draws in which the event was proved to occur
    n_draws: int
    n_undecided: int = 0  # number of draws in which neither the event nor its opposite was proved in time

    @property
    def share(self) -> float:
        """The share of hits, or NaN if a draw is undecided, since leaving it out would favour one outcome."""
        return float("nan") if self.n_undecided else self.hits / self.n_draws

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Computes the Clopper-Pearson interval, whose coverage is at least ``confidence``, a number in (0, 1).

        Undecided draws count as misses for the lower end and as hits for the upper end.

        Example:
            >>> [round(end, 4) for end in Estimate(0, 20).interval()]
            [0.0, 0.1684]
        """
        if not is_number(confidence, 0, 1) or confidence in (0, 1):
            raise SbmtError("a confidence level in (0, 1)", confidence, "use 0.95, for example")
        least, most = (
            binomtest(hits, self.n_draws).proportion_ci(confidence, method="exact")
            for hits in (self.hits, self.hits + self.n_undecided)
        )
        return float(least.low), float(most.high)


def estimate(event: Callable[[np.random.Generator], bool], n_draws: int, *, seed: int = 0) -> Estimate:
    """Counts how often an event occurs. ``event`` draws from a generator, and returns a bool or raises Undecided.

    Draw t uses a generator with the seed (seed, t), so the first draws stay the same if there are more of them.
    """
    check_sizes(n_draws=n_draws)
    hits = n_undecided = 0
    for draw in range(n_draws):
        try:
            hits += bool(event(np.random.default_rng([seed, draw])))
        except Undecided:
            n_undecided += 1
    return Estimate(hits, n_draws, n_undecided)


class DrawsReport(NamedTuple):
    """How often each condition was proved, and how often all were proved in the same draw."""

    conditions: tuple[Estimate, Estimate, Estimate]
    together: Estimate


def certify_draws(
    draws: Iterable[Sequence[Any]],
    order: Sequence[int] | None = None,
    *,
    repeat: bool = True,
    time_limit: float | int = TIME_LIMIT,
) -> DrawsReport:
    """Runs :func:`~theory.certificate.certify` with the given options on each draw, and counts the outcomes.

    A draw is a list of patterns, one per layer. Draws must be independent, and ``draws`` may be a generator.
    """
    if isinstance(draws, str) or not np.iterable(draws):
        raise SbmtError("lists of patterns", repr(draws), "give one list of patterns per draw")
    certificates = [certify(patterns, order, repeat=repeat, time_limit=time_limit) for patterns in draws]
    if not certificates:
        raise SbmtError("at least one draw", 0, "draw masks first")

    def count(outcomes: list[str]) -> Estimate:
        return Estimate(outcomes.count("proved"), len(outcomes), outcomes.count("unknown"))

    one, two, three = (count([found.condition(number).outcome for found in certificates]) for number in NAMES)
    return DrawsReport((one, two, three), count([found.outcome for found in certificates]))


def draw_graph(n: int, p: Probability, rng: np.random.Generator) -> np.ndarray:
    """Draws a directed G(n, p) without loops as a pattern, with one row per query, so entry (i, j) is the arc j → i."""
    probability = arc_probability(n, p)
    pattern = rng.random((n, n)) < probability
    np.fill_diagonal(pattern, False)
    return pattern


def draw_block_arcs(n: int, k: int, p: Probability, rng: np.random.Generator) -> csr_array:
    """Draws a G(m, p) in each of k blocks, where ``"lemma1"`` means p_L(m) of the block. Arcs start at their rows."""
    return csr_array(block_diag([coo_array(draw_graph(size, p, rng).T) for size in block_sizes(n, k)]), dtype=bool)


def simulate_cycle(n: int, p: Probability, n_draws: int, *, seed: int = 0) -> Estimate:
    """Estimates P(directed G(n, p) has a Hamiltonian cycle); two tokens with arcs in both directions form a cycle."""
    return estimate(lambda rng: find_hamiltonian_cycle(draw_graph(n, p, rng)) is not None, n_draws, seed=seed)


def simulate_path(n: int, p: Probability, n_draws: int, *, seed: int = 0) -> Estimate:
    """Estimates P(directed G(n, p) has a Hamiltonian path). Equal seeds give the graphs of :func:`simulate_cycle`."""
    return estimate(lambda rng: find_hamiltonian_path(draw_graph(n, p, rng)) is not None, n_draws, seed=seed)


def simulate_relay_path(
    n: int, k: int, p: Probability = "lemma1", n_draws: int = 100, *, relays: Relays = "last", seed: int = 0
) -> Estimate:
    """Estimates P(the union of the patterns has a Hamiltonian path) with blocks drawn at p and all arcs of relays."""
    chosen = relay_tokens(n, k, relays)
    rest = np.delete(np.arange(n), chosen)

    def event(rng: np.random.Generator) -> bool:
        arcs = draw_block_arcs(n, k, p, rng)
        cover = cover_with_few_paths(csr_array(arcs[rest][:, rest]), len(chosen) + 1)
        if cover.lower <= len(chosen) + 1 < len(cover.paths):
            raise Undecided(f"the non-relays need between {cover.lower} and {len(cover.paths)} paths")
        return len(cover.paths) <= len(chosen) + 1

    return estimate(event, n_draws, seed=seed)


def simulate_block_cycles(n: int, k: int, p: Probability, n_draws: int, *, seed: int = 0) -> Estimate:
    """Estimates P(each of k blocks has a Hamiltonian cycle or one token). With a relay in each, there is then a path.

    Corrected lemma (b) uses p = 1/k, the whole block budget, and m/k ≥ ln m + ln k + ω.
    """

    def event(rng: np.random.Generator) -> bool:
        blocks_drawn = (draw_graph(size, p, rng) for size in block_sizes(n, k))
        return all(len(block) == 1 or find_hamiltonian_cycle(block) is not None for block in blocks_drawn)

    return estimate(event, n_draws, seed=seed)


def predict_block_cycles(n: int, k: int) -> float:
    """Approximates :func:`simulate_block_cycles` at p = 1/k by exp(−2km (1 − 1/k)^(m − 1)), where m = n/k.

    The formula assumes that tokens without incoming or outgoing arcs are the only obstacle, and that their number is
    Poisson. Blocks of one token need no cycle, so the result for m = 1 is 1.
    """
    block_sizes(n, k)  # checks both arguments
    n, k = int(n), int(k)
    return 1.0 if n == k else float(np.exp(-2 * n * (1 - 1 / k) ** (n / k - 1)))
