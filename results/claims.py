"""The errata page and the results page: every claim of the paper that was examined, and every result file.

Their sources are ``results/errata.toml`` and ``results/questions.toml``, which explain their fields.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from results import lookup
from results.lookup import ROOT, load
from results.tables import grid
from sbmt.experiments.tables import LEFT_OUT

GROUPS = {
    "conclusion": ("Wrong conclusions", "*refuted*, or *corrected*: true only in another form"),
    "proof": ("Wrong arguments", "the claim may hold, but not for the reason given"),
    "open": ("Open at full size", "only runs at full size can settle the question"),
    "reproduced": ("What holds", "our results agree"),
    "slip": ("Slips", "errors on which nothing depends"),
}
"""The parts of the errata page: a heading and what the part contains."""


@dataclass(frozen=True)
class Claim:
    """A claim that was examined: an entry of ``results/errata.toml``."""

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
        """The part of the page to which it belongs, one of :data:`GROUPS`."""
        if self.verdict == "reproduced" or self.grade == "slip":
            return self.grade or "reproduced"
        return "open" if self.verdict == "open" else self.grade

    @property
    def statements(self) -> list[str]:
        """Names of statements of ``python -m theory`` among the evidence."""
        return [name.partition("#")[2] for name in self.evidence if name.startswith("theory#")]


CLAIMS = [Claim(**row) for row in tomllib.loads((ROOT / "results" / "errata.toml").read_text("utf-8"))["claim"]]
_QUESTIONS = tomllib.loads((ROOT / "results" / "questions.toml").read_text("utf-8"))
QUESTIONS: dict[str, dict[str, Any]] = {row["file"]: row for row in _QUESTIONS["result"]}
"""The rows of ``results/questions.toml`` by their result files."""
PICTURES: dict[str, dict[str, str]] = {row["group"]: row for row in _QUESTIONS["picture"]}
"""The pictures by the group of questions whose table they precede."""


def n_claims(group: str) -> int:
    """The number of claims in a group of the errata page, or in ``"all"`` groups except the slips."""
    groups = [claim.group for claim in CLAIMS]
    return len(groups) - groups.count("slip") if group == "all" else groups.count(group)


# --- links by short names: ``03#heading`` of a notebook, ``theory#name`` of a statement, ``page#heading`` ---

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
MARKUP = re.compile(r"[`*$]|<!--.*?-->|\[([^\]]*)\]\([^)]*\)")


def anchor(heading: str) -> str:
    """The id of a heading on the site."""
    kept = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def link(name: str) -> tuple[str, str, str]:
    """Resolves a short name: the page as it is cited, the page with the heading, and the address.

    Raises:
        LookupError: If there is no such page or heading.
    """
    page, _, place = name.partition("#")
    if page == "theory" and place:
        return "Theory", f"Theory: {place}", f"theory.md#{anchor(place)}"
    path = next(ROOT.glob(f"notebooks/{page}_*.ipynb"), ROOT) if page.isdigit() else ROOT / "docs" / f"{page}.md"
    if not path.is_file():
        raise LookupError(f"no page {page}")
    title, places = _headings(path)
    address = f"notebooks/{path.name}" if page.isdigit() else f"{page}.md"
    if not place:
        return (f"notebook {page}" if page.isdigit() else title), title, address
    if place not in places:
        raise LookupError(f"{path.name} has no heading #{place}")
    address = f"{address}#{place}"
    if page.isdigit():
        return f"notebook {page}", f"{page} · {places[place]}", address
    title = title.removeprefix("Results: ").capitalize()
    return title, f"{title}: {places[place]}", address


@cache
def _headings(path: Path) -> tuple[str, dict[str, str]]:
    """The title of a page, and its other headings by id."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    headings = re.findall(r"^#{1,6} +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    title, *found = (MARKUP.sub(lambda x: x[1] or "", heading) for heading in headings)
    return "Home" if path.stem == "index" else title, {anchor(heading): heading for heading in found}


def links(names: Sequence[str]) -> str:
    """Links by the names of their pages, with headings only where two names would be the same."""
    found = [link(name) for name in names]
    short = [page for page, _, _ in found]
    return ", ".join(f"[{page if short.count(page) == 1 else full}]({to})" for page, full, to in found)


# --- the errata page ---


def errata(group: str) -> str:
    """The entries of a group."""
    chosen = [claim for claim in CLAIMS if claim.group == group]
    if group == "slip":
        rows = [(f"{c.name} ({c.source})", c.claim, lookup.render(c.finding), links(c.evidence)) for c in chosen]
        return grid(("slip", "printed", "correct", "evidence"), rows)
    parts = []
    for one in chosen:
        parts += [f"### {one.name}", f"*{one.source[0].upper()}{one.source[1:]}:* {one.claim}"]
        parts.append(f"**{one.verdict.capitalize()}.** {lookup.render(one.finding)}")
        parts += [f"![{one.caption}](assets/{one.figure})"] if one.figure else []
        parts.append(f"<small>{links(one.evidence)}</small>")
    return "\n\n".join(parts)


def errata_overview() -> str:
    """The number of entries in each group, and its meaning."""
    rows = [(f"[{title}](#{anchor(title)})", n_claims(name), meaning) for name, (title, meaning) in GROUPS.items()]
    return grid(("", "entries", "meaning"), rows)


# --- the results page ---


def answers() -> str:
    """Every group of questions with its picture and its table."""
    parts = []
    for group in dict.fromkeys(row["group"] for row in QUESTIONS.values()):
        rows = [row for row in QUESTIONS.values() if row["group"] == group]
        parts.append(f"## {group}")
        if picture := PICTURES.get(group):
            parts.append(f"![{picture['caption']}](assets/{picture['file']})")
        columns = {
            "question": [f"[{row['question']}]({link(row['pages'][0])[2]})" for row in rows],
            "answer": [lookup.render(row["answer"]) for row in rows],
            "see also": [links(row["pages"][1:]) for row in rows],
        }
        columns = {title: cells for title, cells in columns.items() if any(cells)}
        parts.append(grid(list(columns), zip(*columns.values(), strict=True)))
    return "\n\n".join(parts)


def origins() -> str:
    """The environment of most files, and a table of how each file was made."""
    about = {name: _manifest(name) for name in QUESTIONS}
    places = {
        name: f"{one['machine']}, with sbmt {one['sbmt']}, torch {one['torch']}" if one else ""
        for name, one in about.items()
    }
    usual = Counter(filter(None, places.values())).most_common(1)[0][0]
    rows = []
    for name, row in QUESTIONS.items():
        said = _work(name) + ([about[name]["date"]] if about[name] else [])
        threads = about[name].get("threads", 1)
        said += [f"{threads} threads"] if threads != 1 else []
        measured = ", ".join(said) or LEFT_OUT
        measured += f", on {places[name]}" if places[name] not in ("", usual) else ""
        again = f"`{row['target']}`" if "target" in row and "commit" not in row else f"`{_short(row['again'], name)}`"
        again += f" at {row['commit']}" if "commit" in row else ""
        rows.append((f"`{name}`", again, measured))
    lines = f"Measured on {usual}, with one thread, unless a row says otherwise."
    return f"{lines}\n\n{grid(('file', 'again', 'seeds, runs, core hours, date'), rows)}"


def _short(command: str, name: str) -> str:
    """A command without the option that names the result file."""
    return command.replace(f" --json results/{name}.json", "")


def _manifest(name: str) -> dict[str, Any]:
    """The manifest of a result file, or an empty dictionary."""
    result = load("glue/mlm" if name == "glue" else name)
    return result.get("manifest", {}) if isinstance(result, dict) else {}


def _work(name: str) -> list[str]:
    """Seeds, runs and hours of the studies in a file."""
    parts = load(name).values() if name == "glue" else [load(name)]
    runs = [run for part in parts if isinstance(part, dict) for run in part.get("runs", [])]
    if not runs:
        return []
    hours = sum(run["seconds"] for run in runs) / 3600
    seeds = len({run["config"]["seed"] for run in runs})
    return [f"{seeds}, {len(runs)}, {hours:.1f} h"]
