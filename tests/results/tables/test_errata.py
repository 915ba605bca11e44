"""Errata that say what they rest on: valid verdicts, evidence that exists, numbers that something computes."""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from results.tables.claims import GRADES, GROUPS, VERDICTS, read_claims
from results.tables.commands import commands, read_questions
from results.tables.errata import errata_page
from results.tables.links import anchor, link
from results.tables.results import NOT_YET, Results
from theory.statements import STATEMENTS

ROOT = Path(__file__).parents[3]
RESULTS = Results(ROOT)
CLAIMS = read_claims(ROOT)
BY_NAME = {statement.name: statement for statement in STATEMENTS}
TEMPLATE = re.compile(r"\{\{.+?\}\}")
DECIMAL = re.compile(r"(?<![\d.])\d*\.\d+")

every_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)


@every_claim
def test_a_claim_has_a_verdict_evidence_that_exists_and_numbers_from_results(claim):
    assert claim.verdict in VERDICTS
    assert claim.grade in GRADES or (claim.verdict == "reproduced" and not claim.grade)
    assert claim.claim and claim.source and claim.finding and claim.evidence
    assert all(link(ROOT, name).startswith("[") for name in claim.evidence)
    for number in TEMPLATE.findall(claim.finding):
        assert RESULTS.render(number) not in (NOT_YET, ""), number


@cache
def text_of(evidence):
    """Everything that a page or a notebook says, its outputs included."""
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


def test_grades_agree_with_those_of_the_statements():
    for claim in CLAIMS:
        grades = {BY_NAME[name].grade for name in claim.statements} - {"repair"}
        assert not grades or claim.grade in grades, claim.name


def test_every_statement_that_finds_fault_is_among_the_errata():
    told = {name for claim in CLAIMS for name in claim.statements}
    assert {statement.name for statement in STATEMENTS if statement.grade != "repair"} - told == set()


def test_names_make_headings_of_their_own():
    taken = [anchor(name) for name in [*(claim.name for claim in CLAIMS), *(heading for heading, _ in GROUPS.values())]]
    assert [name for name, n in Counter(taken).items() if n > 1] == []


def test_every_claim_stands_once_on_the_page_in_its_group():
    page = (ROOT / "docs" / "errata.md").read_text("utf-8")
    parts = dict(re.findall(r'<section data-group="(\w+)"[^>]*>\n(.*?)\n</section>', page, re.DOTALL))
    assert list(parts) == list(GROUPS)
    for name, text in parts.items():
        chosen = [claim for claim in CLAIMS if claim.group == name]
        assert chosen
        assert f"\n## {GROUPS[name][0]}\n" in text
        shown = re.findall(r"^\| (?!slip |---)(.+?) \(" if name == "slip" else r"^### (.+)$", text, re.MULTILINE)
        assert [title for title in shown if title.strip("-| ")] == [claim.name for claim in chosen]


def test_figures_exist_and_say_what_they_show():
    with_figures = [claim for claim in CLAIMS if claim.figure]
    assert with_figures
    for claim in with_figures:
        assert (ROOT / "docs" / "assets" / claim.figure).exists()
        assert claim.caption
        assert f"![{claim.caption}](assets/{claim.figure})" in errata_page(RESULTS)[f"errata-{claim.group}"]


def test_links_to_evidence_are_told_apart():
    for text in errata_page(RESULTS).values():
        for line in text.split("\n"):
            names = re.findall(r"\[([^\]]+)\]\(", line.partition("<small>")[2])
            assert len(set(names)) == len(names), line


def test_commands_name_what_made_the_numbers():
    assert commands(["figure4", "figure4-64"], ["06"], RESULTS) == [
        "make results",
        "python notebooks/execute.py notebooks/06*",
    ]
    assert commands(["sparse"], [], RESULTS) == ["sbmt study sparse --json results/sparse.json  # at commit 1318f51"]
    assert commands(["ste_bias"], [], RESULTS) == ["python results/measure/ste_bias.py"]
    lra = RESULTS.files_of('{{ n_comparisons("lra", "full", "ahead") }}')
    assert commands([*lra, "ste_bias"], [], RESULTS) == ["make long-range", "python results/measure/ste_bias.py"]
    told = errata_page(RESULTS)["errata-commands"]
    assert "make results" in told and "python -m theory" in told and "notebooks/03*" in told


def test_every_result_file_answers_a_question():
    rows = read_questions(ROOT)
    files = {path.stem for path in (ROOT / "results").glob("*.json")}
    assert files - {row["file"] for row in rows} == set()
    assert len({row["file"] for row in rows}) == len(rows)
    for row in rows:
        assert all(link(ROOT, page) for page in row["pages"])
        if row["file"] in files:
            assert NOT_YET not in RESULTS.render(row["answer"])
            assert row["file"] in RESULTS.files_of(row["answer"])
