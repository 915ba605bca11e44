"""Tests that the walk through the code names existing files, and the page on citing the current version."""

import re
from pathlib import Path

import yaml

import sbmt

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "read-the-code.md").read_text("utf-8")
LINK = re.compile(r"\[`([\w/]+\.(?:py|cpp))`\]\(\.\./([\w/]+\.(?:py|cpp))\)")


def section(title):
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_link_names_the_file_that_it_leads_to():
    links = LINK.findall(PAGE)
    assert len(links) == PAGE.count("](../") > 12
    assert all(name == target and (ROOT / target).is_file() for name, target in links)


def test_every_folder_has_its_line():
    named = set(re.findall(r"`((?:sbmt|theory|results)/[\w/.]*)`", section("Where does a change belong?")))
    assert all((ROOT / name).exists() for name in named)
    parts = {path for path in (ROOT / "sbmt").iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    folders = {f"sbmt/{path.name}/" for path in parts - {ROOT / "sbmt" / "experiments"}}
    laboratory = ROOT / "sbmt" / "experiments"
    folders |= {f"sbmt/experiments/{path.name}/" for path in laboratory.iterdir() if (path / "__init__.py").exists()}
    assert folders <= named


def test_the_page_and_the_library_say_what_the_file_says():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    page = " ".join((ROOT / "docs" / "citation.md").read_text(encoding="utf-8").split())
    (paper,) = citation["references"]
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    assert all(words in page for words in (paper["title"], authors, paper["collection-title"], citation["title"]))
    assert re.findall(r"version *= \{(.*?)\}", page) == [citation["version"]] == [sbmt.__version__]
