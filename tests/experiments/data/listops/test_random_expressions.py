"""The law of the trees that are kept, against exact laws and a recursive generator."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sbmt.experiments.data.listops.expressions import (
    CLOSE,
    FIRST_DIGIT,
    decode_expression,
    evaluate_expression,
    expression_depth,
)
from sbmt.experiments.data.listops.random_expressions import TreeLaw, generate_expressions
from tests.experiments.data.listops import twin
from tests.statistics import LEAST_EXPECTED, Judge, binomial_p_values, uniform_p_value

PAPER = TreeLaw()
SMALL = TreeLaw(max_depth=3, max_args=3, digit_share=0.6, min_length=3, max_length=10)
UNBOUNDED = TreeLaw(max_depth=4, max_args=3, min_length=0, max_length=10_000)
SHARE = 0.001  # of the suite's false alarms, for each statistical test here


def generator(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def draw(n_trees, law, seed=0):
    """In rounds, as shards are made."""
    rng, step = generator(seed), 10_000
    return [x for start in range(0, n_trees, step) for x in generate_expressions(min(step, n_trees - start), rng, law)]


N_TREES = 100_000
"""Of which Long Range Arena's law keeps one in twelve: enough for 16 cells of a chi-square."""


def length_p_values(counts, law):
    """Acceptance, and lengths in 16 cells of about equal probability, against the exact law.

    ``counts`` are how many of all trees have the lengths from the smallest that is kept.
    """
    p = twin.length_law(law)[law.min_length + 1 :]
    cell = (16 * (p.cumsum() - p / 2) / p.sum()).astype(int)  # of each length
    n_kept = counts.sum()
    expected = n_kept * np.bincount(cell, p) / p.sum()
    acceptance = binomial_p_values(np.round(n_kept), N_TREES, p.sum())
    return acceptance, uniform_p_value(np.bincount(cell, counts, minlength=16), expected)


@pytest.mark.statistical(share=SHARE)
def test_lengths_have_the_exact_law(judge):
    """On the way, that law itself has the known share of kept trees."""
    p = twin.length_law(PAPER)[501:]
    assert p.sum() == pytest.approx(0.0828, abs=1e-4)
    assert p @ np.arange(501, 2000) / p.sum() == pytest.approx(1035, abs=0.1)
    judge(*length_p_values(np.bincount([len(x) - 501 for x in draw(N_TREES, PAPER)], minlength=1499), PAPER))


@pytest.mark.parametrize("wrong", [dict(max_args=11), dict(digit_share=0.74)])
def test_a_wrong_law_of_lengths_is_seen(wrong):
    """Where the counts are what that law expects."""
    counts = N_TREES * twin.length_law(replace(PAPER, **wrong))[501:]
    assert Judge(SHARE).rejects(*length_p_values(counts, PAPER))


@pytest.mark.statistical(share=SHARE)
def test_shapes_and_operators_have_the_exact_law(judge):
    """Every tree of depth ≤ 3 with ≤ 3 children, its digits rubbed out; the digits themselves are uniform."""
    n_trees = 400_000
    kept = draw(n_trees, SMALL)
    law = {text: p for text, p in twin.skeleton_law(SMALL).items() if 3 < len(text.split()) < 10}
    same_digits = bytes(min(symbol, FIRST_DIGIT) for symbol in range(256))
    skeletons = Counter(symbols.translate(same_digits) for symbols in kept)
    observed = Counter({decode_expression(x).replace("0", "d"): n for x, n in skeletons.items()})
    assert set(observed) <= set(law)
    accepted = sum(law.values())
    likely = {text for text, p in law.items() if p / accepted * len(kept) >= LEAST_EXPECTED}
    rest = sum(p for text, p in law.items() if text not in likely)
    assert len(likely) > 20 and rest > 0.02
    cells = [*sorted(likely), "rest"]
    counts = np.array([observed[text] for text in cells[:-1]] + [sum(observed[x] for x in set(law) - likely)])
    expected = np.array([law[text] for text in cells[:-1]] + [rest]) * len(kept) / accepted
    symbols = np.frombuffer(b"".join(kept), np.uint8)
    digits = np.bincount(symbols[symbols >= FIRST_DIGIT] - FIRST_DIGIT, minlength=10)
    judge(
        binomial_p_values(len(kept), n_trees, accepted),
        uniform_p_value(counts, expected),
        binomial_p_values(digits, digits.sum(), 0.1),
    )


@pytest.mark.statistical(share=SHARE)
def test_an_operator_and_its_digits_are_independent(judge):
    """All 400 operators on two digits are equally likely."""
    law = TreeLaw(max_depth=2, max_args=2, digit_share=0.0, min_length=3, max_length=5)
    symbols = np.frombuffer(b"".join(draw(240_000, law)), np.uint8).reshape(240_000, 4).astype(int)
    assert (symbols[:, 3] == CLOSE).all()
    content = (symbols[:, :3] - (1, FIRST_DIGIT, FIRST_DIGIT)) @ (100, 10, 1)
    judge(uniform_p_value(np.bincount(content, minlength=400), 600.0))


def test_bounds_are_strict_and_drop_nothing_else():
    law = TreeLaw(max_depth=3, max_args=4, digit_share=0.2, min_length=0, max_length=10_000)
    every = generate_expressions(2000, generator(), law)
    lengths = {len(x) for x in every}
    assert len(every) == 2000 and min(lengths) == 1 and max(lengths) == 26  # an operator on four operators on four
    for low in (1, 4, 20):  # no tree is given up, so the same stream draws the same trees
        kept = generate_expressions(2000, generator(), replace(law, min_length=low))
        assert kept == [x for x in every if len(x) > low]
    for low, high in [(0, 2), (1, 26), (5, 27)]:
        kept = generate_expressions(2000, generator(), replace(law, min_length=low, max_length=high))
        assert {len(x) for x in kept} == {n for n in lengths if low < n < high}


@pytest.mark.parametrize("law", [PAPER, SMALL, UNBOUNDED])
def test_every_expression_is_whole(law):
    for symbols in generate_expressions(500, generator(1), law):
        assert 0 <= evaluate_expression(symbols) <= 9 and expression_depth(symbols) <= law.max_depth
        assert law.min_length < len(symbols) < law.max_length


def test_none_kept_is_an_empty_list():
    assert generate_expressions(100, generator(), replace(SMALL, min_length=1000, max_length=1002)) == []
