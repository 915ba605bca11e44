"""The page on citing says what CITATION.cff says, and that names the version that is here."""

import re
from pathlib import Path

import yaml

import sbmt

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "citation.md").read_text(encoding="utf-8")


def entries():
    """The fields of every BibTeX entry on the page, by its kind."""
    found = {}
    for kind, body in re.findall(r"^@(\w+)\{\w+,\n(.*?)^\}", PAGE, re.MULTILINE | re.DOTALL):
        fields = re.findall(r"^  (\w+) *= \{(.*?)\},?$", body, re.MULTILINE | re.DOTALL)
        found[kind] = {name: " ".join(value.split()) for name, value in fields}  # BibTeX does not see line breaks
    return found


def test_the_paper_is_cited_as_the_file_says():
    (paper,) = CITATION["references"]
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    assert entries()["inproceedings"] == {
        "title": paper["title"],
        "author": authors,
        "booktitle": paper["collection-title"],
        "year": str(paper["year"]),
    }


def test_the_library_is_cited_as_the_file_says():
    (author,) = CITATION["authors"]
    assert entries()["software"] == {
        "title": CITATION["title"],
        "author": f"{{{author['name']}}}",
        "version": CITATION["version"],
        "license": CITATION["license"],
    }
    assert CITATION["version"] == sbmt.__version__


def test_the_whole_file_is_shown():
    assert '--8<-- "CITATION.cff"' in PAGE
