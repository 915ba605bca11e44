"""Tests that statements hold as published, and that the command reports them and certifies single cases."""

import json
import runpy
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import jaxtyping
import pytest

from theory import report
from theory.certificate import certify
from theory.patterns import three_patterns
from theory.report import GRADES, run
from theory.statements import CHECKS, STATEMENTS

ROOT = Path(__file__).parent.parent.parent
PUBLISHED = json.loads((ROOT / "results" / "theory.json").read_text("utf-8"))
STATED = STATEMENTS[0]


def call(monkeypatch, *arguments):
    """Returns the exit code of ``python -m theory``, run in this process."""
    monkeypatch.setattr(sys, "argv", ["theory", *arguments])
    monkeypatch.delitem(sys.modules, "theory.__main__", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("theory", run_name="__main__")
    return ended.value.code


def test_the_published_statements_are_these():
    assert [statement.name for statement in STATEMENTS] == [row["name"] for row in PUBLISHED] == list(CHECKS)
    assert {statement.grade for statement in STATEMENTS} == set(GRADES)
    for statement in STATEMENTS:
        module, _, name = statement.function.rpartition(".")
        assert callable(getattr(import_module(module), name))


@pytest.mark.slow
def test_every_statement_comes_out_as_stated_and_as_published(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    jaxtyping.config.update("jaxtyping_disable", True)  # other tests check shapes; a fixture of all tests restores it
    assert not call(monkeypatch, "--output", "pictures", "--json", "numbers.json")
    assert json.loads((tmp_path / "numbers.json").read_text("utf-8")) == PUBLISHED
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 2


def test_numbers_that_differ_and_checks_that_break_fail_the_report_and_heuristics_are_never_passed(monkeypatch):
    monkeypatch.setitem(CHECKS, STATED.name, lambda: (1, [2, 3.1]))
    off = replace(STATED, shown="{0} and {1}", numbers=[1, [2, 3]])
    results = run([off, replace(off, within=[0, 0, 0.2]), replace(off, evidence="heuristic")])
    assert [result.outcome for result in results] == ["NOT as stated", "as stated", "reported"]
    assert results[0].shown == "1 and [2, 3.1]"
    monkeypatch.setitem(CHECKS, STATED.name, lambda: 1 / 0)
    assert [result.outcome for result in run([STATED, STATEMENTS[1]])] == ["NOT as stated", "as stated"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--n 64 --k 4 --relays per_block", 0, "after 2 layers"),
        ("--n 16 --k 4 --relays=", 2, "relays"),
        ("--n 4", 2, "--n and --k together"),
        ("--n 4 --k 2 --order 3x21", 2, "digits"),
        ("--order 321", 2, "--order and --relays apply"),
        ("--n 4 --k 2 --only x", 2, "either --only or"),
        ("--only nothing", 2, "statement to be one of 'blocks counted from 1', "),
    ],
)
def test_one_case_is_certified_and_mistakes_are_answered_plainly(monkeypatch, capsys, arguments, code, words):
    monkeypatch.setattr(report, "run", lambda *_: pytest.fail("the report begins"))
    assert call(monkeypatch, *arguments.split()) == code
    shown = capsys.readouterr()
    assert words in " ".join((shown.out + shown.err).split())


def test_one_statement_is_checked_alone_and_a_certificate_keeps_its_lines(monkeypatch, capsys):
    assert call(monkeypatch, "--only", "the figure's budget") == 0
    assert "needed 0.961" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "30")
    call(monkeypatch, "--n", "16", "--k", "4")
    assert capsys.readouterr().out.splitlines() == certify(three_patterns(16, 4)).text().splitlines()
