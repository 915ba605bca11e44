"""Every mistake raises the library's own error, which says what was expected."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import theory
from sbmt import EdgeList, SbmtError
from tests.theory.vector_operations import OPERATIONS
from theory import (
    conditions,
    expectation,
    factorised,
    patterns,
    random_graphs,
    realisability,
    relays,
    sampler_facts,
    simulation,
)
from theory.certificate import certify
from theory.draws import certify_draws, clopper_pearson
from theory.exact_search import Deadline
from theory.path_cover import check_arcs

pytestmark = pytest.mark.bad_input

SQUARE = np.ones((3, 3), dtype=bool)
EDGES = EdgeList.from_dense(torch.ones(2, 1, 3, 3, dtype=torch.bool))
OBLONG = EdgeList.from_dense(torch.ones(1, 1, 3, 4, dtype=torch.bool))
FIRST, FIRST_TWO, NONE = (torch.arange(3)[None] < n for n in (1, 2, 0))
A1_MODEL = realisability.realise("A1", 4, 2, "poisson")
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
        *((lambda junk=junk: theory.three_patterns(4, 2, [junk]), "integers") for junk in (1.5, True)),
        (lambda: patterns.one_based_blocks(4, 0), "k ≥ 1"),
        (lambda: theory.strided(4, 0), "stride ≥ 1"),
        (lambda: theory.fixed(4, 0, 0), "stride ≥ 1"),
        *((lambda c=c: theory.fixed(4, 2, c), "c in [0, 2]") for c in (3, True, "1")),
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
            for order in (1, (1, 1), (0, 1), (1.0, 2.0), (True, 2))
        ),
        (lambda: theory.receptive_sizes([SQUARE], 0), "n_layers ≥ 1"),
        (lambda: theory.missing_pairs([SQUARE], 1, most=0), "most ≥ 1"),
        (lambda: factorised.causal_layers([SQUARE]), "causal patterns"),
        *((lambda order=order: theory.check_path(SQUARE, order), "integers") for order in ([0.0, 1, 2], [False, True])),
        (lambda: theory.check_path(SQUARE, 3), "a list of tokens"),
        *(
            (lambda limit=limit: theory.find_hamiltonian_path(SQUARE, limit), "time limit")
            for limit in (-1.0, math.nan, "1", True, 10**400)
        ),
        (lambda: check_arcs(3, [[0, 3]]), "in [0, 3)"),
        (lambda: check_arcs(3, [[0, -1]]), "from 0"),
        *((lambda arcs=arcs: check_arcs(3, arcs), "pairs of integers") for arcs in ([[0, 0.5]], [[0, 1, 2]])),
        (lambda: relays.relay_theorem(3, 1, None), "a list of arcs"),
        (lambda: relays.relay_theorem(3, 1, [], 2), "a list of tokens"),
        (lambda: relays.paper_walk(4, 2, "other"), "'same', 'next'"),
        *(
            (lambda cycles=cycles: relays.one_relay_per_block_path(4, cycles, [0, 2]), "each of 4 tokens once")
            for cycles in ([[0, 1], [2]], [[0, 1], [2, 2]], 3, [["a", [1]], [2, 3]], [[0, True], [2, 3]])
        ),
        (lambda: relays.one_relay_per_block_path(4, [[0, 1], [2, 3]], 2), "a list of relays"),
        *(
            (lambda chosen=chosen: relays.one_relay_per_block_path(4, [[0, 1], [2, 3]], chosen), "one relay in every")
            for chosen in ([0, 1, 2], [0], [0, 1], [0, 7], [0, 2, 7], [0.0, 2.0], [0, True])
        ),
        *(
            (lambda call=call, pattern=pattern: call(A1_MODEL, pattern), word)
            for call in (realisability.attained, expectation.mask_deviation)
            for pattern, word in (
                (patterns.three_patterns(4, 2)[0].astype(int), "square boolean"),
                (None, "square boolean"),
                (SQUARE, "a pattern of shape (4, 4)"),
            )
        ),
        (lambda: certify(SQUARE), "a list of patterns"),
        (lambda: certify([SQUARE], time_limit=-1), "time limit"),
        (lambda: certify([SQUARE]).condition(4), "condition 1, 2 or 3"),
        (lambda: certify_draws([]), "at least one draw"),
        (lambda: certify_draws(3), "lists of patterns"),
        *((lambda at=at: certify_draws([[SQUARE]], level=at), "level in (0, 1)") for at in (1.0, "1", True, math.nan)),
        *((lambda at=at: clopper_pearson(1, 3, at), "level in (0, 1)") for at in (0, "1")),
    ],
)
def test_the_error_says_what_was_expected(call, word):
    with pytest.raises(SbmtError) as caught:
        call()
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        *(lambda n=n: random_graphs.lemma1_probability(n) for n in ("4", True, math.inf, 10**400)),
        *(lambda p=p: random_graphs.arc_probability(4, p) for p in ("lemma2", math.nan, True)),
        lambda: random_graphs.expected_hamiltonian_cycles(3, random_graphs.lemma1_probability(3)),
        lambda: random_graphs.expected_hamiltonian_cycles(0, 0.5),
        lambda: random_graphs.prob_cycle_exact(6, 0.5),
        *(lambda c=c: random_graphs.directed_limit(c) for c in (math.nan, "x", None)),
        *(lambda c=c: random_graphs.threshold_probability(10, c) for c in (math.nan, "x", True)),
        *(lambda c=c: random_graphs.matching_deficiency(c) for c in (-1, "x", math.inf, [1.0])),
        *(lambda p=p: realisability.in_block_bound(2, p) for p in (1.5, "x", True)),
        *(lambda k=k: realisability.one_hot_block(k, 2.0) for k in (0, -1, 2.5)),
        *(lambda c=c: realisability.one_hot_block(2, c) for c in (math.nan, math.inf, "x", True)),
        *(lambda one=one: realisability.one_hot_block(2, 2.0, one) for one in (2, -0.5, math.nan, "x")),
        lambda: realisability.min_block_size(2, "binomial"),
        lambda: realisability.realise("A4", 8, 2),
        lambda: realisability.realise("A1", 8, 2, "softmax"),
        lambda: realisability.realise("A1", 8, 2, "poisson", c=1.0, rate=40.0),
        *(lambda c=c: realisability.realise("A1", 8, 2, c=c) for c in (0, math.inf, "x")),
        lambda: realisability.realise("A2", 8, 2, node=math.nan),
        lambda: realisability.saturated_heads(8, 2, node="x"),
        lambda: realisability.edge_law(realisability.realise("A1", 8, 2), "gibbs"),
        lambda: sampler_facts.fastrg_rates(SQUARE, SQUARE[:2, :2], SQUARE),
        lambda: sampler_facts.fastrg_rates(SQUARE, -1.0 * SQUARE, SQUARE),
        lambda: sampler_facts.fastrg_rates(SQUARE, math.nan * SQUARE, SQUARE),
        *(lambda y=y: sampler_facts.fastrg_rates(y, [[1]], [[1]]) for y in ([[1], [1, 1]], "x", 1, [["a"]], None)),
        *(lambda delta=delta: sampler_facts.fastrg_max_density(delta) for delta in (1, "x", False)),
        lambda: sampler_facts.exploration_edges(3, "x"),
        *(lambda q=q: sampler_facts.two_hop_miss(2, q) for q in (1.1, "x", True)),
        lambda: sampler_facts.mask_means(0.5, [1.0, 2.0], [0.0]),
        *(lambda p=p: sampler_facts.mask_means(p, [1.0], [0.0]) for p in (1.5, "x", math.nan, [0.5, 0.5], [[0.5]])),
        *(
            lambda values=values, scores=scores: sampler_facts.mask_means(0.5, values, scores)
            for values, scores in (
                ([1.0], [math.nan]),
                ([1.0], [math.inf]),
                ([math.nan], [1.0]),
                (1.0, 1.0),
                ([[1.0], [1.0, 2.0]], [0.0, 0.0]),
                ([[[1.0]]], [0.0]),
                (["a"], [0.0]),
                ("a", "b"),
            )
        ),
        lambda: sampler_facts.mask_means(0.5, [1.0] * 30, [0.0] * 30),
        lambda: sampler_facts.mask_means(0.5, [], []),
        lambda: simulation.simulate_cycle(4, 1.5, 3),
        lambda: simulation.simulate_path(4, 0.5, 0),
        *(lambda q=q: simulation.simulate_relay_path(4, 2, 0.5, 3, relay_probability=q) for q in (2, "x", True)),
        lambda: simulation.draw_graph(2.5, 0.5, np.random.default_rng(0)),
        *(lambda junk=junk: expectation.transfer_bound(*junk) for junk in ((math.nan, 0.5), (1, "x"), (1, True))),
        *(lambda gap=gap: expectation.sharpening_scale(3, gap, 0.1) for gap in ("x", 0, True)),
        *(
            lambda errors=errors: expectation.decay_exponent([1, 2], errors)
            for errors in ([1, math.nan], ["a", "b"], 1)
        ),
        lambda: simulation.Estimate(1, 3).interval(1.0),
    ],
)
def test_numbers_out_of_range_are_named(call):
    with pytest.raises(SbmtError, match="expected"):
        call()


def test_the_error_says_which_number_came():
    with pytest.raises(SbmtError, match=r"rows of finite numbers ≥ 0, got \[\[1, -2\]\]"):
        sampler_facts.fastrg_rates([[1, -2]], [[1, 0], [0, 1]], [[1, 1]])


BAD_VECTORS = [
    ("min_block_size", {"k": 2, "cap": "2/k"}),
    ("min_block_size", {"k": 2, "cap": 2}),
    *(("fixed_two_layer_full", {"n": 16, "l": 4, "c": 1, "order": order}) for order in ("10", "13", "x", 12.5, [True])),
    ("fixed_bidirectional_full", {"n": 16, "l": 4, "c": 1, "order": "30"}),
    ("min_layers", {"rows": ["11", "11"], "order": "2"}),
    ("receptive_sizes", {"rows": ["11", "11"], "order": "x", "layers": 1}),
    ("paper_walk", {"n": 16, "k": 4, "relay": "foo"}),
    ("causal_conditions", {"pattern": "foo", "n": 16, "l": 4, "c": 1}),
    ("pattern", {"name": "A9", "n": 16, "k": 4}),
    *(("min_layers", {"rows": rows}) for rows in (["12", "11"], ["1", "11"], ["aa", "aa"], None, [1, 1], [])),
    *(("block_mean_path_cover_limit", {"m": m}) for m in (0, -3, 2.5, [3, 0])),
    *(("strided_rows", {"n": 4, "l": 2, "i": i}) for i in ([4], [-1], [1.0], 1)),
    ("fixed_rows", {"n": 4, "l": 2, "c": 1, "i": [4]}),
    ("fastrg_rates", {"Y": [[1, 2], [1]], "B": [[1, 0], [0, 1]]}),
    ("fastrg_rates", {"Y": [[1, 2]], "B": [[1, 0], [0, 1]], "Z": "W"}),
]


@pytest.mark.parametrize("operation, given", BAD_VECTORS)
def test_operations_refuse_bad_vectors(operation, given):
    with pytest.raises(SbmtError, match="expected"):
        OPERATIONS[operation](given)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8])
@pytest.mark.parametrize(
    "call",
    [
        lambda n, k, one: patterns.block_sizes(n, k),
        lambda n, k, one: theory.pattern_counts(n, k),
        lambda n, k, one: [pattern.tolist() for pattern in theory.fixed(n, k, one)],
        lambda n, k, one: theory.certify(theory.three_patterns(n, k), [one, 2, 3], time_limit=n),
        lambda n, k, one: theory.receptive_sizes([SQUARE], k),
        lambda n, k, one: random_graphs.lemma1_probability(n),
        lambda n, k, one: random_graphs.prob_all_degrees(n, one),
        lambda n, k, one: random_graphs.expected_hamiltonian_cycles(n, 0.5),
        lambda n, k, one: random_graphs.threshold_probability(n, one),
        lambda n, k, one: realisability.in_block_bound(k, 0.1),
        lambda n, k, one: realisability.fits_in_block_budget(n, k),
        lambda n, k, one: realisability.one_hot_block(k, one),
        lambda n, k, one: [list(realisability.realise(a, n, k, "poisson").shape) for a in ("A1", "A2")],
        lambda n, k, one: sampler_facts.expected_entries(n, k),
        lambda n, k, one: sampler_facts.exploration_edges(n, 0.5),
        lambda n, k, one: sampler_facts.two_hop_miss(k, one),
        lambda n, k, one: simulation.predict_block_cycles(n, k),
        lambda n, k, one: simulation.simulate_relay_path(n, k, 0.5, one, relay_probability=one),
    ],
)
def test_numpy_integers_are_integers(call, kind):
    assert call(*map(kind, (100, 3, 1))) == call(100, 3, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda half: random_graphs.arc_probability(4, half),
        lambda half: random_graphs.directed_limit(half),
        lambda half: realisability.in_block_bound(3, half),
        lambda half: realisability.one_hot_block(3, half, half),
        lambda half: sampler_facts.fastrg_max_density(half),
        lambda half: sampler_facts.two_hop_miss(3, half),
        lambda half: sampler_facts.mask_means(half, [half, 1], [half, 1]).weighted.tolist(),
        lambda half: expectation.sharpening_scale(4, half, half),
        lambda half: expectation.transfer_bound(half, half),
        lambda half: clopper_pearson(1, 3, half),
    ],
)
def test_numpy_floats_are_numbers(call):
    assert call(np.float32(0.5)) == call(np.float64(0.5)) == call(0.5)


def test_a_time_limit_may_be_of_any_kind_of_number():
    assert all(Deadline(kind(5)).left() > 0 for kind in (int, float, np.int64, np.float32))
