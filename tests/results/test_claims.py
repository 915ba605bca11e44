"""Tests that errata and answers name existing evidence, and numbers that are computed."""

import json
import re
from collections import Counter
from functools import cache

import pytest

from results.claims import CLAIMS, GROUPS, QUESTIONS, anchor, link
from results.lookup import NOT_YET, ROOT
from results.write_tables import render
from theory.statements import STATEMENTS

VERDICTS, GRADES = ("reproduced", "corrected", "refuted", "open"), ("conclusion", "proof", "slip")
BY_NAME = {statement.name: statement for statement in STATEMENTS}
TEMPLATE = re.compile(r"\{\{.+?\}\}")
DECIMAL = re.compile(r"(?<![\d.])\d*\.\d+")

every_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)


def statements(claim):
    """Returns the names of statements of ``python -m theory`` among the evidence."""
    return [name.partition("#")[2] for name in claim.evidence if name.startswith("theory#")]


@every_claim
def test_a_claim_has_a_verdict_evidence_that_exists_and_numbers_from_results(claim):
    assert claim.verdict in VERDICTS
    assert claim.grade in GRADES or (claim.verdict == "reproduced" and not claim.grade)
    assert claim.claim and claim.source and claim.finding and claim.evidence
    assert all(link(name) for name in claim.evidence) and set(statements(claim)) <= set(BY_NAME)
    for number in TEMPLATE.findall(claim.finding):
        assert render(number) not in (NOT_YET, ""), number
    if claim.figure:
        assert (ROOT / "docs" / "assets" / claim.figure).exists() and claim.caption


@cache
def text_of(evidence):
    """Returns the text of a page or a notebook, including outputs."""
    page = evidence.partition("#")[0]
    if page == "theory":
        return (ROOT / "results" / "theory.json").read_text("utf-8")
    if not page.isdigit():
        return (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    cells = json.loads(next(ROOT.glob(f"notebooks/{page}_*.ipynb")).read_text("utf-8"))["cells"]
    outputs = [output.get("text", []) for cell in cells for output in cell.get("outputs", [])]
    return "".join("".join(part) for part in [*(cell["source"] for cell in cells), *outputs])


@every_claim
def test_numbers_written_by_hand_stand_in_the_evidence(claim):
    by_hand = DECIMAL.findall(TEMPLATE.sub("", claim.finding))
    known = {float(number) for evidence in claim.evidence for number in DECIMAL.findall(text_of(evidence))}
    assert [number for number in by_hand if float(number) not in known] == []


def test_errata_and_statements_agree():
    for claim in CLAIMS:
        grades = {BY_NAME[name].grade for name in statements(claim)} - {"repair"}
        assert not grades or claim.grade in grades, claim.name
    told = {name for claim in CLAIMS for name in statements(claim)}
    assert {statement.name for statement in STATEMENTS if statement.grade != "repair"} - told == set()


def test_every_claim_has_an_entry_and_an_anchor():
    taken = [anchor(name) for name in [*(claim.name for claim in CLAIMS), *(heading for heading, _ in GROUPS.values())]]
    assert [name for name, n in Counter(taken).items() if n > 1] == []
    for name in GROUPS:
        pattern = r"^\| (?!slip |---)(.+?) \(" if name == "slip" else r"^### (.+)$"
        shown = re.findall(pattern, render(f"{{{{ errata('{name}') }}}}"), re.MULTILINE)
        assert shown == [claim.name for claim in CLAIMS if claim.group == name] != []


def test_every_result_file_answers_a_question_and_has_a_command():
    files = {path.stem for path in (ROOT / "results").glob("*.json")}
    assert files - set(QUESTIONS) == set()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for name, row in QUESTIONS.items():
        assert NOT_YET not in render(row["answer"]), name
        if "commit" not in row:
            script = re.search(r"results/measure/\w+\.py", row["again"])
            assert not script or ((ROOT / script[0]).exists() and script[0] in makefile), name
            assert re.search(rf"^{row.get('target', 'make help').split()[1]}:", makefile, re.MULTILINE), name
