"""Tests the docstrings of public names, and the names on the notation page."""

import inspect
import re
from pathlib import Path

import pytest

import sbmt

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", sbmt.__all__)
def test_public_docstrings_explain_the_arguments(name):
    thing = getattr(sbmt, name)
    doc = inspect.getdoc(thing)
    assert doc
    if inspect.signature(thing).parameters:
        assert any(section in doc for section in ("Args:", "Attributes:", "Shapes:"))


# --- the notation page ------------------------------------------------------------------------------------------------

CODE = re.compile(r"`([^`]+)`")


def rows():
    """Returns the rows of the page's tables that have a column for code, without headings."""
    tables = re.split(r"\n\n", (ROOT / "docs" / "notation.md").read_text("utf-8"))
    found = [table.split("\n") for table in tables if table.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for lines in found
        if "Code" in lines[0]
        for line in lines[2:]
    ]


def test_every_name_is_one_of_the_code():
    source = "\n".join(
        path.read_text("utf-8") for folder in ("sbmt", "theory") for path in (ROOT / folder).rglob("*.py")
    )
    words = set(re.findall(r"\w+", source))
    names = {word for cells in rows() for code in CODE.findall(cells[1]) for word in re.findall(r"[a-zA-Z]\w*", code)}
    assert len(names) > 30
    assert names - words == set()
