"""Tables on terminals of any width, and in files."""

import io

import pytest
from rich.console import Console

from sbmt.experiments.cli.sweep import sweep_trials
from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.tables import Table

HEADINGS = "what is computed", "floating-point operations", "share"
ROWS = ("memberships: products of Q and K", "1,652,539,136", "97.60 ± 0.38"), ("softmax", "7", "2.4")


@pytest.fixture
def printed():
    """The lines of a table as a terminal of a width, or a file, gets them."""

    def lines(width, is_terminal):
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=is_terminal, color_system=None, markup=False)
        print_table(console, Table("t", "A title", HEADINGS, ROWS))
        assert console.width == width
        return file.getvalue().splitlines()

    return lines


@pytest.mark.parametrize("width", [1, 40, 60, 200])
def test_a_file_gets_every_row_in_a_line(printed, width):
    lines = printed(width, is_terminal=False)
    assert lines == printed(200, is_terminal=True)
    for row in (HEADINGS, *ROWS):
        assert any(all(cell in line for cell in row) for line in lines)


@pytest.mark.parametrize("width", [1, 30, 40, 50, 60, 70, 80])
def test_no_terminal_is_too_narrow_for_a_number(printed, width):
    lines = printed(width, is_terminal=True)
    words = {word for line in lines for word in line.split()}
    assert {word for row in (HEADINGS, *ROWS) for cell in row for word in cell.split()} <= words
    least = sum(map(len, ("memberships:", "floating-point", "97.60"))) + 10
    assert max(map(len, lines)) <= max(width, least)


def test_weights_that_differ_have_names_that_differ():
    weights = [0.01, 0.0100000001, 1.0]
    names = [trial.name for trial in sweep_trials(["sbm"], weights)]
    assert names == ["sbm-0.01", "sbm-0.0100000001", "sbm-1"]
