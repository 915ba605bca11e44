"""Statements about what the block model can realise, and what the sampler draws."""

from math import exp

import numpy as np
import torch

from sbmt.block_model.model import BlockModel
from sbmt.samplers import sample_edges
from theory.draws import clopper_pearson
from theory.patterns import three_patterns
from theory.realisability import (
    attained,
    fits_in_block_budget,
    in_block_bound,
    min_block_size,
    realise,
    saturated_heads,
)
from theory.sampler_facts import (
    expected_entries,
    exploration_edges,
    fastrg_max_density,
    fastrg_rates,
    mask_means,
    simulate_two_hops,
    two_hop_miss,
)
from theory.statements.statement import Found, statement


@statement("the figure's budget", "conclusion", "theorem", "n = 16, k = 4", fits_in_block_budget)
def _budget() -> Found:
    """Claim: the pattern of Figure 6 (n = 16, k = 4) is drawn by three block models at p_L.

    Verdict: a block-diagonal mask has in-block probability at most 1/k = .25; p_L asks for .961.
    """
    budget = fits_in_block_budget(16, 4)
    return not budget.is_enough, f"needed {budget.needed:.3f}, allowed {budget.cap:.2f}"


@statement("block budget", "repair", "theorem", "2,000 random models, seed 0", in_block_bound)
def _bound() -> Found:
    """Claim: (needed) what block models can do inside blocks.

    Verdict: p_in ≤ 1/g + (g − 1)/2 · p_out, for any clusters and memberships.
    """
    rng, closest = np.random.default_rng(0), float("inf")
    for _ in range(2000):
        g, k = int(rng.integers(2, 6)), int(rng.integers(1, 8))
        query, key = (rng.random((g, k)) ** rng.choice([0.1, 1, 10]) for _ in range(2))
        weights = rng.random((k, k)) ** rng.choice([1, 20])
        p = query @ (weights / weights.sum()) @ key.T
        p_in, p_out = np.diag(p).mean(), p[~np.eye(g, dtype=bool)].mean()
        closest = min(closest, in_block_bound(g, float(p_out)) - p_in)
    return bool(closest >= -1e-12), f"the closest of them stays {closest:.3f} below the bound"


@statement("minimal block sizes", "repair", "theorem", "k = 2, 16, 128, by computing", min_block_size)
def _sizes() -> Found:
    """Claim: (needed) from which size on p_L fits the budget.

    Verdict: n grows like e·k²: 16 tokens for k = 2, 768 for 16, 45,312 for 128.
    """
    sizes = {k: k * min_block_size(k) for k in (2, 16, 128)}
    text = ", ".join(f"k = {k}: n = {n:,}" for k, n in sizes.items())
    return list(sizes.values()) == [16, 768, 45312], text


@statement("the Poisson link lifts the budget", "repair", "instance", "n = 16, k = 4", realise)
def _poisson() -> Found:
    """Claim: (needed) three block models that do draw A1, A2 and A3.

    Verdict: with p = 1 − e^(−rate) all three come arbitrarily close, A1 included.
    """
    found = {}
    for name, pattern in zip(("A1", "A2", "A3"), three_patterns(16, 4), strict=True):
        found[name] = attained(realise(name, 16, 4, "poisson"), pattern, "fastrg")
    holds = all(p.inside > 1 - 1e-6 and p.outside < 1e-6 for p in found.values())
    bilinear = attained(realise("A1", 16, 4), three_patterns(16, 4)[0])
    text = f"A1 inside: {found['A1'].inside:.6f} under Poisson, {bilinear.inside:.4f} under the bilinear link"
    return holds and bilinear.inside <= 0.25 + 1e-9, text


@statement("k + 2 heads", "repair", "instance", "n = 16, k = 4", saturated_heads)
def _heads() -> Found:
    """Claim: (needed) block models that meet the conditions under the bilinear link.

    Verdict: one single-cluster head per block, one for A3, one for A2: every edge with probability → 1.
    """
    heads = saturated_heads(16, 4)
    patterns = three_patterns(16, 4)
    law = torch.stack([head.expected_mask()[0, 0] for head in heads[:4]]).amax(0).numpy()
    inside, outside = float(law[patterns[0]].min()), float(law[~patterns[0]].max())
    shown = f"{len(heads)} heads; p is at least {inside:.6f} inside blocks and at most {outside:.6f} elsewhere"
    return len(heads) == 6 and inside > 1 - 1e-9 and outside < 1e-9, shown


@statement("O(n) or O(kn)", "slip", "instance", "n = 16, k = 4 and n = 1024, k = 16", expected_entries)
def _entries() -> Found:
    """Claim: the patterns have O(n) entries.

    Verdict: O(kn), as the appendix says; O(n) for bounded k only.
    """
    small, large = expected_entries(16, 4), expected_entries(1024, 16)
    holds = abs(small["union"] - 158.598) < 1e-2 and abs(large["union"] - 36363) < 1
    return holds, f"union: {small['union']:.1f} and {large['union']:,.0f} entries, {large['union'] / 1024:.1f}·n"


@statement("Algorithm 1 as printed", "slip", "instance", "four tokens in two pairs", fastrg_rates)
def _printed() -> Found:
    """Claim: D_Y = (diag(1Y))⁻¹ and D_Z likewise.

    Verdict: the inverse is misplaced: the printed rates are wrong.
    """
    pairs = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=float)
    rates = fastrg_rates(pairs, 0.5 * np.eye(2), pairs)
    holds = abs(rates.total - 4) < 1e-12 and abs(rates.printed_total - 0.25) < 1e-12
    return holds, f"{rates.total:g} edges are due, {rates.printed_total:g} come as printed"


@statement(
    "repeated draws collapse",
    "conclusion",
    "simulated",
    "one mask of 512 × 512 at p = 1, seed 0; and the formula",
    fastrg_max_density,
)
def _collapse() -> Found:
    """Claim: E[M] = Y B Zᵀ for the mask of Algorithm 1.

    Verdict: P(M_ij = 1) = 1 − e^(−p): at p = 1 only 63.2 %.
    """
    ones = torch.ones(1, 1, 512, 1)
    model = BlockModel(ones, torch.ones(1, 1, 1), ones)
    drawn = sample_edges(model, "fastrg", generator=torch.Generator().manual_seed(0)).density().item()
    cap = fastrg_max_density()
    deviation = 6 * (cap * (1 - cap)) ** 0.5 / 512  # six standard deviations: 2e-9
    holds = abs(drawn - cap) < deviation and abs(cap - (1 - exp(-1))) < 1e-12
    return holds, f"drawn {drawn:.4f}, cap {cap:.4f}, with δ = .01 {fastrg_max_density(0.01):.4f}"


@statement("two hops through relays", "conclusion", "theorem", "k = 4, 16, 30", two_hop_miss)
def _two_hops() -> Found:
    """Claim: relays connect all pairs in two hops.

    Verdict: under Algorithm 1 a pair misses all of k relays with probability (1 − .632²)^k.
    """
    found = [two_hop_miss(k) for k in (4, 16, 30)]
    holds = np.allclose(found, [0.12996637739247094, 0.0002853146391359162, 2.2580450578761772e-07], rtol=1e-9)
    return bool(holds), ", ".join(f"{p:.2g}" for p in found)


@statement("two layers under Algorithm 1", "repair", "simulated", "100 draws each, seed 0", simulate_two_hops)
def _two_layers() -> Found:
    """Claim: (needed) how often relays drawn by Algorithm 1 connect all pairs in two layers.

    Verdict: never at n = 16, k = 4; in about half of the draws at 64/16; nearly always at 256/30.
    """
    hits = [simulate_two_hops(n, k, 100) for n, k in ((16, 4), (64, 16), (256, 30))]
    seen = [clopper_pearson(count, 100, 1 - 1e-6) for count in hits]
    holds = all(low <= expected <= high for (low, high), expected in zip(seen, (0, 0.57, 0.97), strict=True))
    return holds, " and ".join(f"{count} of 100" for count in hits)


@statement("exploration is quadratic", "conclusion", "theorem", "n = 1024, δ = .01", exploration_edges)
def _exploration() -> Found:
    """Claim: training costs as many edges as the block model wants.

    Verdict: δ adds up to δ·n² edges, whatever the block model wants.
    """
    extra = exploration_edges(1024, 0.01)
    return abs(extra - 10485.76) < 1e-6, f"{extra:,.0f} extra edges at n = 1024"


@statement("the mean over masks is not a mask", "proof", "instance", "two tokens, p = ½", mask_means)
def _means() -> Found:
    """Claim: conditions on E[M] carry over to E[g(X)].

    Verdict: E[softmax over M] differs from the softmax on the support of E[M] and from the one weighted by E[M].
    """
    means = mask_means(0.5, [0, 1], [0, 0])
    numbers = [float(np.asarray(x).reshape(-1)[0]) for x in means]
    return bool(np.allclose(numbers, [0.25, 0.5, 1 / 3])), ", ".join(f"{x:.3f}" for x in numbers)
