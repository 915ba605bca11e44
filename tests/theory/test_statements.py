import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import theory.__main__ as theory_command
from sbmt.command import run_command
from theory.certificate import certify
from theory.patterns import three_patterns
from theory.report import Result, is_as_stated, run
from theory.statements import STATEMENTS, Statement

ROOT = Path(__file__).parent.parent.parent


PUBLISHED = {row["name"]: row["shown"] for row in json.loads((ROOT / "results" / "theory.json").read_text("utf-8"))}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder in which the whole report has been written, in this process, whose shape checks it goes through."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["theory", "--output", "pictures", "--json", "numbers.json"])
        with pytest.raises(SystemExit) as ended:
            run_command(theory_command.app, "theory")
    assert not ended.value.code
    return folder


@pytest.fixture(scope="module")
def numbers(report):
    """The rows that the report has written."""
    return json.loads((report / "numbers.json").read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.name)
def test_every_statement_comes_out_as_stated_and_as_published(statement, numbers):
    [row] = [row for row in numbers if row["name"] == statement.name]
    assert row["holds"], row["shown"]
    assert row["shown"] == PUBLISHED[statement.name]
    module, _, name = statement.function.rpartition(".")
    assert callable(getattr(import_module(module), name))


def test_the_published_statements_are_these():
    assert [statement.name for statement in STATEMENTS] == list(PUBLISHED)


def made_up(evidence, check):
    return Statement("x", "claim", "verdict", "slip", evidence, "here", "theory.patterns.blocks", check)


def test_a_false_statement_fails_the_report():
    assert not is_as_stated(run([made_up("theorem", lambda: (False, "5"))]))


def test_a_check_that_breaks_counts_as_false_and_hides_no_other():
    def broken():
        raise ZeroDivisionError

    results = run([made_up("theorem", broken), made_up("theorem", lambda: (True, "4"))])
    assert [r.outcome for r in results] == ["NOT as stated", "as stated"]


def test_a_heuristic_is_reported_and_never_passed():
    assert Result(made_up("heuristic", lambda: (True, "4")), True, "4").outcome == "reported"


@pytest.mark.slow
def test_the_whole_report_writes_its_pictures(report):
    assert len(list((report / "pictures").glob("*.png"))) == 3


def test_python_m_theory_certifies_a_case(tmp_path):
    command = [sys.executable, "-m", "theory", "--n", "16", "--k", "4", "--json", "case.json"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads((tmp_path / "case.json").read_text("utf-8"))["outcome"] == "proved"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--n 64 --k 4 --relays per_block", 0, "after 2 layers"),
        ("--n 16 --k 4 --relays=", 2, "relays"),
        ("--n 4 --k 9", 2, "1 ≤ k ≤ n"),
        ("--n 4", 2, "--n and --k together"),
        ("--n 4 --k 2 --order 1", 2, "permutation"),
        ("--n 4 --k 2 --order 3x21", 2, "digits"),
        ("--order 321", 2, "--n and --k beside"),
        ("--relays last", 2, "--n and --k beside"),
        ("--n 16 --k 4 --relays last", 0, "all three: proved"),
        ("--n 1 --k 1", 0, "3 patterns on 1 token, 3 entries"),
        ("--help", 0, "otherwise 1."),
    ],
)
def test_one_case_is_certified_and_mistakes_are_answered_plainly(monkeypatch, capsys, arguments, code, words):
    monkeypatch.setattr(sys, "argv", ["theory", *arguments.split()])
    monkeypatch.setattr(theory_command, "run", lambda **_: pytest.fail("the report begins"))
    with pytest.raises(SystemExit) as ended:
        run_command(theory_command.app, "theory")
    shown = capsys.readouterr()
    assert ended.value.code == code
    assert words in " ".join((shown.out + shown.err).split())


def test_a_certificate_keeps_its_lines_whatever_the_width(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "argv", ["theory", "--n", "16", "--k", "4"])
    with pytest.raises(SystemExit):
        run_command(theory_command.app, "theory")
    assert capsys.readouterr().out.splitlines() == certify(three_patterns(16, 4)).text().splitlines()
