"""The examples in the theory's docstrings are right."""

import doctest
from importlib import import_module
from pkgutil import walk_packages

import pytest

import theory

NAMES = [module.name for module in walk_packages(theory.__path__, "theory.") if not module.name.endswith("__main__")]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    assert sum(bool(test.examples) for name in NAMES for test in finder.find(import_module(name))) > 20
