"""ListOps: the language, the law of random expressions, and Long Range Arena's files."""

import csv
import gzip
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops import (
    CLOSE,
    DIGITS,
    FIRST_DIGIT,
    OPERATORS,
    TOKENS,
    VOCAB_SIZE,
    TreeLaw,
    decode_expression,
    encode_expression,
    evaluate_expression,
    generate_expressions,
    listops_files,
    listops_source,
)
from tests.experiments.data import listops_twin as twin
from tests.experiments.data.layouts import documents_of
from tests.statistics import LEAST_EXPECTED, binomial_p_values, uniform_p_value


def test_the_ids_are_fixed():
    assert TOKENS == tuple("[MIN [MAX [MED [SM X 0 1 2 3 4 5 6 7 8 9".split())
    assert encode_expression(" ".join(TOKENS)) == bytes(range(1, 16)) and VOCAB_SIZE == 17
    assert TOKENS[CLOSE - 1] == "X" and TOKENS[FIRST_DIGIT - 1 :] == DIGITS and TOKENS[: CLOSE - 1] == OPERATORS


def test_every_published_expression_has_its_value(shared_data):
    """Rows ``label<TAB>expression``, without a header, of Nangia and Bowman's test file."""
    content = gzip.decompress((shared_data / "listops" / "spinn_listops_test_d20s.tsv.gz").read_bytes())
    rows = [row.split("\t") for row in content.decode().splitlines()]
    assert len(rows) == 10_000
    for label, text in rows:
        assert evaluate_expression(encode_expression(text)) == int(label)
    for _, text in rows[:500]:
        symbols = encode_expression(text)
        assert decode_expression(symbols).split() == text.replace("(", "").replace(")", "").split()
        assert encode_expression(decode_expression(symbols)) == symbols


def test_random_trees_equal_the_recursive_twin():
    draw = random.Random(0)
    for number in range(200):
        tree = twin.generate_tree(draw, TreeLaw(max_depth=2 + number % 5, max_args=2 + number % 4, digit_share=0.4))
        symbols = encode_expression(twin.written(tree))
        assert evaluate_expression(symbols) == twin.value_of(tree)
        assert len(symbols) == twin.length_of(tree)


SMALL = TreeLaw(max_depth=3, max_args=3, digit_share=0.6, min_length=3, max_length=10)
SHARE = 0.001  # of the suite's false alarms, for each statistical test here


def generator(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def draw(n_trees, law, seed=0):
    """In rounds, as parts are made."""
    rng, step = generator(seed), 10_000
    return [x for start in range(0, n_trees, step) for x in generate_expressions(min(step, n_trees - start), rng, law)]


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
@pytest.mark.parametrize(
    "text, words",
    [
        ("[PM 1 2 ]", "tokens among .*'.PM'"),
        ("[MAX 1 ２ ]", "'２'"),  # a digit to int(), not here
        ("", "at least one token"),
        ("[MAX", "1 operators left open"),
        ("[MAX ]", "an X that closes no values after 1 tokens"),
        ("1 2", "0 operators left open, and 2 expressions in a row"),
    ],
)
def test_what_is_no_expression_has_no_value(text, words):
    with pytest.raises(SbmtError, match=words):
        evaluate_expression(encode_expression(text))


FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
DRAW, LAW = random.Random(0), TreeLaw(max_depth=5, max_args=5, digit_share=0.5)
TREES = {split: [twin.generate_tree(DRAW, LAW) for _ in range(n)] for split, n in zip(FILES, (20, 7, 5), strict=True)}


@pytest.fixture
def folder(tmp_path):
    """The three files, by the csv module, as the originals were written."""
    for split, file in FILES.items():
        with (tmp_path / file).open("w", newline="") as stream:
            writer = csv.writer(stream, delimiter="\t")
            writer.writerow(["Source", "Target"])
            writer.writerows([twin.written(tree), twin.value_of(tree)] for tree in TREES[split])
    return tmp_path


def test_every_split_is_its_file(folder):
    for (split, examples), trees in zip(listops_files(folder).parts(), TREES.values(), strict=True):
        assert trees is TREES[split]
        assert documents_of(examples) == [encode_expression(twin.written(tree)) for tree in trees]
        assert examples.labels.tolist() == [twin.value_of(tree) for tree in trees]


HEADER, ROW = "Source\tTarget\r\n", "( ( ( [MAX 2 ) 9 ) ] )\t9\r\n"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "content, words",
    [
        (HEADER, "a header and rows in .*basic_train.tsv, got none"),
        ("Target\tSource\r\n" + ROW, "Source, Target in line 1"),
        (HEADER + ROW + "[MAX 1 2 ]\t7\r\n", "the label 2, the value of the expression, in line 3 of .*, got 7"),
        (HEADER + "[MAX 1 2\t2\r\n", "one whole expression in line 2 of .*basic_train.tsv, got 1 operators left open"),
        (HEADER + ROW + ROW[:-2] + "\t1\r\n", "a label 0 … 9, in line 3"),
        (HEADER + ROW + ROW.replace("9\r\n", "10\r\n"), "a label 0 … 9, in line 3 of .*basic_train.tsv, got '10'"),
        (HEADER + ROW + ROW[:-1], "a line feed after line 3 of .*basic_train.tsv"),
    ],
)
def test_damage_is_named_with_its_line(folder, content, words):
    (folder / FILES["train"]).write_text(content, newline="")
    with pytest.raises(SbmtError, match=words):
        list(listops_files(folder).parts())
