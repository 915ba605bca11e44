"""Statements about masks fitted by likelihood, which are ours: what reweighting buys, and what c bounds."""

import numpy as np
import torch

from sbmt.block_model.model import SMALLEST_PROBABILITY, BlockModel
from theory.expectation import decay_exponent
from theory.reweighting import distance_bound, drawn_outputs, fitted_rates, limit_output, predicted_error
from theory.statements.statement import Found, statement

BLOCK = np.array([[0.4, 1.6, 0.8], [1.2, 0.5, 0.9], [0.7, 1.0, 2.0]])  # not symmetric
CLUSTERS = np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]])


@statement(
    "reweighting is consistent",
    "repair",
    "simulated",
    "32 queries, 4c keys, 256 draws each, seed 0; false alarms below 1e-6",
    predicted_error,
)
def _consistent() -> Found:
    """Claim: (needed) how far attention over drawn edges, each weighted by 1/p, is from full attention.

    Verdict: as far as the delta method says: with c edges per query the error falls like c^(−½), whatever n, as long
    as no weight is capped. With rates r = c·a the prediction is at most √(V/c), where V is the variance of the values
    under attention.
    """
    sizes, holds, found = (64, 256, 1024), True, []
    for name, rates_of in (("rates c·a", _ideal_rates), ("block model", _block_rates)):
        errors, ratios = [], []
        for c in sizes:
            query, key = _tokens(4 * c)
            scores, rates = query @ key.T, c * rates_of(query, key)
            full, predicted = limit_output(scores, key, rates, 0.0), predicted_error(scores, key, rates)
            errors.append(_distance(drawn_outputs(scores, key, rates, 256), full))
            ratios.append(errors[-1] / predicted)
            variance = (limit_output(scores, key**2, rates, 0.0) - full**2).sum(1).mean()
            holds &= -np.expm1(-rates.min()) > SMALLEST_PROBABILITY
            holds &= predicted <= np.sqrt(variance / c) or rates_of is _block_rates
        slope = decay_exponent(sizes, errors)
        # The standard error of a ratio is .006, and at c = 64 the delta method falls short by .02.
        holds &= abs(slope + 0.5) < 0.03 and max(abs(ratio - 1) for ratio in ratios) < 0.05
        shown = ", ".join(f"{error:.3f} ({ratio:.2f})" for error, ratio in zip(errors, ratios, strict=True))
        found.append(f"{name}: {shown}, slope {slope:.2f}")
    return bool(holds), f"errors at c = 64, 256, 1024 (over those predicted); {'; '.join(found)}"


@statement("reweighting is needed", "repair", "simulated", "as above, with rates c·a", limit_output)
def _needed() -> Found:
    """Claim: (needed) what attention over drawn edges tends to without reweighting.

    Verdict: to attention proportional to p·a as c and n grow, not to full attention. Where rare edges are drawn in
    proportion to attention, that is its square: all scores count twice.
    """
    return _tends_elsewhere((64, 256, 1024), 4, smallest=1.0)


@statement("what the cap costs", "repair", "simulated", "as above, with 64c keys and 16 draws", limit_output)
def _capped() -> Found:
    """Claim: (needed) what reweighted attention tends to if weights are capped at 20.

    Verdict: to attention proportional to a·min(1, 20p) as c and n grow: keys with p < .05 count less than they should,
    and among such keys alone it is as if nothing had been reweighted.
    """
    return _tends_elsewhere((64, 256), 64, smallest=SMALLEST_PROBABILITY)


@statement(
    "universality by growing rates", "repair", "theorem", "bound; checked at n = 16, 1,000 draws", distance_bound
)
def _universal() -> Found:
    """Claim: (needed) sampled masks with which Transformers are universal approximators.

    Verdict: all with positive rates, if these may grow at fixed n: E‖ô − o‖ ≤ 4G Σ_j 1/(e^r − 1) for values of norm at
    most G, capped weights or not, so outputs tend to those of full attention, which is universal (Yun et al., 2020).
    Masks then become complete: nothing follows for a fixed c, nor for a density below 1.
    """
    (query, key), holds, found = _tokens(16), True, []
    largest = float(np.linalg.norm(key, axis=1).max())
    for c in (64, 128, 256):
        rates = c * _block_rates(query, key)
        drawn, full = drawn_outputs(query @ key.T, key, rates, 1000), limit_output(query @ key.T, key, rates, 0.0)
        distances, bound = np.linalg.norm(drawn - full, axis=-1).mean(0), distance_bound(rates, largest)
        holds &= bool((distances <= bound).all())
        found.append(f"c = {c}: {distances.max():.1g} ≤ {bound.max():.1g}")
    return holds and bool(bound.max() < 1e-3), ", ".join(found)


@statement("c bounds the density", "repair", "theorem", "n = 64, c = 16, one block model, by minimising", fitted_rates)
def _density() -> Found:
    """Claim: (needed) how many edges a block model fitted by likelihood draws.

    Verdict: with the best overall rate, the rates of a query sum to c times the attention it gives to others, on
    average and not query by query. Since 1 − e^(−r) ≤ r, at most c edges a query are expected besides self-loops, a
    density of c/n. With extra keys while training, ε a query, the sum is smaller still.
    """
    n, c = 64, 16.0
    query, key = (tokens[:n] for tokens in _tokens(n, n))
    others = ~np.eye(n, dtype=bool)
    attention = np.where(others, np.exp(3 * query @ key.T), 0.0)
    attention /= attention.sum(1, keepdims=True) + n / 8  # a sink
    memberships = (torch.from_numpy(_softmax(tokens @ CLUSTERS.T))[None, None] for tokens in (query, key))
    model = BlockModel(next(memberships), torch.from_numpy(BLOCK)[None], next(memberships), link="poisson")
    rates, explored = (fitted_rates(model, torch.from_numpy(attention), c, epsilon / n) for epsilon in (0, 8))
    given, rate = c * attention.sum(1), rates.sum(1)
    edges, most = -np.expm1(-rates)[others].sum() / n, rate / given
    holds = abs(rate.mean() / given.mean() - 1) < 1e-6 and most.min() < 0.9 < 1.1 < most.max()
    holds &= edges <= given.mean() <= c and explored.sum() < rates.sum()
    text = f"rates sum to {rate.mean():.3f} = 16 · {given.mean() / c:.4f} on average, to {most.min():.2f} to "
    text += f"{most.max():.2f} times that by query; {edges:.2f} edges expected; ε = 8: {explored.sum() / n:.2f}"
    return bool(holds), text


def _tends_elsewhere(sizes: tuple[int, ...], keys_per_edge: int, smallest: float) -> Found:
    """Whether outputs approach their own limit like c^(−½), and therefore not full attention."""
    to_limit, to_full = [], []
    for c in sizes:
        query, key = _tokens(keys_per_edge * c)
        scores, rates = query @ key.T, c * _ideal_rates(query, key)
        drawn = drawn_outputs(scores, key, rates, 1024 // keys_per_edge, smallest=smallest)
        full, limit = (limit_output(scores, key, rates, cap) for cap in (0.0, smallest))
        to_limit.append(_distance(drawn, limit))
        to_full.append(_distance(drawn, full))
    gap, slope = _distance(limit[None], full), decay_exponent(sizes, to_limit)
    holds = abs(slope + 0.5) < 0.05 and min(to_full) > gap > 3 * to_limit[-1]
    errors = (", ".join(f"{error:.3f}" for error in of) for of in (to_full, to_limit))
    text = "from full attention {}, from this limit {}".format(*errors)
    return bool(holds), f"c = {', '.join(map(str, sizes))}: {text}; the two are {gap:.3f} apart"


def _tokens(n_keys: int, n_queries: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Queries of norm .7, and keys in a square that are their own values, so that outputs depend on the scores."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n_queries)
    return 0.7 * np.stack([np.cos(angle), np.sin(angle)], 1), rng.uniform(-1, 1, (n_keys, 2))


def _ideal_rates(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Attention itself: rates that sum to 1."""
    return _softmax(query @ key.T)


def _block_rates(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Rates of a block model that sum to about 1."""
    return _softmax(query @ CLUSTERS.T) @ BLOCK @ _softmax(key @ CLUSTERS.T).T / len(key)


def _softmax(scores: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(scores) / np.exp(scores).sum(1, keepdims=True))


def _distance(outputs: np.ndarray, target: np.ndarray) -> float:
    """Root mean square over draws and queries."""
    return float(np.sqrt(((outputs - target) ** 2).sum(-1).mean()))
