import pytest

from sbmt import SbmtError
from sbmt.cost import SYMBOLS, Formula
from sbmt.cost.baselines import part

SIZES = {"n": 7, "k": 5, "d": 3}


@pytest.mark.parametrize(
    ("text", "value"),
    [("n", 7), ("3", 3), ("0", 0), ("2·n·k", 70), ("8·n·d² + 4·n·k·d", 8 * 7 * 9 + 4 * 105), ("k³ + k³", 250)],
)
def test_what_is_read_is_what_is_multiplied_out(text, value):
    assert Formula(text).at(SIZES) == value


def test_a_formula_shows_its_terms():
    formula = Formula("8·n·d² + k·k + 3")
    assert [str(term) for term in formula.terms] == ["8·n·d²", "k²", "3"]
    assert formula.symbols == ("n", "d", "k")
    assert [formula.degree(symbol) for symbol in "ndkm"] == [1, 2, 2, 0]


def test_nothing_is_added_as_nothing():
    assert (Formula("0") + Formula("n")).text == "n"
    assert (Formula("n") + Formula("k·d")).text == "n + k·d"
    assert (Formula("0") + Formula("0")).terms == ()


@pytest.mark.parametrize(
    ("bound", "left_over"),
    [("n²·d", []), ("n·d", ["2·h·n²"]), ("n²", ["h·n·d"]), ("d + n", ["2·h·n²", "h·n·d"])],
)
def test_terms_beyond_a_bound(bound, left_over):
    assert [str(term) for term in Formula("2·h·n² + h·n·d").beyond(Formula(bound), "h")] == left_over


def test_a_symbol_that_is_not_ignored_must_be_in_the_bound():
    assert [str(term) for term in Formula("h·n").beyond(Formula("n"))] == ["h·n"]


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["", "n + ", "n+k", "2 n", "n²²", "nk", "-n", "2·(n + k)"])
def test_other_texts_are_refused(text):
    with pytest.raises(SbmtError, match="products such as"):
        Formula(text)


@pytest.mark.bad_input
def test_a_missing_size_is_named():
    with pytest.raises(SbmtError, match="a size for h, d of"):
        Formula("n·h·d").at({"n": 2})


def test_letters_of_parts_have_a_meaning():
    assert set(part("any", "·".join(SYMBOLS)).flops.symbols) == set(SYMBOLS)
