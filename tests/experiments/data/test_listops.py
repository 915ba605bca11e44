"""Tests the language of ListOps, and the law of its random expressions."""

import gzip
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops import (
    FIRST_DIGIT,
    OPERATORS,
    TOKENS,
    VOCAB_SIZE,
    TreeLaw,
    decode_expression,
    evaluate_expression,
    generate_expressions,
    listops_source,
)
from tests.experiments.data.layouts import documents_of
from tests.statistics import LEAST_EXPECTED, binomial_p_values, uniform_p_value


def encoded(text):
    """Returns the ids of a written expression, whose parentheses are redundant as in the original files."""
    tokens = text.replace("(", "").replace(")", "").replace("]", "X").split()
    return bytes(1 + TOKENS.index(token) for token in tokens)


def skeleton_law(law, depth=1):
    """Returns the probability of every tree, with its digits removed, as ``{text: probability}``."""
    if depth == law.max_depth:
        return {"d": 1.0}
    below = skeleton_law(law, depth + 1)
    found = Counter({"d": law.digit_share})
    for n_children in range(2, law.max_args + 1):
        each = (1 - law.digit_share) / (law.max_args - 1) / len(OPERATORS)
        for children in itertools.product(below, repeat=n_children):
            p = each * np.prod([below[child] for child in children])
            for operator in OPERATORS:
                found[f"{operator} {' '.join(children)} ]"] += p
    return found


def test_the_ids_are_fixed():
    assert TOKENS == tuple("[MIN [MAX [MED [SM X 0 1 2 3 4 5 6 7 8 9".split()) and VOCAB_SIZE == 17


def test_every_published_expression_has_its_value(shared_data):
    """Nangia and Bowman's test file has rows ``label<TAB>expression`` without a header."""
    content = gzip.decompress((shared_data / "listops" / "spinn_listops_test_d20s.tsv.gz").read_bytes())
    rows = [row.split("\t") for row in content.decode().splitlines()]
    assert len(rows) == 10_000
    for label, text in rows:
        assert evaluate_expression(encoded(text)) == int(label)
    for _, text in rows[:500]:
        assert decode_expression(encoded(text)).split() == text.replace("(", "").replace(")", "").split()


SMALL = TreeLaw(max_depth=3, max_args=3, digit_share=0.6, min_length=3, max_length=10)
SHARE = 0.001  # share of the suite's false alarms for each statistical test here


@pytest.mark.statistical(share=SHARE)
def test_shapes_and_operators_have_the_exact_law(judge):
    """Tests every tree of depth ≤ 3 with ≤ 3 children, digits removed; the digits themselves are uniform."""
    n_trees = 400_000
    rng = np.random.default_rng(0)
    kept = [x for _ in range(40) for x in generate_expressions(n_trees // 40, rng, SMALL)]  # in rounds, as for parts
    law = {text: p for text, p in skeleton_law(SMALL).items() if 3 < len(text.split()) < 10}
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


def test_bounds_are_strict_and_drop_nothing_else():
    law = TreeLaw(max_depth=3, max_args=4, digit_share=0.2, min_length=0, max_length=10_000)
    every = generate_expressions(2000, np.random.default_rng(0), law)
    lengths = {len(x) for x in every}
    assert len(every) == 2000 and min(lengths) == 1 and max(lengths) == 26  # an operator on four operators on four
    for low, high in [(0, 2), (1, 26), (5, 27)]:
        kept = generate_expressions(2000, np.random.default_rng(0), replace(law, min_length=low, max_length=high))
        assert {len(x) for x in kept} == {n for n in lengths if low < n < high}


FEW = dict(min_length=3, max_length=5, max_depth=2, max_args=2)  # 4 operators on 2 digits: 400 expressions


def test_repeated_expressions_are_dropped(pool_of):
    source = listops_source(n_train=1000, n_dev=1, n_test=1, **FEW)
    (_, part), _ = source.parts()
    assert 350 < len(part.labels) < 400 and len(set(documents_of(part))) == len(part.labels)
    pool, expressions = pool_of(source)
    assert len(expressions) > 700 and len(set(expressions)) < 400
    source = listops_source(n_train=300, n_dev=50, n_test=len(set(expressions)) - 350, **FEW)
    arranged = source.arrange(pool)
    chosen = [expressions[i] for split in ("train", "dev", "test") for i in arranged[split]]
    assert [len(x) for x in arranged.values()] == [300, 50, len(set(expressions)) - 350]
    assert list(arranged) == ["train", "dev", "test"] and chosen == list(dict.fromkeys(expressions))
    with pytest.raises(SbmtError, match=f"401 different expressions, got {len(set(expressions))}"):
        listops_source(n_train=398, n_dev=1, n_test=2, **FEW).arrange(pool)


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["", "[MAX", "[MAX ]", "1 2", "]", "[MAX 1 ] ]"])
def test_what_is_no_expression_has_no_value(text):
    with pytest.raises(SbmtError, match="one complete expression"):
        evaluate_expression(encoded(text))
