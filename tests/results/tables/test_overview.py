"""The results page: each file with a short question, a short answer, the pages that explain it, and its origin."""

import re
from itertools import groupby
from pathlib import Path

from results.tables.commands import read_questions
from results.tables.links import address
from results.tables.overview import overview_page, read_pictures
from results.tables.results import Results

ROOT = Path(__file__).parents[3]
RESULTS = Results(ROOT)
ROWS = read_questions(ROOT)
BLOCKS = overview_page(RESULTS)
LONGEST_QUESTION, LONGEST_ANSWER = 9, 35  # words; of an answer, numbers and signs included


def test_questions_and_answers_are_short():
    long = [row["question"] for row in ROWS if len(row["question"].split()) > LONGEST_QUESTION]
    assert long == []
    assert [row["file"] for row in ROWS if len(RESULTS.render(row["answer"]).split()) > LONGEST_ANSWER] == []


def test_each_group_is_one_table():
    groups = [name for name, _ in groupby(row["group"] for row in ROWS)]
    assert len(set(groups)) == len(groups)
    assert re.findall(r"^## (.+)$", BLOCKS["answers"], re.MULTILINE) == groups
    assert BLOCKS["answers"].count("| question | answer |") == len(groups)


def test_a_row_links_to_all_its_pages():
    lines = BLOCKS["answers"].split("\n")
    for row in ROWS:
        [line] = [line for line in lines if line.startswith(f"| [{row['question']}](")]
        assert RESULTS.render(row["answer"]) in line
        assert re.findall(r"\]\(([^)]+)\)", line) == [address(ROOT, page) for page in row["pages"]]


def test_origins_tell_where_each_answer_comes_from():
    for row in ROWS:
        assert f"| {row['question']} | `{row['file']}.json` | `" in BLOCKS["origins"]
    for target in ("make results", "make long-range", "make language", "make bench"):
        assert f"`{target}`" in BLOCKS["origins"]


def test_pictures_exist_and_say_what_they_show():
    pictures = read_pictures(ROOT)
    assert set(pictures) <= {row["group"] for row in ROWS}
    for name, picture in pictures.items():
        assert (ROOT / "docs" / "assets" / picture["file"]).exists()
        assert f"## {name}\n\n![{picture['caption']}](assets/{picture['file']})\n" in BLOCKS["answers"]
