"""From a vector's operation to the theory's function, for patterns, conditions and Hamiltonian paths."""

from collections import Counter
from itertools import permutations

import numpy as np

from sbmt.errors import SbmtError, choose, is_integer
from tests.theory.graphs import count_entries
from theory import conditions, factorised, hamiltonian, patterns, relays
from theory.checks import as_list

ENTRIES = {"0": False, "1": True}
BRIDGES = {"same": "same", "next": "next", "new": "next"}  # "new" is another word for "next"


def relays_of(given):
    """The vector's relays; the last k tokens where it names none."""
    return "last" if given.get("relays") is None else given["relays"]


def three(given):
    return patterns.three_patterns(given["n"], given["k"], relays_of(given))


def from_rows(rows):
    """A pattern from strings of 0 and 1, or lists of them; nested lists, whose shape the theory checks."""
    listed = as_list(rows, "a list of rows", "give strings of 0 and 1")
    return [[choose("entry", str(entry), ENTRIES) for entry in entries_of(row)] for row in listed]


def entries_of(row):
    """The characters of a string, or the items of a list."""
    return list(row) if isinstance(row, str) else as_list(row, "a row of 0 and 1", "give a string")


def patterns_of(given):
    """The patterns that a vector writes out, or the three patterns that it names by n and k."""
    if "rows_per_layer" in given:
        return [from_rows(rows) for rows in given["rows_per_layer"]]
    if "rows" in given:
        return [from_rows(given["rows"])]
    return three(given)


def layers_of(order, listed):
    """The layers, counted from 1, that an order like "132" or [2, 1] names; None where a vector has none."""
    layers = {str(layer): layer for layer in range(1, len(listed) + 1)}
    if order is None:
        return None
    return [choose("layer", str(layer), layers) for layer in (order if isinstance(order, list) else str(order))]


def in_order(listed, order):
    """Patterns as an order like "12", "212" or [2, 1] lines them up."""
    return [listed[layer - 1] for layer in layers_of(order, listed)]


def key_of(order):
    return "".join(map(str, order))


def orders(listed):
    return permutations(range(1, len(listed) + 1))


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


def min_layers_all_orders(given):
    listed = patterns_of(given)
    return {key_of(order): conditions.min_layers(listed, order) for order in orders(listed)}


def static_vs_layered(given):
    listed = patterns_of(given)
    return {
        key_of(order): [conditions.static_layers(listed, order), conditions.min_layers(listed, order)]
        for order in orders(listed)
    }


def receptive_sizes(given):
    listed = patterns_of(given)
    return conditions.receptive_sizes(listed, given["layers"], layers_of(given.get("order"), listed))


def min_layers(given):
    listed = patterns_of(given)
    return conditions.min_layers(listed, layers_of(given.get("order"), listed))


def check_path(given):
    return hamiltonian.check_path(conditions.union(patterns_of(given)), given["order"])


def paper_walk(given):
    walk = relays.paper_walk(given["n"], given["k"], choose("relay", given.get("relay", "same"), BRIDGES))
    visits = Counter(walk)
    return {
        "walk": walk,
        "length": len(walk),
        "repeats": {str(token): times for token, times in sorted(visits.items()) if times > 1},
        "is_hamiltonian": hamiltonian.check_path(conditions.union(three(given)), walk),
    }


def relay_ham_path(given):
    verdict = relays.relay_theorem(given["n"], given["k"], given["block_arcs"], relays_of(given))
    return {
        "path_cover": verdict.path_cover,
        "limit": verdict.limit,
        "ham_path": verdict.ham_path,
        "ham_cycle": verdict.ham_cycle,
    }


def entries(matrix, tokens):
    do = "count tokens from 0"
    listed = as_list(tokens, "a list of tokens", do)
    if not all(is_integer(token) and 0 <= token < len(matrix) for token in listed):
        raise SbmtError(f"tokens in [0, {len(matrix)})", listed, do)
    return [np.flatnonzero(matrix[token]).tolist() for token in listed]


def counts(listed):
    return list(count_entries(listed).values())


def strided_of(given):
    return patterns.strided(given["n"], given["l"])


def strided_rows(given):
    listed = strided_of(given)
    return {"A1": entries(listed[0], given["i"]), "A2": entries(listed[1], given["i"]), "nnz": counts(listed)}


def fixed_of(given, causal=True):
    return patterns.fixed(given["n"], given["l"], given["c"], causal=causal, self_loops=given.get("self_loops") is True)


def fixed_rows(given):
    listed = fixed_of(given)
    return {
        "A1": entries(listed[0], given["i"]),
        "A2": entries(listed[1], given["i"]),
        "nnz": counts(listed),
        "missing_self_loops_A2": sum(layer == 2 for layer, _ in conditions.missing_self_loops(listed)),
    }


def fixed_two_layer_full(given):
    return factorised.links_all_earlier(in_order(fixed_of(given), given.get("order", "12")))


def strided_two_layer_full(given):
    listed = strided_of(given)
    return {key_of(order): factorised.links_all_earlier(listed, order) for order in orders(listed)}


def fixed_bidirectional_full(given):
    layers = in_order(fixed_of(given, causal=False), given.get("order", "12"))
    return not conditions.missing_pairs(layers, len(layers), most=1)


def causal_conditions(given):
    build = choose("pattern", given["pattern"], {"strided": strided_of, "fixed": fixed_of})
    listed = build(given)
    order = hamiltonian.find_hamiltonian_path(conditions.union(listed))
    return {
        "condition1": conditions.has_self_loops(listed),
        "condition2": order is not None,
        "order": order,
        "condition3": conditions.min_layers(listed) is not None,
        "causal_layers": {key_of(order): factorised.causal_layers(listed, order) for order in orders(listed)},
    }


GRAPH_OPERATIONS = {
    "block_sizes": lambda given: patterns.block_sizes(given["n"], given["k"]),
    "block_sizes_one_based_literal": one_based,
    "causal_conditions": causal_conditions,
    "check_path": check_path,
    "construct_path_complete_blocks": lambda given: relays.canonical_path(given["n"], given["k"], relays_of(given)),
    "fixed_bidirectional_full": fixed_bidirectional_full,
    "fixed_rows": fixed_rows,
    "fixed_two_layer_full": fixed_two_layer_full,
    "min_layers": min_layers,
    "min_layers_all_orders": min_layers_all_orders,
    "paper_walk": paper_walk,
    "pattern": pattern,
    "pattern_nnz": pattern_nnz,
    "pattern_union_nnz": lambda given: pattern_nnz(given)["union"],
    "receptive_sizes": receptive_sizes,
    "relay_ham_path": relay_ham_path,
    "static_vs_layered": static_vs_layered,
    "strided_rows": strided_rows,
    "strided_two_layer_full": strided_two_layer_full,
}
