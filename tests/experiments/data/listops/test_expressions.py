"""The language: 10,000 published expressions, and what is none."""

import gzip
import random

import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops.expressions import (
    CLOSE,
    DIGITS,
    FIRST_DIGIT,
    OPERATORS,
    TOKENS,
    VOCAB_SIZE,
    count_operators,
    decode_expression,
    encode_expression,
    evaluate_expression,
    expression_depth,
)
from sbmt.experiments.data.listops.random_expressions import TreeLaw
from tests.experiments.data.listops import twin


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
        assert count_operators(symbols) == twin.n_operators_of(tree)
        assert len(symbols) == twin.length_of(tree)


def test_no_expression_is_too_deep():
    n = 10_000
    symbols = encode_expression("[SM 1 " * n + "0 " + "] " * n)
    assert evaluate_expression(symbols) == n % 10
    assert expression_depth(symbols) == n + 1 and count_operators(symbols) == n


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
        ("[MAX", "an operator left open"),
        ("[MAX ]", "an operator without values"),
        ("[MAX 1 2 ] ]", "an X that closes nothing"),
        ("1 2", "2 expressions in a row"),
    ],
)
def test_what_is_no_expression_has_no_value(text, words):
    with pytest.raises(SbmtError, match=f"one whole expression, got {words}"):
        evaluate_expression(encode_expression(text))
    with pytest.raises(SbmtError, match="0 expressions in a row"):
        evaluate_expression(b"")


@pytest.mark.parametrize("wrong", [0, 16])
def test_ids_without_a_token(wrong):
    symbols = encode_expression("[MAX 1 2 ]") + bytes([wrong])
    for call in (evaluate_expression, decode_expression):
        with pytest.raises(SbmtError, match=rf"token ids in \[1, 15\], got {wrong}"):
            call(symbols)
