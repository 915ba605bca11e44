"""From a vector's operation to the theory's function, for random graphs, realisability and samplers.

Every callable takes the vector's input. Where that holds a list, the answer is a list of the same length.
"""

import math

from sbmt.errors import SbmtError, check_sizes
from theory import random_graphs, realisability, sampler_facts

# How vectors may spell the two caps of a block's probability.
CAPS = {"1/k": "bernoulli", "1-exp(-1/k)": "fastrg", "1-e^(-1/k)": "fastrg", "1": "poisson"}


def each(function, values):
    """``function`` of a number, or of each in a list."""
    return [function(value) for value in values] if isinstance(values, list) else function(values)


def by_name(names, function, values):
    """A dict of columns, each a number or a list, from a function that returns one row."""
    rows = [function(value) for value in values] if isinstance(values, list) else function(values)
    if not isinstance(values, list):
        return dict(zip(names, rows, strict=True))
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def law_of(given):
    """The law behind a vector's ``cap``, ``law`` or ``sampler``; the Bernoulli law if it has none."""
    named = given.get("law", given.get("sampler", given.get("cap", "bernoulli")))
    named = str(named).replace(" ", "").replace("math.", "")
    law = CAPS.get(named, {"exact": "bernoulli"}.get(named, named))
    if law not in realisability.BLOCK_CAPS:
        raise SbmtError(f"a cap among {list(CAPS)}", named, "spell it so")
    return law


def of_graph(function):
    """For functions of n and p."""
    return lambda given: each(lambda n: function(n, given["p"]), given["n"])


def min_block_size(given):
    def row(k):
        m = realisability.min_block_size(k, law_of(given))
        return m, k * m

    return by_name(("m", "n"), row, given["k"])


def fits_in_block_budget(given):
    budget = realisability.fits_in_block_budget(given["n"], given["k"], law_of(given))
    return {"needed": budget.needed, "cap": budget.cap, "ok": budget.is_enough}


def a1_block_prob(given):
    membership = given.get("a", 1.0)
    return by_name(("diag", "off"), lambda k: realisability.one_hot_block(k, given["c"], membership), given["k"])


def a2_relay_prob(given):
    def row(k):
        model = realisability.realise("A2", k + 1, k, c=given["c"], node=given["a"], relays=[k])
        p = model.expected_mask()[0, 0, 0]
        fastrg = realisability.edge_law(model, "fastrg")[0, 0, 0]
        return float(model.block_matrix[0, 0, 0]), float(p[k]), float(p[0]), float(fastrg[k])

    return by_name(("S11", "p_relay", "p_other", "p_relay_fastrg"), row, given["k"])


def expected_edges(given):
    def row(k):
        counts = sampler_facts.expected_entries(
            given["n"],
            k,
            given.get("p", "lemma1"),
            self_loops=given.get("self_loops", True),
            relays=given.get("relays", "last"),
        )
        return [counts[name] for name in names]

    names = ("A1", "A2", "A3", "sum", "union")
    return by_name(names, row, given["k"])


def support_edges_sum(given):
    if isinstance(given["n"], list):
        return [support_edges_sum({"n": n, "k": given["k"]}) for n in given["n"]]
    return each(lambda k: sampler_facts.support_entries(given["n"], k), given["k"])


def fastrg_rates(given):
    key = given["Y"] if given.get("Z", "Y") == "Y" else given["Z"]
    rates = sampler_facts.fastrg_rates(given["Y"], given["B"], key)
    return {
        "total_rate": rates.total,
        "edge_rate": rates.edge.tolist(),
        "edge_prob_in_block": float(rates.probability[0, 0]),  # of the first query with the first key
        "expected_distinct": rates.distinct,
        "printed_total_rate": rates.printed_total,
    }


def mask_expectation_gap(given):
    means = sampler_facts.mask_means(given["p"], given["V"], given["scores"], given.get("self_loop", True))
    return {"expectation": means[0].tolist(), "support_mask": means[1].tolist(), "soft_mask": means[2].tolist()}


def block_mean_path_cover_limit(given):
    """k blocks of m tokens, the last k of all tokens relays: k/(k(m − 1)/m) paths per block of non-relays."""

    def limit(m):
        check_sizes(m=m)
        return m / (m - 1) if m > 1 else math.inf

    return each(limit, given["m"])


PROBABILITY_OPERATIONS = {
    "lemma1_p": lambda given: each(random_graphs.lemma1_probability, given["n"]),
    "expected_cycles": of_graph(random_graphs.expected_hamiltonian_cycles),
    "prob_cycle_exists_exact": of_graph(random_graphs.prob_cycle_exact),
    "prob_min_degree": of_graph(random_graphs.prob_all_degrees),
    "prob_no_zero_outdegree": of_graph(random_graphs.prob_no_zero_out_degree),
    "directed_limit": lambda given: by_name(("cycle", "path"), random_graphs.directed_limit, given["c"]),
    "matching_deficit": lambda given: each(random_graphs.matching_deficiency, given["mean_degree"]),
    "min_block_size": min_block_size,
    "fits_in_block_budget": fits_in_block_budget,
    "in_block_bound": lambda given: each(
        lambda p_out: realisability.in_block_bound(given["groups"], p_out), given["p_out"]
    ),
    "a1_block_prob": a1_block_prob,
    "a2_relay_prob": a2_relay_prob,
    "expected_edges": expected_edges,
    "support_edges_sum": support_edges_sum,
    "fastrg_rates": fastrg_rates,
    "fastrg_max_density": lambda given: each(sampler_facts.fastrg_max_density, given["delta"]),
    "fastrg_two_hop_miss": lambda given: each(lambda k: sampler_facts.two_hop_miss(k, given.get("q")), given["k"]),
    "mask_expectation_gap": mask_expectation_gap,
    "block_mean_path_cover_limit": block_mean_path_cover_limit,
}
