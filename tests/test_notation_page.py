"""The notation page speaks of names that the code has, and of every letter once per table."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = re.compile(r"`([^`]+)`")


def rows():
    """Cells of the page's tables that have a column for code, without headings."""
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


def test_letters_of_the_style_are_all_there():
    letters = " ".join(cells[0] for cells in rows())
    for letter in ("X", "Q, K, V", "n", "m", "k", "C", r"\hat S", r"\hat Q", r"\hat K", "p_{ij}", "M", "A", r"\delta"):
        assert f"${letter}$" in letters
    for letter in (r"$\lambda$", r"$\mathcal{L}_s$", "$A^l$", r"\bar p", "$p_L$", "$g$", r"$\rho$"):
        assert letter in letters
