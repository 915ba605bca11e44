"""Every mistake raises the library's own error, which says what was expected."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import theory
from sbmt import EdgeList, SbmtError
from theory import conditions, factorised, patterns, relays
from theory.certificate import certify
from theory.draws import certify_draws
from theory.path_cover import check_arcs, cover_with_few_paths, matching_deficit

pytestmark = pytest.mark.bad_input

SQUARE = np.ones((3, 3), dtype=bool)
EDGES = EdgeList.from_dense(torch.ones(2, 1, 3, 3, dtype=torch.bool))
OBLONG = EdgeList.from_dense(torch.ones(1, 1, 3, 4, dtype=torch.bool))
REAL = [torch.tensor([row]) for row in ([True, True, False], [True, False, False], [False] * 3)]


COVERS = theory.path_cover, theory.path_cover_bounds, matching_deficit, cover_with_few_paths
ARCS = [[1]], [[True], [True, False]], None, 3, "x", SQUARE[:2], SQUARE * 1.0, csr_array(SQUARE.astype(int)), EDGES


def masked(query_mask, key_mask):
    return EdgeList.from_dense(torch.zeros(1, 1, 3, 3, dtype=torch.bool), query_mask, key_mask)


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda: patterns.blocks(3, 4), "1 ≤ k ≤ n"),
        (lambda: patterns.blocks(3, 0), "k ≥ 1"),
        (lambda: patterns.blocks(0, 1), "n ≥ 1"),
        (lambda: patterns.blocks(3.0, 1), "n ≥ 1"),
        (lambda: theory.three_patterns(4, 5), "1 ≤ k ≤ n"),
        (lambda: theory.three_patterns(4, -1), "k ≥ 1"),
        (lambda: theory.three_patterns(4, 2, "first"), "'per_block'"),
        (lambda: theory.three_patterns(4, 2, [0, 4]), "in [0, 4)"),
        (lambda: theory.three_patterns(4, 2, [-1]), "in [0, 4)"),
        (lambda: theory.three_patterns(4, 2, [1, 1]), "distinct"),
        (lambda: theory.three_patterns(4, 2, [1.5]), "integers"),
        (lambda: theory.three_patterns(4, 2, ["1"]), "integers"),
        (lambda: patterns.one_based_blocks(4, 0), "k ≥ 1"),
        (lambda: theory.strided(4, 0), "stride ≥ 1"),
        (lambda: theory.strided(0, 1), "n ≥ 1"),
        (lambda: theory.fixed(4, 0, 0), "stride ≥ 1"),
        (lambda: theory.fixed(4, 2, 3), "c in [0, 2]"),
        (lambda: theory.fixed(4, 2, -1), "c in [0, 2]"),
        (lambda: theory.fixed(4, 2, 0.5), "c in [0, 2]"),
        (lambda: theory.sliding_window(4, -1), "window ≥ 0"),
        (lambda: theory.sliding_window(0, 1), "n ≥ 1"),
        (lambda: conditions.as_csr(SQUARE[:2]), "square boolean"),
        (lambda: conditions.as_csr(SQUARE.astype(int)), "square boolean"),
        (lambda: conditions.as_csr(csr_array(SQUARE.astype(float))), "square boolean"),
        (lambda: conditions.as_csr([[True], [True, False]]), "square boolean"),
        (lambda: conditions.as_csr(np.ones((2, 2, 2), dtype=bool)), "square boolean"),
        (lambda: conditions.as_csr(np.ones((0, 0), dtype=bool)), "square boolean"),
        (lambda: conditions.as_csr(None), "square boolean"),
        (lambda: conditions.as_csr(EDGES), "one example"),
        (lambda: conditions.as_csr(OBLONG), "as many queries as keys"),
        (lambda: conditions.as_csr(masked(REAL[0], REAL[1])), "the same real tokens"),
        (lambda: conditions.as_csr(masked(REAL[2], REAL[2])), "the same real tokens"),
        (lambda: theory.has_self_loops(SQUARE), "a list of patterns"),
        (lambda: theory.has_self_loops(csr_array(SQUARE)), "a list of patterns"),
        (lambda: theory.min_layers(EDGES), "a list of patterns"),
        (lambda: theory.min_layers([]), "at least one pattern"),
        *((lambda junk=junk: theory.min_layers(junk), "a list of patterns") for junk in (None, 3, 2.5, "x")),
        *((lambda junk=junk: theory.union(junk), "a list of patterns") for junk in (None, 3, "x", object())),
        (lambda: theory.min_layers([SQUARE], 1), "a permutation of 1 … 1"),
        (lambda: theory.min_layers([SQUARE], "x"), "a permutation of 1 … 1"),
        (lambda: theory.min_layers([SQUARE, np.ones((2, 2), dtype=bool)]), "all of one size"),
        (lambda: theory.min_layers([SQUARE, SQUARE], (1, 1)), "a permutation of 1 … 2"),
        (lambda: theory.min_layers([SQUARE, SQUARE], (0, 1)), "a permutation of 1 … 2"),
        (lambda: theory.min_layers([SQUARE, SQUARE], (1,)), "a permutation of 1 … 2"),
        (lambda: theory.min_layers([SQUARE, SQUARE], (1.0, 2.0)), "a permutation of 1 … 2"),
        (lambda: theory.static_layers([SQUARE], (2,)), "a permutation of 1 … 1"),
        (lambda: theory.receptive_sizes([SQUARE], 0), "n_layers ≥ 1"),
        (lambda: theory.missing_pairs([SQUARE], 1, most=0), "most ≥ 1"),
        (lambda: factorised.causal_layers([SQUARE]), "causal patterns"),
        (lambda: theory.check_path(SQUARE, [0.0, 1.0, 2.0]), "integers"),
        (lambda: theory.check_path(SQUARE, 3), "a list of tokens"),
        (lambda: theory.check_path(SQUARE[:2], [0, 1]), "square boolean"),
        (lambda: theory.find_hamiltonian_path(SQUARE.astype(float)), "square boolean"),
        (lambda: theory.find_hamiltonian_path(SQUARE, -1.0), "time limit"),
        (lambda: theory.find_hamiltonian_path(SQUARE, float("nan")), "time limit"),
        (lambda: theory.find_hamiltonian_path(SQUARE, "1"), "time limit"),
        (lambda: theory.path_cover(SQUARE, None), "time limit"),
        (lambda: theory.expected_hamiltonian_cycles(4, [0.5]), "a probability in [0, 1]"),
        (lambda: theory.expected_hamiltonian_cycles(4, None), "a probability in [0, 1]"),
        (lambda: check_arcs(3, [[0, 3]]), "in [0, 3)"),
        (lambda: check_arcs(3, [[0, -1]]), "from 0"),
        (lambda: check_arcs(3, [[0, 0.5]]), "pairs of integers"),
        (lambda: check_arcs(3, [[0, 1, 2]]), "pairs of integers"),
        (lambda: check_arcs(3, [[0, 1], [2]]), "pairs of integers"),
        (lambda: check_arcs(3, 7), "a list of arcs"),
        (lambda: check_arcs(3, [1, 2]), "pairs of integers"),
        *(
            (lambda call=call, arcs=arcs: call(arcs), "square boolean array of arcs")
            for call in COVERS
            for arcs in ARCS
        ),
        (lambda: relays.relay_theorem(3, 4, []), "1 ≤ k ≤ n"),
        (lambda: relays.relay_theorem(3, 1, None), "a list of arcs"),
        (lambda: relays.relay_theorem(3, 1, [], 2), "a list of tokens"),
        (lambda: relays.relay_theorem(3, 1, [[0, 7]]), "in [0, 3)"),
        (lambda: relays.relay_theorem(3, 1, [], [3]), "in [0, 3)"),
        (lambda: relays.canonical_path(3, 4), "1 ≤ k ≤ n"),
        (lambda: relays.paper_walk(4, 2, "other"), "'same', 'next'"),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2]], [0, 2]), "each of 4 tokens once"),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2, 2]], [0, 2]), "each of 4 tokens once"),
        (lambda: relays.one_relay_per_block_path(4, 3, [0, 2]), "each of 4 tokens once"),
        (lambda: relays.one_relay_per_block_path(4, [0, 1], [0, 2]), "each of 4 tokens once"),
        (lambda: relays.one_relay_per_block_path(4, [["a", [1]], [2, 3]], [0, 2]), "each of 4 tokens once"),
        (lambda: relays.one_relay_per_block_path(4.0, [[0, 1], [2, 3]], [0, 2]), "n ≥ 1"),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2, 3]], 2), "a list of relays"),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2, 3]], [0]), "one relay in every block"),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2, 3]], [0, 1, 2]), "one relay in every block"),
        (lambda: certify(SQUARE), "a list of patterns"),
        (lambda: certify([]), "at least one pattern"),
        (lambda: certify([SQUARE], (2,)), "a permutation of 1 … 1"),
        (lambda: certify([SQUARE[:2]]), "square boolean"),
        (lambda: certify([SQUARE], time_limit=-1), "time limit"),
        (lambda: certify([SQUARE]).condition(4), "condition 1, 2 or 3"),
        (lambda: certify_draws([]), "at least one draw"),
        (lambda: certify_draws(3), "lists of patterns"),
        (lambda: certify_draws([[SQUARE]], level="high"), "level in (0, 1)"),
        (lambda: certify_draws([[SQUARE]], level=1.0), "level in (0, 1)"),
        (lambda: certify_draws([SQUARE]), "a list of patterns"),
    ],
)
def test_the_error_says_what_was_expected(call, word):
    with pytest.raises(SbmtError) as caught:
        call()
    assert word in str(caught.value)
