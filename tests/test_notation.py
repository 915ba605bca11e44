"""Names and docstrings that the house style promises, and the names that the page on notation gives."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import sbmt

ROOT = Path(__file__).parents[1]
ROOMS = ("layers", "models", "attention", "baselines")  # letters of the paper belong beside its equations
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
    for room in ROOMS
    for path in sorted((ROOT / "sbmt" / room).rglob("*.py"))
}
FORBIDDEN = {
    *("B", "H", "N", "L", "D", "Q", "K", "V", "C", "M", "k", "m", "q", "v", "bs", "bsz", "b", "h"),
    *("nhead", "nheads", "n_head", "seq_len", "src", "tgt", "attn", "hidden_dim", "hidden_size", "dim", "num_clusters"),
}
# Names that PyTorch or the fixed public interface chose.
BOOLEANS = {"bias", "need_weights", "self_loops", "return_edges", "return_weights", "reweight", "sink", "causal"}
BOOLEANS |= {"add_bias_kv", "add_zero_attn", "average_attn_weights", "batch_first"}  # torch's names
INTEGERS = {"embed_dim", "num_heads", "vocab_size", "max_length", "window", "first_example", "size_i", "batch", "n"}
INTEGERS |= {"seed", "dropout_seed", "first", "top_k", "number", "sizes", "convolution"}
INTEGERS |= {"kdim", "vdim"}  # torch's names


def wrong(find):
    """What ``find`` finds in each file, where it finds anything."""
    found = {path: find(tree) for path, tree in TREES.items()}
    return {path: names for path, names in found.items() if names}


def parameters(tree: ast.AST) -> list[ast.arg]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.arg)]


def forbidden(tree: ast.AST) -> set[str]:
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return FORBIDDEN & (assigned | {p.arg for p in parameters(tree)})


def misnamed(tree: ast.AST, kind: str, prefixes: tuple[str, ...], exempt: set[str]) -> set[str]:
    """Parameters annotated as ``kind`` that neither start with a prefix nor are exempt."""
    named = {p.arg for p in parameters(tree) if p.annotation and kind in ast.unparse(p.annotation).split(" | ")}
    return {name for name in named if not name.startswith(prefixes)} - exempt


def test_words_not_letters():
    assert wrong(forbidden) == {}


def test_counts_widths_and_booleans_say_what_they_are():
    assert wrong(lambda tree: misnamed(tree, "int", ("n_", "d_"), INTEGERS)) == {}
    assert wrong(lambda tree: misnamed(tree, "bool", ("is_", "has_", "use_"), BOOLEANS)) == {}


@pytest.mark.parametrize("name", sbmt.__all__)
def test_public_docstrings_explain_the_arguments(name):
    thing = getattr(sbmt, name)
    doc = inspect.getdoc(thing)
    assert doc
    if inspect.signature(thing).parameters:
        assert any(section in doc for section in ("Args:", "Attributes:", "Shapes:"))


# --- the page of notation ---------------------------------------------------------------------------------------------

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
