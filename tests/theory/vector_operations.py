"""Maps every operation in the test vectors to a function of the vector's input.

Where the input holds a list of numbers, the answer is a list of the same length.
"""

import math
from collections import Counter
from itertools import permutations

import numpy as np
import torch

from sbmt.errors import choose
from tests.theory.graphs import count_entries
from theory import check_path, conditions, expectation, find_hamiltonian_path, patterns, realisability, relays
from theory import random_graphs as graphs

CAPS = {"1/k": "bernoulli", "1-exp(-1/k)": "fastrg", "1-e^(-1/k)": "fastrg", "1": "poisson", "exact": "bernoulli"}
"""Names that vectors use for the law behind a block's cap."""


def agrees(operation, given, got, expected, tol):
    """Returns whether an answer is as expected: numbers within ``tol``, or any valid path."""
    if operation == "construct_path_complete_blocks" and got is not None and expected is not None:
        return check_path(conditions.union(patterns_of(given)), got)
    return is_close(got, expected, tol)


def is_close(got, expected, tol):
    """Compares nested JSON values, where numbers may differ by ``tol``."""
    if isinstance(expected, dict):
        same = isinstance(got, dict) and got.keys() == expected.keys()
        return same and all(is_close(got[name], expected[name], tol) for name in expected)
    if isinstance(expected, list):
        same = isinstance(got, list) and len(got) == len(expected)
        return same and all(is_close(one, other, tol) for one, other in zip(got, expected, strict=True))
    if isinstance(expected, bool | str) or expected is None:
        return type(got) is type(expected) and got == expected
    return not isinstance(got, bool | str) and got is not None and abs(got - expected) <= tol


def relays_of(given):
    """Returns the vector's relays, by default the last k tokens."""
    return "last" if given.get("relays") is None else given["relays"]


def three(given):
    return patterns.three_patterns(given["n"], given["k"], relays_of(given))


def patterns_of(given):
    """Returns the patterns that a vector lists in rows of 0 and 1, or the three patterns for its n and k."""
    listed = given.get("rows_per_layer", [given["rows"]] if "rows" in given else None)
    if listed is None:
        return three(given)
    return [[[choose("entry", str(x), {"0": False, "1": True}) for x in row] for row in rows] for rows in listed]


def strided_of(given):
    return patterns.strided(given["n"], given["l"])


def fixed_of(given, causal=True):
    has_loops = given.get("self_loops") is True
    listed = patterns.fixed(given["n"], given["l"], given["c"], causal=causal, self_loops=has_loops)
    order = given.get("order")  # for example "212", which repeats a layer
    return listed if order is None else [listed[layer - 1] for layer in layers_of(order)]


def layers_of(order):
    """Returns the layers, counted from 1, of an order like "132" or [2, 1], or None if a vector has no order."""
    return None if order is None else [int(layer) for layer in (order if isinstance(order, list) else str(order))]


def by_order(listed, function):
    """Returns the function's answers for all orders of the patterns, by names like "132"."""
    orders = permutations(range(1, len(listed) + 1))
    return {"".join(map(str, order)): function(listed, order) for order in orders}


def over(name, function):
    """Returns an operation that answers for each number of a list; several named answers become lists."""

    def run(given):
        if not isinstance(given[name], list):
            return function(given)
        answers = [function(given | {name: value}) for value in given[name]]
        named = answers and isinstance(answers[0], dict)
        return {key: [answer[key] for answer in answers] for key in answers[0]} if named else answers

    return run


def law_of(given):
    """Returns the law behind a vector's ``cap``, ``law`` or ``sampler``, by default the Bernoulli law."""
    named = given.get("law", given.get("sampler", given.get("cap", "bernoulli")))
    named = str(named).replace(" ", "").replace("math.", "")
    return CAPS.get(named, named)


def pattern(given):
    matrices = dict(zip(("A1", "A2", "A3"), three(given), strict=True))
    matrices["union"] = np.logical_or.reduce(list(matrices.values()))
    chosen = choose("pattern", given["name"], matrices)
    return {"rows": ["".join("01"[int(entry)] for entry in row) for row in chosen], "nnz": int(chosen.sum())}


def pattern_nnz(given):
    by_formula = patterns.pattern_counts(given["n"], given["k"], relays_of(given))
    assert by_formula == count_entries(three(given))
    return by_formula


def one_based(given):
    sizes = np.bincount(patterns.one_based_blocks(given["n"], given["k"]))
    return {"sizes": sizes.tolist(), "nnz_A1": int((sizes**2).sum())}


def paper_walk(given):
    relay = given.get("relay", "same")
    walk = relays.paper_walk(given["n"], given["k"], "next" if relay == "new" else relay)
    visits = Counter(walk)
    return {
        "walk": walk,
        "length": len(walk),
        "repeats": {str(token): times for token, times in sorted(visits.items()) if times > 1},
        "is_hamiltonian": check_path(conditions.union(three(given)), walk),
    }


def relay_ham_path(given):
    verdict = relays.relay_theorem(given["n"], given["k"], given["block_arcs"], relays_of(given))
    return {name: getattr(verdict, name) for name in ("path_cover", "limit", "ham_path", "ham_cycle")}


def causal_rows(listed, tokens):
    keys = ([np.flatnonzero(matrix[token]).tolist() for token in tokens] for matrix in listed)
    return {**dict(zip(("A1", "A2"), keys, strict=True)), "nnz": list(count_entries(listed).values())}


def fixed_rows(given):
    listed = fixed_of(given)
    missing = sum(layer == 2 for layer, _ in conditions.missing_self_loops(listed))
    return causal_rows(listed, given["i"]) | {"missing_self_loops_A2": missing}


def links_all(listed):
    return not conditions.missing_pairs(listed, len(listed), most=1)


def links_all_earlier(listed, order=None):
    """Returns whether one pass through the patterns links every causal pair; causal sets never exceed {0 … i}."""
    n = len(listed[0])
    return conditions.receptive_sizes(listed, len(listed), order)[-1] == list(range(1, n + 1))


def causal_conditions(given):
    listed = choose("pattern", given["pattern"], {"strided": strided_of, "fixed": fixed_of})(given)
    order = find_hamiltonian_path(conditions.union(listed))
    return {
        "condition1": conditions.has_self_loops(listed),
        "condition2": order is not None,
        "order": order,
        "condition3": conditions.min_layers(listed) is not None,
        "causal_layers": by_order(listed, conditions.causal_layers),
    }


def min_block_size(given):
    m = realisability.min_block_size(given["k"], law_of(given))
    return {"m": m, "n": given["k"] * m}


def fits_in_block_budget(given):
    budget = realisability.fits_in_block_budget(given["n"], given["k"], law_of(given))
    return {"needed": budget.needed, "cap": budget.cap, "ok": budget.is_enough}


def a1_block_prob(given):
    clusters = given["c"] * torch.eye(given["k"], dtype=torch.float64)
    block = given.get("a", 1.0) ** 2 * realisability.block_matrix(clusters)
    return {"diag": float(block[0, 0]), "off": float(block[0, -1]) if given["k"] > 1 else 0.0}


def a2_relay_prob(given):
    k = given["k"]
    model = realisability.realise("A2", k + 1, k, c=given["c"], node=given["a"], relays=[k])
    p, fastrg = (realisability.edge_law(model, sampler)[0, 0, 0] for sampler in ("exact", "fastrg"))
    found = {"S11": model.block_matrix[0, 0, 0], "p_relay": p[k], "p_other": p[0], "p_relay_fastrg": fastrg[k]}
    return {name: float(number) for name, number in found.items()}


def expected_edges(given):
    p, loops = given.get("p", "lemma1"), given.get("self_loops", True)
    return realisability.expected_entries(given["n"], given["k"], p, self_loops=loops, relays=relays_of(given))


def fastrg_rates(given):
    key = given["Y"] if given.get("Z", "Y") == "Y" else given["Z"]
    rates = realisability.fastrg_rates(given["Y"], given["B"], key)
    return {
        "total_rate": rates.total,
        "edge_rate": rates.edge.tolist(),
        "edge_prob_in_block": float(rates.probability[0, 0]),  # rate of the first query with the first key
        "expected_distinct": rates.distinct,
        "printed_total_rate": rates.printed_total,
    }


def mask_expectation_gap(given):
    means = expectation.mask_means(given["p"], given["V"], given["scores"], given.get("self_loop", True))
    return dict(zip(("expectation", "support_mask", "soft_mask"), (mean.tolist() for mean in means), strict=True))


def of_graph(function):
    """Returns an operation for a function of n and p."""
    return over("n", lambda given: function(given["n"], given["p"]))


OPERATIONS = {
    "a1_block_prob": over("k", a1_block_prob),
    "a2_relay_prob": over("k", a2_relay_prob),
    # k blocks of m tokens, with the last k tokens as relays: k/(k(m − 1)/m) paths per block of non-relays
    "block_mean_path_cover_limit": over(
        "m", lambda given: given["m"] / (given["m"] - 1) if given["m"] > 1 else math.inf
    ),
    "block_sizes": lambda given: patterns.block_sizes(given["n"], given["k"]),
    "block_sizes_one_based_literal": one_based,
    "causal_conditions": causal_conditions,
    "check_path": lambda given: check_path(conditions.union(patterns_of(given)), given["order"]),
    "construct_path_complete_blocks": lambda given: relays.canonical_path(given["n"], given["k"], relays_of(given)),
    "directed_limit": over("c", lambda given: graphs.directed_limit(given["c"])._asdict()),
    "expected_cycles": of_graph(graphs.expected_hamiltonian_cycles),
    "expected_edges": over("k", expected_edges),
    "fastrg_max_density": over("delta", lambda given: realisability.fastrg_max_density(given["delta"])),
    "fastrg_rates": fastrg_rates,
    "fastrg_two_hop_miss": over("k", lambda given: realisability.two_hop_miss(given["k"], given.get("q"))),
    "fits_in_block_budget": fits_in_block_budget,
    "fixed_bidirectional_full": lambda given: links_all(fixed_of(given, causal=False)),
    "fixed_rows": fixed_rows,
    "fixed_two_layer_full": lambda given: links_all_earlier(fixed_of(given)),
    "in_block_bound": over("p_out", lambda given: realisability.in_block_bound(given["groups"], given["p_out"])),
    "lemma1_p": over("n", lambda given: graphs.lemma1_probability(given["n"])),
    "mask_expectation_gap": mask_expectation_gap,
    "matching_deficit": over("mean_degree", lambda given: graphs.matching_deficiency(given["mean_degree"])),
    "min_block_size": over("k", min_block_size),
    "min_layers": lambda given: conditions.min_layers(patterns_of(given), layers_of(given.get("order"))),
    "min_layers_all_orders": lambda given: by_order(patterns_of(given), conditions.min_layers),
    "paper_walk": paper_walk,
    "pattern": pattern,
    "pattern_nnz": pattern_nnz,
    "pattern_union_nnz": lambda given: pattern_nnz(given)["union"],
    "prob_cycle_exists_exact": of_graph(graphs.prob_cycle_exact),
    "prob_min_degree": of_graph(graphs.prob_all_degrees),
    "prob_no_zero_outdegree": of_graph(graphs.prob_no_zero_out_degree),
    "receptive_sizes": lambda given: conditions.receptive_sizes(
        patterns_of(given), given["layers"], layers_of(given.get("order"))
    ),
    "relay_ham_path": relay_ham_path,
    "static_vs_layered": lambda given: by_order(
        patterns_of(given), lambda *case: [conditions.static_layers(*case), conditions.min_layers(*case)]
    ),
    "strided_rows": lambda given: causal_rows(strided_of(given), given["i"]),
    "strided_two_layer_full": lambda given: by_order(strided_of(given), links_all_earlier),
    "support_edges_sum": over("n", over("k", lambda given: sum(list(pattern_nnz(given).values())[:3]))),
}
