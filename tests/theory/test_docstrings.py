"""The examples in the theory's docstrings are right."""

import ast
import doctest
import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import theory

NAMES = [module.name for module in walk_packages(theory.__path__, "theory.") if not module.name.endswith("__main__")]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_functions_that_refuse_arguments_say_so(name):
    """Whatever raises SbmtError itself, or through one of the checks."""
    for node in ast.walk(ast.parse(Path(import_module(name).__file__).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            calls = [call.func.id for call in ast.walk(node) if isinstance(call, ast.Call) and hasattr(call.func, "id")]
            refuses = any(re.fullmatch("SbmtError|choose|check_.*|as_.*", called) for called in calls)
            assert not refuses or "SbmtError:" in (ast.get_docstring(node) or ""), node.name


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    assert sum(bool(test.examples) for name in NAMES for test in finder.find(import_module(name))) > 20
