"""The errata page: every claim that was examined, from ``results/errata.toml``."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results.tables.commands import commands
from results.tables.grid import grid
from results.tables.links import anchor, short_links
from results.tables.results import Results

VERDICTS = ("reproduced", "corrected", "refuted", "open")
GRADES = ("conclusion", "proof", "slip")
GROUPS = {
    "conclusion": ("Conclusions that fall", "*refuted*, or *corrected*: true only in another form"),
    "proof": ("Arguments that fall", "the claim may stand, but not for the reason given"),
    "open": ("Open at full size", "only runs at full size can decide"),
    "reproduced": ("What holds", "found here, too"),
    "slip": ("Slips", "nothing depends on them"),
}
"""The parts of the page: heading, and what it means that a claim stands there."""


@dataclass(frozen=True)
class Claim:
    """One claim that was examined.

    Attributes:
        name: Heading of its entry.
        claim: What the paper says, in our words.
        source: Where it says so.
        verdict: One of :data:`VERDICTS`.
        finding: What was found: a template whose numbers come from the result files.
        evidence: Short names of pages that show it, see :func:`~results.tables.links.link`.
        grade: One of :data:`GRADES`; empty if the claim was reproduced.
        figure: Name of a picture in ``docs/assets``, if there is one.
        caption: What the picture shows, for those who cannot see it, too.
    """

    name: str
    claim: str
    source: str
    verdict: str
    finding: str
    evidence: tuple[str, ...]
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
        """Names of the statements of ``python -m theory`` among the evidence."""
        return [name.partition("#")[2] for name in self.evidence if name.startswith("theory#")]

    @property
    def notebooks(self) -> list[str]:
        """Numbers of the notebooks among the evidence."""
        return [name[:2] for name in self.evidence if name[:2].isdigit()]

    def files(self, results: Results) -> list[str]:
        """Names of the result files behind the finding and the evidence."""
        return results.files_of(self.finding) + ["theory"] * bool(self.statements)


def read_claims(root: Path) -> list[Claim]:
    """All claims, in the order of the file."""
    rows = tomllib.loads((root / "results" / "errata.toml").read_text("utf-8"))["claim"]
    return [Claim(**row | {"evidence": tuple(row["evidence"])}) for row in rows]


def errata_page(results: Results) -> dict[str, str]:
    """The parts of the errata page by name."""
    claims = read_claims(results.root)
    groups = {name: [claim for claim in claims if claim.group == name] for name in GROUPS}
    blocks = {f"errata-{name}": "\n\n".join(_entry(c, results) for c in of) for name, of in groups.items()}
    blocks["errata-slip"] = _slips(groups["slip"], results)
    files = dict.fromkeys(name for claim in claims for name in claim.files(results))
    notebooks = sorted({number for claim in claims for number in claim.notebooks})
    blocks["errata-commands"] = "\n".join(["```bash", *commands(list(files), notebooks, results), "```"])
    return blocks | {"errata-overview": _overview(groups)}


def _overview(groups: dict[str, list[Claim]]) -> str:
    rows = []
    for name, claims in groups.items():
        heading, meaning = GROUPS[name]
        rows.append((f"[{heading}](#{anchor(heading)})", len(claims), meaning))
    return grid(("", "n", "what it means"), rows)


def _entry(claim: Claim, results: Results) -> str:
    lines = [f"### {claim.name}", f"*{claim.source[0].upper()}{claim.source[1:]}:* {claim.claim}"]
    lines.append(f"**{claim.verdict.capitalize()}.** {results.render(claim.finding)}")
    if claim.figure:
        lines.append(f"![{claim.caption}](assets/{claim.figure})")
    lines.append(f"<small>{short_links(results.root, claim.evidence)}</small>")
    return "\n\n".join(lines)


def _slips(claims: Sequence[Claim], results: Results) -> str:
    rows = []
    for claim in claims:
        finding = results.render(claim.finding)
        rows.append((f"{claim.name} ({claim.source})", claim.claim, finding, short_links(results.root, claim.evidence)))
    return grid(("slip", "printed", "right", "evidence"), rows)
