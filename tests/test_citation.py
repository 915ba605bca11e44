"""The page on citing says what CITATION.cff says, and that names the version that is here."""

import re
from pathlib import Path

import yaml

import sbmt

ROOT = Path(__file__).parents[1]


def test_the_page_and_the_library_say_what_the_file_says():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    page = " ".join((ROOT / "docs" / "citation.md").read_text(encoding="utf-8").split())
    (paper,) = citation["references"]
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    assert all(words in page for words in (paper["title"], authors, paper["collection-title"], citation["title"]))
    assert re.findall(r"version *= \{(.*?)\}", page) == [citation["version"]] == [sbmt.__version__]
