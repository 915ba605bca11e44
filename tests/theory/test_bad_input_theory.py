"""Every mistake raises the library's own error, which says what was expected."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import theory
from sbmt import EdgeList, SbmtError
from tests.theory.vector_operations import OPERATIONS
from theory import conditions, factorised, patterns, random_graphs, realisability, relays, sampler_facts, simulation
from theory.certificate import certify
from theory.draws import certify_draws
from theory.path_cover import check_arcs

pytestmark = pytest.mark.bad_input

SQUARE = np.ones((3, 3), dtype=bool)
EDGES = EdgeList.from_dense(torch.ones(2, 1, 3, 3, dtype=torch.bool))
OBLONG = EdgeList.from_dense(torch.ones(1, 1, 3, 4, dtype=torch.bool))
FIRST, FIRST_TWO, NONE = (torch.arange(3)[None] < n for n in (1, 2, 0))
NO_PATTERN = ([[1]], [[True], [True, False]], None, SQUARE[:2], csr_array(SQUARE.astype(int)), SQUARE[None])


def masked(query_mask, key_mask):
    return EdgeList.from_dense(torch.zeros(1, 1, 3, 3, dtype=torch.bool), query_mask, key_mask)


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda: patterns.blocks(3, 4), "1 ≤ k ≤ n"),
        (lambda: patterns.blocks(3, 0), "k ≥ 1"),
        (lambda: theory.three_patterns(4, 2, "first"), "'per_block'"),
        (lambda: theory.three_patterns(4, 2, [0, 4]), "in [0, 4)"),
        (lambda: theory.three_patterns(4, 2, [1, 1]), "distinct"),
        (lambda: theory.three_patterns(4, 2, [1.5]), "integers"),
        (lambda: patterns.one_based_blocks(4, 0), "k ≥ 1"),
        (lambda: theory.strided(4, 0), "stride ≥ 1"),
        (lambda: theory.fixed(4, 0, 0), "stride ≥ 1"),
        (lambda: theory.fixed(4, 2, 3), "c in [0, 2]"),
        (lambda: theory.sliding_window(4, -1), "window ≥ 0"),
        *((lambda junk=junk: conditions.as_csr(junk), "square boolean") for junk in NO_PATTERN),
        (lambda: theory.find_hamiltonian_path(SQUARE[:2]), "square boolean"),
        (lambda: theory.path_cover(SQUARE[:2]), "square boolean"),
        (lambda: conditions.as_csr(np.ones((0, 0), dtype=bool)), "square boolean"),
        (lambda: conditions.as_csr(EDGES), "one example"),
        (lambda: conditions.as_csr(OBLONG), "as many queries as keys"),
        (lambda: conditions.as_csr(masked(FIRST_TWO, FIRST)), "the same real tokens"),
        (lambda: conditions.as_csr(masked(NONE, NONE)), "the same real tokens"),
        *((lambda junk=junk: theory.min_layers(junk), "a list of patterns") for junk in (SQUARE, EDGES, None)),
        (lambda: theory.min_layers([]), "at least one pattern"),
        (lambda: theory.min_layers([SQUARE, np.ones((2, 2), dtype=bool)]), "all of one size"),
        *(
            (lambda order=order: theory.min_layers([SQUARE, SQUARE], order), "a permutation of 1 … 2")
            for order in (1, (1, 1), (0, 1), (1.0, 2.0))
        ),
        (lambda: theory.receptive_sizes([SQUARE], 0), "n_layers ≥ 1"),
        (lambda: theory.missing_pairs([SQUARE], 1, most=0), "most ≥ 1"),
        (lambda: factorised.causal_layers([SQUARE]), "causal patterns"),
        (lambda: theory.check_path(SQUARE, [0.0, 1.0, 2.0]), "integers"),
        (lambda: theory.check_path(SQUARE, 3), "a list of tokens"),
        *(
            (lambda limit=limit: theory.find_hamiltonian_path(SQUARE, limit), "time limit")
            for limit in (-1.0, math.nan, "1")
        ),
        (lambda: check_arcs(3, [[0, 3]]), "in [0, 3)"),
        (lambda: check_arcs(3, [[0, -1]]), "from 0"),
        *((lambda arcs=arcs: check_arcs(3, arcs), "pairs of integers") for arcs in ([[0, 0.5]], [[0, 1, 2]])),
        (lambda: relays.relay_theorem(3, 1, None), "a list of arcs"),
        (lambda: relays.relay_theorem(3, 1, [], 2), "a list of tokens"),
        (lambda: relays.paper_walk(4, 2, "other"), "'same', 'next'"),
        *(
            (lambda cycles=cycles: relays.one_relay_per_block_path(4, cycles, [0, 2]), "each of 4 tokens once")
            for cycles in ([[0, 1], [2]], [[0, 1], [2, 2]], 3, [["a", [1]], [2, 3]])
        ),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2, 3]], 2), "a list of relays"),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2, 3]], [0, 1, 2]), "one relay in every block"),
        (lambda: certify(SQUARE), "a list of patterns"),
        (lambda: certify([SQUARE], time_limit=-1), "time limit"),
        (lambda: certify([SQUARE]).condition(4), "condition 1, 2 or 3"),
        (lambda: certify_draws([]), "at least one draw"),
        (lambda: certify_draws(3), "lists of patterns"),
        (lambda: certify_draws([[SQUARE]], level=1.0), "level in (0, 1)"),
    ],
)
def test_the_error_says_what_was_expected(call, word):
    with pytest.raises(SbmtError) as caught:
        call()
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: random_graphs.lemma1_probability("4"),
        lambda: random_graphs.arc_probability(4, "lemma2"),
        lambda: random_graphs.arc_probability(4, math.nan),
        lambda: random_graphs.expected_hamiltonian_cycles(3, random_graphs.lemma1_probability(3)),
        lambda: random_graphs.expected_hamiltonian_cycles(0, 0.5),
        lambda: random_graphs.prob_cycle_exact(6, 0.5),
        lambda: random_graphs.directed_limit(math.nan),
        lambda: random_graphs.matching_deficiency(-1),
        lambda: realisability.in_block_bound(2, 1.5),
        lambda: realisability.min_block_size(2, "binomial"),
        lambda: realisability.realise("A4", 8, 2),
        lambda: realisability.realise("A1", 8, 2, "softmax"),
        lambda: realisability.realise("A1", 8, 2, "poisson", c=1.0, rate=40.0),
        lambda: realisability.edge_law(realisability.realise("A1", 8, 2), "gibbs"),
        lambda: OPERATIONS["min_block_size"]({"k": 2, "cap": "2/k"}),
        lambda: sampler_facts.fastrg_rates(SQUARE, SQUARE[:2, :2], SQUARE),
        lambda: sampler_facts.fastrg_rates(SQUARE, -1.0 * SQUARE, SQUARE),
        lambda: sampler_facts.fastrg_rates(SQUARE, math.nan * SQUARE, SQUARE),
        lambda: sampler_facts.fastrg_max_density(1),
        lambda: sampler_facts.two_hop_miss(2, 1.1),
        lambda: sampler_facts.mask_means(0.5, [1.0, 2.0], [0.0]),
        lambda: sampler_facts.mask_means(1.5, [1.0], [0.0]),
        lambda: sampler_facts.mask_means(0.5, [1.0] * 30, [0.0] * 30),
        lambda: sampler_facts.mask_means(0.5, [], []),
        lambda: simulation.simulate_cycle(4, 1.5, 3),
        lambda: simulation.simulate_path(4, 0.5, 0),
        lambda: simulation.simulate_relay_path(4, 2, 0.5, 3, relay_probability=2),
        lambda: simulation.Estimate(1, 3).interval(1.0),
    ],
)
def test_numbers_out_of_range_are_named(call):
    with pytest.raises(SbmtError, match="expected"):
        call()
