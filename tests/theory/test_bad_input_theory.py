"""Every mistake raises the library's own error, which says what was expected."""

import math

import numpy as np
import pytest
import torch

import theory
from sbmt import EdgeList, SbmtError
from theory import conditions, expectation, patterns, random_graphs, realisability, relays, simulation

pytestmark = pytest.mark.bad_input

SQUARE = np.ones((3, 3), dtype=bool)
SIX = EdgeList.from_dense(torch.ones(2, 1, 3, 3, dtype=torch.bool))
A1 = realisability.realise("A1", 4, 2, "poisson")
PAIRS = [[0, 1], [2, 3]]

MISTAKES = {  # the words of the error: a function, and invalid arguments
    "1 ≤ k ≤ n": (patterns.blocks, [(3, 4)]),
    "'per_block'": (theory.three_patterns, [(4, 2, "first"), (4, 2, 2)]),
    "c in [0, 2]": (theory.fixed, [(4, 2, 3), (4, 2, True), (4, 2, "1")]),
    "square boolean": (conditions.as_csr, [(x,) for x in ([[1]], [[True], [True, False]], None, SQUARE[:2])]),
    "a list of patterns": (theory.min_layers, [(SQUARE,), (SIX,), (None,)]),
    "a permutation of 1 … 2": (theory.certify, [([SQUARE] * 2, x) for x in (1, (1, 1), (0, 1), (1.0, 2.0), (True, 2))]),
    "causal patterns": (theory.causal_layers, [([SQUARE],)]),
    "time limit": (theory.find_hamiltonian_path, [(SQUARE, x) for x in (-1.0, math.nan, "1", True, 10**400)]),
    "arcs [from, to]": (relays.relay_theorem, [(3, 1, x) for x in ([[0, 3]], [[0, -1]], [[0, 0.5]], [[0, 1, 2]], 1)]),
    "each of 4": (
        relays.one_relay_per_block_path,
        [(4, x, [0, 2]) for x in ([[0, 1], [2]], [[0, 1], [2, 2]], [[1.5]], 3)],
    ),
    "one relay": (
        relays.one_relay_per_block_path,
        [(4, PAIRS, x) for x in ([0, 1, 2], [0], [0, 1], [0.0, 2.0], [0, True])],
    ),
    "a pattern of shape (4, 4)": (realisability.attained, [(A1, SQUARE)]),
    "at least one draw": (theory.certify_draws, [([],)]),
    "level in (0, 1)": (simulation.Estimate(1, 3).interval, [(0,), (1.0,), ("1",), (math.nan,)]),
    "a number of tokens": (theory.lemma1_probability, [("4",), (True,), (math.inf,), (10**400,), (0,)]),
    "a probability in [0, 1]": (random_graphs.prob_all_degrees, [(4, x) for x in ("lemma2", math.nan, True, 1.2)]),
    "n ≤ 5": (random_graphs.prob_cycle_exact, [(6, 0.5)]),
    "pattern to be one of": (realisability.realise, [("A4", 8, 2)]),
    "shapes (n, k)": (realisability.fastrg_rates, [(SQUARE, SQUARE[:2, :2], SQUARE)]),
    "numbers ≥ 0": (
        realisability.fastrg_rates,
        [(x, [[1]], [[1]]) for x in ([[-2]], [[math.nan]], [[1], [1, 1]], "x")],
    ),
    "probabilities in [0, 1]": (expectation.mask_means, [(x, [1.0], [0.0]) for x in (1.5, "x", math.nan)]),
    "finite values": (expectation.mask_means, [(0.5, x, [0.0]) for x in ([1.0, 2.0], [math.nan], ["a"], [[[1.0]]])]),
    "1 to 18 keys": (
        expectation.mask_means,
        [(0.5, [1.0] * n, [0.0] * n) for n in (0, 30)] + [([0.5] * 2, [1.0], [0.0])],
    ),
    "n_draws ≥ 1": (simulation.simulate_path, [(4, 0.5, 0)]),
    "a gap > 0": (expectation.sharpening_scale, [(3, gap, 0.1) for gap in ("x", 0, True)]),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_the_error_says_what_was_expected(words):
    function, refused = MISTAKES[words]
    for arguments in refused:
        with pytest.raises(SbmtError) as caught:
            function(**arguments) if isinstance(arguments, dict) else function(*arguments)
        assert words in str(caught.value), arguments
