"""Computes the numbers in the statements that ``python -m theory`` checks; ``statements.toml`` contains their text."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import e, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import softmax

from sbmt.block_model.model import SMALLEST_PROBABILITY, BlockModel
from sbmt.samplers import sample_edges
from theory import random_graphs as graphs
from theory import realisability as models
from theory import relays, reweighting, simulation
from theory.conditions import causal_layers, min_layers, static_layers, union
from theory.expectation import decay_exponent, mask_means
from theory.hamiltonian import Evidence, check_path
from theory.patterns import block_sizes, fixed, one_based_blocks, relay_tokens, strided, three_patterns

Numbers = Sequence[Any]
SMALL = [(n, k) for n in range(1, 13) for k in range(1, n + 1)]
ORDERS = tuple(permutations((1, 2, 3)))


@dataclass(frozen=True)
class Statement:
    """A statement about the paper. ``statements.toml`` explains the fields."""

    name: str
    claim: str
    verdict: str
    grade: Literal["conclusion", "proof", "slip", "repair"]
    evidence: Evidence
    reach: str
    function: str
    shown: str
    numbers: Numbers
    within: float | int | Sequence[float | int] = 0

    def check(self) -> tuple[bool, str]:
        """Returns whether the numbers are as stated, and the sentence with the computed numbers."""
        found = CHECKS[self.name]()
        flat, due = (np.concatenate([np.ravel(part) for part in numbers]) for numbers in (found, self.numbers))
        holds = flat.shape == due.shape and (np.abs(flat - due) <= np.array(self.within) + 1e-6 * np.abs(due)).all()
        return bool(holds), self.shown.format(*found)


STATEMENTS = [
    Statement(**record) for record in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["statement"]
]
"""All statements, in the order of the report."""


# --- patterns and paths ----------------------------------------------------------------------------------------------


def _one_based() -> Numbers:
    sizes = np.bincount(one_based_blocks(16, 4))
    return sizes.tolist(), (sizes**2).sum(), block_sizes(16, 4)


def _three_layers() -> Numbers:
    least = {order: min_layers(three_patterns(16, 4), order) or 99 for order in ORDERS}
    exceptions = sum(
        (min_layers(three_patterns(*case), order) or 99) > least[order] for case in SMALL for order in ORDERS
    )
    return *least.values(), exceptions


def _factorised() -> Numbers:
    wrong = cases = 0
    for n in range(1, 11):
        for stride in range(1, 13):
            wrong += sum((causal_layers(strided(n, stride), order) or 99) > 2 for order in ((1, 2), (2, 1)))
            for c in range(stride + 1):
                pair = fixed(n, stride, c, self_loops=True)
                forward, backward = ((causal_layers(pair, order) or 99) <= 2 for order in ((1, 2), (2, 1)))
                wrong += (forward != (c >= 1 or n <= stride)) + (backward != (c == stride or n <= stride))
                cases += 1
    return cases, wrong


def _revisited() -> Numbers:
    same, fresh = (relays.paper_walk(16, 4, relay) for relay in ("same", "next"))
    return len(same), same.count(12), len(fresh), check_path(union(three_patterns(16, 4)), same)


def _counterexample() -> Numbers:
    n, k, arcs = relays.counterexample()
    verdict = relays.relay_theorem(n, k, arcs)
    return verdict.path_cover, k, verdict.limit, verdict.ham_path


def _mended() -> Numbers:
    n, k = 18, 3
    cycles = [[6 * b + i for i in (0, 2, 4, 1, 3, 5)] for b in range(k)]
    pattern = np.eye(n, dtype=bool) | three_patterns(n, k, "per_block")[1]
    for cycle in cycles:
        pattern[np.roll(cycle, -1), cycle] = True  # query after key
    order = relays.one_relay_per_block_path(n, cycles, relay_tokens(n, k, "per_block"))
    return order[:7], check_path(pattern, order)


def _complete() -> Numbers:
    cases = [(n, k) for n in range(1, 25) for k in range(1, n + 1)]
    return sum(check_path(union(three_patterns(*case)), relays.canonical_path(*case) or []) for case in cases), len(
        cases
    )


# --- block models and samplers ---------------------------------------------------------------------------------------


def _block_budget() -> Numbers:
    rng, closest = np.random.default_rng(0), float("inf")
    for _ in range(2000):
        g, k = int(rng.integers(2, 6)), int(rng.integers(1, 8))
        query, key = (rng.random((g, k)) ** rng.choice([0.1, 1, 10]) for _ in range(2))
        weights = rng.random((k, k)) ** rng.choice([1, 20])
        p = query @ (weights / weights.sum()) @ key.T
        p_in, p_out = np.diag(p).mean(), p[~np.eye(g, dtype=bool)].mean()
        closest = min(closest, models.in_block_bound(g, float(p_out)) - p_in)
    return (closest,)


def _poisson() -> Numbers:
    named = dict(zip(("A1", "A2", "A3"), three_patterns(16, 4), strict=True))
    found = [
        models.attained(models.realise(name, 16, 4, "poisson"), pattern, "fastrg") for name, pattern in named.items()
    ]
    bilinear = models.attained(models.realise("A1", 16, 4), named["A1"])
    return found[0].inside, bilinear.inside, min(p.inside for p in found), max(p.outside for p in found)


def _heads() -> Numbers:
    heads, a1 = models.saturated_heads(16, 4), three_patterns(16, 4)[0]
    law = torch.stack([head.expected_mask()[0, 0] for head in heads[:4]]).amax(0).numpy()
    return len(heads), law[a1].min(), law[~a1].max()


def _as_printed() -> Numbers:
    pairs = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=float)
    rates = models.fastrg_rates(pairs, 0.5 * np.eye(2), pairs)
    return rates.total, rates.printed_total


def _collapse() -> Numbers:
    ones = torch.ones(1, 1, 512, 1)
    model = BlockModel(ones, torch.ones(1, 1, 1), ones)
    drawn = sample_edges(model, "fastrg", generator=torch.Generator().manual_seed(0)).density().item()
    return drawn, models.fastrg_max_density(), models.fastrg_max_density(0.01)


# --- masks fitted by likelihood (not in the paper): the effect of reweighting, and the bound c ------------------------

BLOCK = np.array([[0.4, 1.6, 0.8], [1.2, 0.5, 0.9], [0.7, 1.0, 2.0]])  # not symmetric
CLUSTERS = np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]])


def _tokens(n_keys: int, n_queries: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Returns queries of norm 0.7, and keys in a square, which are also the values, so outputs depend on the scores."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n_queries)
    return 0.7 * np.stack([np.cos(angle), np.sin(angle)], 1), rng.uniform(-1, 1, (n_keys, 2))


def _ideal_rates(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Returns the weights of full attention as rates, which sum to 1."""
    return softmax(query @ key.T, axis=1)


def _block_rates(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Returns the rates of a block model, which sum to about 1."""
    return softmax(query @ CLUSTERS.T, axis=1) @ BLOCK @ softmax(key @ CLUSTERS.T, axis=1).T / len(key)


def _distance(outputs: np.ndarray, target: np.ndarray) -> float:
    """Returns the root mean square distance over draws and queries."""
    return float(np.sqrt(((outputs - target) ** 2).sum(-1).mean()))


def _consistent() -> Numbers:
    """Returns errors, ratios to predicted errors, and slopes for both kinds of rates, and whether √(V/c) is a bound."""
    sizes, found, holds = (64, 256, 1024), [], True
    for rates_of in (_ideal_rates, _block_rates):
        errors, ratios = [], []
        for c in sizes:
            query, key = _tokens(4 * c)
            scores, rates = query @ key.T, c * rates_of(query, key)
            full, predicted = (
                reweighting.limit_output(scores, key, rates, 0.0),
                reweighting.predicted_error(scores, key, rates),
            )
            errors.append(_distance(reweighting.drawn_outputs(scores, key, rates, 256), full))
            ratios.append(errors[-1] / predicted)
            variance = (reweighting.limit_output(scores, key**2, rates, 0.0) - full**2).sum(1).mean()
            holds &= -np.expm1(-rates.min()) > SMALLEST_PROBABILITY
            holds &= predicted <= np.sqrt(variance / c) or rates_of is _block_rates
        found += [*errors, *ratios, decay_exponent(sizes, errors)]
    return *found, holds


def _tends_elsewhere(sizes: tuple[int, ...], keys_per_edge: int, smallest: float) -> Numbers:
    """Returns the distances to full attention and to the limit, the distance between these, and the second's slope."""
    to_limit, to_full = [], []
    for c in sizes:
        query, key = _tokens(keys_per_edge * c)
        scores, rates = query @ key.T, c * _ideal_rates(query, key)
        drawn = reweighting.drawn_outputs(scores, key, rates, 1024 // keys_per_edge, smallest=smallest)
        full, limit = (reweighting.limit_output(scores, key, rates, cap) for cap in (0.0, smallest))
        to_limit.append(_distance(drawn, limit))
        to_full.append(_distance(drawn, full))
    gap = _distance(limit[None], full)
    return *to_full, *to_limit, gap, decay_exponent(sizes, to_limit), min(to_full) > gap > 3 * to_limit[-1]


def _growing_rates() -> Numbers:
    (query, key), found, holds = _tokens(16), [], True
    largest = float(np.linalg.norm(key, axis=1).max())
    for c in (64, 128, 256):
        rates = c * _block_rates(query, key)
        drawn, full = (
            reweighting.drawn_outputs(query @ key.T, key, rates, 1000),
            reweighting.limit_output(query @ key.T, key, rates, 0.0),
        )
        distances, bound = np.linalg.norm(drawn - full, axis=-1).mean(0), reweighting.distance_bound(rates, largest)
        holds &= bool((distances <= bound).all())
        found += [distances.max(), bound.max()]
    return *found, holds


def _density() -> Numbers:
    n, c = 64, 16.0
    query, key = (tokens[:n] for tokens in _tokens(n, n))
    others = ~np.eye(n, dtype=bool)
    attention = np.where(others, np.exp(3 * query @ key.T), 0.0)
    attention /= attention.sum(1, keepdims=True) + n / 8  # a sink
    memberships = (torch.from_numpy(softmax(tokens @ CLUSTERS.T, axis=1))[None, None] for tokens in (query, key))
    model = BlockModel(next(memberships), torch.from_numpy(BLOCK)[None], next(memberships), link="poisson")
    rates, explored = (
        reweighting.fitted_rates(model, torch.from_numpy(attention), c, epsilon / n) for epsilon in (0, 8)
    )
    rate, given, edges = rates.sum(1), attention.sum(1), -np.expm1(-rates)[others].sum() / n
    times = rate / (c * given)
    return rate.mean(), given.mean(), times.min(), times.max(), edges, explored.sum() / n


CHECKS: dict[str, Callable[[], Numbers]] = {
    "blocks counted from 1": _one_based,
    "first receptive set": lambda: ((~three_patterns(16, 4)[0][4]).sum(),),
    "three layers": _three_layers,
    "static connectivity": lambda: [
        layers(three_patterns(16, 4), order) for order in ORDERS for layers in (static_layers, min_layers)
    ],
    "relays in all": lambda: (
        three_patterns(16, 4)[1].all(axis=0).sum(),
        all(len(relay_tokens(n, k)) == k for n, k in SMALL),
    ),
    "one relay per block": lambda: (
        [min_layers(three_patterns(n, k, "per_block")) for n, k in ((16, 4), (18, 3), (64, 8), (10, 4))],
    ),
    "factorised patterns": _factorised,
    "a well-known blog's example": lambda: [np.flatnonzero(pattern[15]).tolist() for pattern in strided(16, 4)],
    "the same blog's formulas": lambda: (
        np.triu(fixed(16, 4, 1, causal=False)[0], 1).sum(),
        strided(16, 4)[1].sum(1).max(),
    ),
    "A2 and A3 swapped": lambda: (sum(bool((a3 == a2.T).all()) for _, a2, a3 in (three_patterns(*x) for x in SMALL)),),
    "relays are revisited": _revisited,
    "block cycles do not suffice": _counterexample,
    "one relay per block mends the path": _mended,
    "complete blocks": _complete,
    "relays alone": lambda: (
        len(SMALL),
        sum(relays.relay_theorem(n, k, []).ham_path != (n <= 2 * k + 1) for n, k in SMALL),
    ),
    "expectation is not existence": lambda: (
        graphs.expected_hamiltonian_cycles(100, "lemma1"),
        1 - graphs.prob_no_zero_out_degree(100, "lemma1"),
    ),
    "all degrees": lambda: (
        *(graphs.prob_all_degrees(n, "lemma1") for n in (16, 32, 100)),
        graphs.prob_all_degrees(4, 0.6),
        graphs.prob_cycle_exact(4, 0.6),
    ),
    "cycles at Lemma 1's probability": lambda: [simulation.simulate_cycle(n, "lemma1", 200).hits for n in (16, 50)],
    "a probability above 1": lambda: [
        graphs.lemma1_probability(n) for n in range(1, 1001) if graphs.lemma1_probability(n) > 1
    ],
    "n^(1/n) misprinted": lambda: (10**4 * graphs.lemma1_probability(10**4), e * sqrt(10**4)),
    "the directed threshold": lambda: [
        number
        for c in (1, 4)
        for number in (
            simulation.simulate_cycle(100, graphs.threshold_probability(100, c), 60).share,
            graphs.directed_limit(c).cycle,
        )
    ],
    "the path's limit": lambda: [
        number
        for c in (0, 1)
        for number in (
            simulation.simulate_path(100, graphs.threshold_probability(100, c), 60).share,
            graphs.directed_limit(c).path,
        )
    ],
    "relays to the rescue": lambda: (
        *(simulation.simulate_relay_path(64, k, "lemma1", 60).hits for k in (8, 2)),
        graphs.matching_deficiency(e),
    ),
    "the figure's budget": lambda: models.fits_in_block_budget(16, 4),
    "block budget": _block_budget,
    "minimal block sizes": lambda: [k * models.min_block_size(k) for k in (2, 16, 128)],
    "the Poisson link lifts the budget": _poisson,
    "k + 2 heads": _heads,
    "O(n) or O(kn)": lambda: [
        models.expected_entries(n, k)["union"] / per for n, k, per in ((16, 4, 1), (1024, 16, 1), (1024, 16, 1024))
    ],
    "Algorithm 1 as printed": _as_printed,
    "repeated draws collapse": _collapse,
    "two hops through relays": lambda: [models.two_hop_miss(k) for k in (4, 16, 30)],
    "two layers under Algorithm 1": lambda: [
        models.simulate_two_hops(n, k, 100) for n, k in ((16, 4), (64, 16), (256, 30))
    ],
    "exploration is quadratic": lambda: (models.exploration_edges(1024, 0.01),),
    "the mean over masks is not a mask": lambda: [float(mean) for mean in mask_means(0.5, [0, 1], [0, 0])],
    "reweighting is consistent": _consistent,
    "reweighting is needed": lambda: _tends_elsewhere((64, 256, 1024), 4, smallest=1.0),
    "what the cap costs": lambda: _tends_elsewhere((64, 256), 64, smallest=SMALLEST_PROBABILITY),
    "universality by growing rates": _growing_rates,
    "c bounds the density": _density,
}
"""Maps each statement to the function that computes its numbers. Numbers that its sentence omits are checked, too."""
