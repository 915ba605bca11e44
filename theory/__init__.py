"""Checks the conditions of the theorem that SBM attention is a universal approximator.

A pattern is a boolean matrix with one row per query and one column per key. Each entry is an arc from key to query.
"""

import sbmt.interrupt  # noqa: F401 - imported before torch, which takes seconds
from theory.certificate import Certificate, certify
from theory.conditions import (
    causal_layers,
    has_self_loops,
    min_layers,
    missing_pairs,
    receptive_sizes,
    static_layers,
    union,
)
from theory.hamiltonian import check_path, find_hamiltonian_cycle, find_hamiltonian_path
from theory.path_cover import Undecided, path_cover, path_cover_bounds
from theory.patterns import block_sizes, fixed, pattern_counts, strided, three_patterns
from theory.random_graphs import expected_hamiltonian_cycles, lemma1_probability
from theory.realisability import min_block_size
from theory.relays import canonical_path, counterexample, one_relay_per_block_path, paper_walk, relay_theorem
from theory.simulation import certify_draws

__all__ = [
    "Certificate",
    "Undecided",
    "block_sizes",
    "canonical_path",
    "causal_layers",
    "certify",
    "certify_draws",
    "check_path",
    "counterexample",
    "expected_hamiltonian_cycles",
    "find_hamiltonian_cycle",
    "find_hamiltonian_path",
    "fixed",
    "has_self_loops",
    "lemma1_probability",
    "min_block_size",
    "min_layers",
    "missing_pairs",
    "one_relay_per_block_path",
    "paper_walk",
    "path_cover",
    "path_cover_bounds",
    "pattern_counts",
    "receptive_sizes",
    "relay_theorem",
    "static_layers",
    "strided",
    "three_patterns",
    "union",
]
