"""Data for the errata page, which lists every claim examined, and the results page, which lists every result file.

The sources are ``results/errata.toml`` and ``results/questions.toml``, which explain their own fields.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markdown.extensions.toc import slugify

from results.lookup import ROOT, load, value
from sbmt.experiments.benchmarks.tables import LEFT_OUT


@dataclass(frozen=True)
class Claim:
    """A claim of the paper that was examined, as recorded in ``results/errata.toml``."""

    name: str
    claim: str
    source: str
    verdict: str
    finding: str
    evidence: Sequence[str]
    grade: str = ""
    figure: str = ""
    caption: str = ""

    @property
    def group(self) -> str:
        """The part of the errata page that contains the claim, one of :data:`GROUPS`."""
        return self.verdict if self.verdict in GROUPS and self.grade != "slip" else self.grade


_ERRATA = tomllib.loads((ROOT / "results" / "errata.toml").read_text("utf-8"))
CLAIMS = [Claim(**row) for row in _ERRATA["claim"]]
GROUPS: dict[str, tuple[str, str]] = {row["name"]: (row["heading"], row["meaning"]) for row in _ERRATA["group"]}
"""The parts of the errata page, each with a heading and a description."""
_QUESTIONS = tomllib.loads((ROOT / "results" / "questions.toml").read_text("utf-8"))
QUESTIONS: dict[str, dict[str, Any]] = {row["file"]: row for row in _QUESTIONS["result"]}
"""The rows of ``results/questions.toml``, by result file."""
PICTURES: dict[str, dict[str, str]] = {row["group"]: row for row in _QUESTIONS["picture"]}
"""The pictures, by the group of questions whose table follows them."""


def n_claims(group: str) -> int:
    """Returns the number of claims in a group of the errata page, or in ``"all"`` groups except the slips."""
    groups = [claim.group for claim in CLAIMS]
    return len(groups) - groups.count("slip") if group == "all" else groups.count(group)


# --- links by short names: ``03#heading`` of a notebook, ``theory#name`` of a statement, ``page#heading`` ---


anchor = partial(slugify, separator="-")
"""Returns the id of a heading on the site."""


def link(name: str) -> tuple[str, str]:
    """Resolves a short name to the title and the address of a page. Headings are checked by tests of the built site.

    Raises:
        LookupError: If there is no such page.
    """
    page, _, place = name.partition("#")
    path = next(ROOT.glob(f"notebooks/{page}_*.ipynb"), ROOT) if page.isdigit() else ROOT / "docs" / f"{page}.md"
    if not path.is_file():
        raise LookupError(f"no page {page}")
    if page.isdigit():
        title, address = f"notebook {page}", f"notebooks/{path.name}"
    elif page == "theory" and place:
        title, address = "Theory", "theory.md"
    else:
        address, lines = f"{page}.md", path.read_text("utf-8").splitlines()
        title = next(line.removeprefix("# ") for line in lines if line.startswith("# "))
    return title, f"{address}#{anchor(place)}" if place else address


def links(names: Sequence[str]) -> str:
    """Returns links to the named pages. Headings distinguish links to the same page."""
    found = [(*link(name), name.partition("#")[2]) for name in names]
    pages = [page for page, _, _ in found]
    shown = ((page if pages.count(page) == 1 else f"{page}: {place}", address) for page, address, place in found)
    return ", ".join(f"[{title}]({address})" for title, address in shown)


# --- how result files were made ---


def measured(name: str) -> str:
    """Returns the seeds, runs, core hours, date and threads of a result file, and its machine if it is unusual."""
    parts = list(load(name).values()) if name == "glue" else [load(name)]
    parts = [part for part in parts if isinstance(part, dict)]  # leaves out lists of statements
    runs = [run for part in parts for run in part.get("runs", [])]
    hours = sum(run["seconds"] for run in runs) / 3600
    said = [f"{len({run['config']['seed'] for run in runs})}, {len(runs)}, {hours:.1f} h"] if runs else []
    for about in [part["manifest"] for part in parts if "manifest" in part][:1]:
        said.append(about["date"])
        said += [f"{about['threads']} threads"] if about.get("threads", 1) != 1 else []
        said += [f"on {machine_of(about)}"] if machine_of(about) != machine_of(value("demo", "manifest")) else []
    return ", ".join(said) or LEFT_OUT


def machine_of(manifest: dict[str, Any]) -> str:
    """Returns the machine and the versions in a manifest."""
    return f"{manifest['machine']}, sbmt {manifest['sbmt']}, torch {manifest['torch']}"
