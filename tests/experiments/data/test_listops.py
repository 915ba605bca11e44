"""ListOps: the language, the law of random expressions, and Long Range Arena's files."""

import csv
import gzip
import hashlib
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
    expression_depth,
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


@pytest.mark.parametrize(
    "text, value",
    [
        ("7", 7),
        ("[MED 9 0 4 5 ]", 4),  # 4½
        ("[MED 0 1 ]", 0),  # ½
        ("[SM 9 9 9 ]", 7),
        ("( ( ( [MAX 2 ) 9 ) ] )", 9),
        ("[MAX 1 [MIN 9 [SM 4 4 X X 2 X", 8),
    ],
)
def test_values(text, value):
    assert evaluate_expression(encode_expression(text)) == value


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
        assert expression_depth(symbols) == twin.depth_of(tree)
        assert len(symbols) == twin.length_of(tree)


def test_no_expression_is_too_deep():
    n = 10_000
    symbols = encode_expression("[SM 1 " * n + "0 " + "] " * n)
    assert evaluate_expression(symbols) == n % 10
    assert expression_depth(symbols) == n + 1


@pytest.mark.parametrize(
    "text, words",
    [
        ("[PM 1 2 ]", "tokens among .*'.PM'"),
        ("[MAX 1 10 ]", "'10'"),
        ("[MAX 1 2]", "'2X'"),
        ("[MAX 1 ２ ]", "'２'"),  # a digit to int(), not here
        ("", "at least one token"),
    ],
)
def test_an_unknown_token_is_named(text, words):
    with pytest.raises(SbmtError, match=words):
        encode_expression(text)


@pytest.mark.parametrize(
    "text, words",
    [
        ("[MAX", "1 operators left open"),
        ("[MAX ]", "an X that closes no values after 1 tokens"),
        ("[MAX 1 2 ] ]", "an X that closes no values after 4 tokens"),
        ("1 2", "0 operators left open, and 2 expressions in a row"),
    ],
)
def test_what_is_no_expression_has_no_value(text, words):
    with pytest.raises(SbmtError, match=f"one whole expression, got {words}"):
        evaluate_expression(encode_expression(text))
    with pytest.raises(SbmtError, match=r"token ids in \[1, 15\], got 16"):
        evaluate_expression(encode_expression("[MAX 1 2 ]") + bytes([16]))


PAPER = TreeLaw()
SMALL = TreeLaw(max_depth=3, max_args=3, digit_share=0.6, min_length=3, max_length=10)
UNBOUNDED = TreeLaw(max_depth=4, max_args=3, min_length=0, max_length=10_000)
SHARE = 0.001  # of the suite's false alarms, for each statistical test here


def generator(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def draw(n_trees, law, seed=0):
    """In rounds, as parts are made."""
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


FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
HEADER = "Source\tTarget\r\n"
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


def train(folder, content):
    """Reads a training file of this content."""
    (folder / FILES["train"]).write_bytes(content.encode() if isinstance(content, str) else content)
    return next(iter(listops_files(folder).parts()))[1]


def test_every_split_is_its_file(folder):
    source = listops_files(folder)
    for (split, examples), trees in zip(source.parts(), TREES.values(), strict=True):
        assert trees is TREES[split]
        assert documents_of(examples) == [encode_expression(twin.written(tree)) for tree in trees]
        assert examples.labels.tolist() == [twin.value_of(tree) for tree in trees]
        assert examples.extras["depth"].tolist() == [twin.depth_of(tree) for tree in trees]
        assert examples.extras["n_operators"].tolist() == [twin.n_operators_of(tree) for tree in trees]
    sums = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in FILES.values()}
    assert source.settings["sha256"] == sums


ROW = "( ( ( [MAX 2 ) 9 ) ] )\t9\r\n"


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "a header and rows in .*basic_train.tsv, got none"),
        (HEADER, "a header and rows in .*basic_train.tsv, got none"),
        ("Target\tSource\r\n" + ROW, "the header Source, Target in line 1"),
        (HEADER + "\ufeff" + ROW, "tokens among .* in line 2"),  # it belongs at the start of the file
        (HEADER + ROW + "[MAX 1 2 ]\t7\r\n", "the label 2, the value of the expression, in line 3 of .*, got 7"),
        (HEADER + "[MAX 1 2\t2\r\n", "one whole expression in line 2 of .*basic_train.tsv, got 1 operators left open"),
        (HEADER + ROW + "( ( [MAX 2 ) ] )\r\n", "an expression and a label 0 … 9 in line 3"),
        (HEADER + ROW + ROW[:-2] + "\t1\r\n", "an expression and a label 0 … 9 in line 3"),
        (HEADER + '"' + ROW + ROW[:-4] + '"\t9\r\n', "in line 2 of .*, got '\"'"),  # no quote spans two rows
        (HEADER + ROW + ROW.replace("9\r\n", "10\r\n"), "a label 0 … 9 in line 3 of .*basic_train.tsv, got ..10"),
        (HEADER + ROW.replace("9\r\n", "²\r\n"), "a label 0 … 9 in line 2 of .*, got ..²"),
        (HEADER + ROW + ROW[:-1], "a line feed after line 3 of .*basic_train.tsv"),
        (HEADER.encode() + b"\xff\xfe\t9\r\n", "tokens among .* in line 2 of .*basic_train.tsv"),
    ],
)
def test_damage_is_named_with_its_line(folder, content, words):
    with pytest.raises(SbmtError, match=words):
        train(folder, content)
