import json
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from theory.report import Result, is_as_stated, run
from theory.statements import STATEMENTS, Finding, Statement

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.name)
def test_every_statement_comes_out_as_stated(statement):
    finding = statement.check()
    assert finding.holds, finding.shown
    assert finding.shown


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.name)
def test_the_function_that_does_the_work_exists(statement):
    module, _, name = statement.function.rpartition(".")
    assert callable(getattr(import_module(module), name))


def test_names_are_unique():
    assert Counter(s.name for s in STATEMENTS).most_common(1)[0][1] == 1


def made_up(evidence, check):
    return Statement("x", "claim", "verdict", "slip", evidence, "here", "theory.patterns.blocks", check)


def test_a_false_statement_fails_the_report():
    assert not is_as_stated(run([made_up("theorem", lambda: Finding(False, "5"))]))


def test_a_check_that_breaks_counts_as_false_and_hides_no_other():
    def broken():
        raise ZeroDivisionError

    results = run([made_up("theorem", broken), made_up("theorem", lambda: Finding(True, "4"))])
    assert [r.outcome for r in results] == ["NOT as stated", "as stated"]


def test_a_heuristic_is_reported_and_never_passed():
    assert Result(made_up("heuristic", lambda: Finding(True, "4")), Finding(True, "4")).outcome == "reported"


def report(*arguments, cwd):
    command = [sys.executable, "-m", "theory", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


@pytest.mark.slow
def test_the_whole_report_writes_its_numbers_and_pictures(tmp_path):
    found = report("--output", "pictures", "--json", "numbers.json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [row["name"] for row in numbers] == [s.name for s in STATEMENTS]
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--n", "64", "--k", "4", "--relays", "per_block"), 0, "after 2 layers"),
        (("--n", "16", "--k", "4", "--relays", ""), 2, "relays"),
        (("--n", "4", "--k", "9"), 2, "1 ≤ k ≤ n"),
        (("--n", "4"), 2, "--n and --k together"),
        (("--n", "4", "--k", "2", "--order", "1"), 2, "permutation"),
    ],
)
def test_one_case_is_certified_and_mistakes_are_answered_plainly(tmp_path, arguments, code, words):
    found = report(*arguments, cwd=tmp_path)
    assert found.returncode == code
    assert words in found.stdout + found.stderr
    assert "Traceback" not in found.stderr


def test_the_published_numbers_are_what_the_checks_find():
    published = {row["name"]: row["shown"] for row in json.loads((ROOT / "results" / "theory.json").read_text("utf-8"))}
    assert published == {result.statement.name: result.finding.shown for result in run()}
