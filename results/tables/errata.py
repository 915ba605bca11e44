"""The errata page: every claim that was examined, from ``results/errata.toml``."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results.tables.commands import commands
from results.tables.grid import grid
from results.tables.links import anchor, link
from results.tables.results import Results

VERDICTS = {
    "reproduced": "it holds here too, at the size given",
    "corrected": "it does not hold as it stands, and what holds instead is said",
    "refuted": "it does not hold",
    "open": "what would decide it takes runs at full size, which were not done",
}
GRADES = {
    "conclusion": "a claim falls; or would fall, where the verdict is *open*",
    "proof": "the claim may stand, its argument does not",
    "slip": "a misprint, or a word too few",
}


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
    """

    name: str
    claim: str
    source: str
    verdict: str
    finding: str
    evidence: tuple[str, ...]
    grade: str = ""

    @property
    def group(self) -> str:
        """The part of the page to which it belongs."""
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
    groups = {name: [claim for claim in claims if claim.group == name] for name in (*GRADES, "reproduced", "open")}
    blocks = {f"errata-{name}": "\n\n".join(_entry(c, results) for c in of) for name, of in groups.items()}
    blocks["errata-slip"] = _slips(groups["slip"], results)
    meanings = [_meanings("verdict", VERDICTS), _meanings("grade", GRADES)]
    blocks["errata-meaning"] = "\n\n".join(meanings)
    return blocks | {"errata-overview": _overview([claim for claim in claims if claim.grade != "slip"], groups)}


def _meanings(head: str, words: dict[str, str]) -> str:
    return grid((head, "what it says"), [(f"*{name}*", meaning) for name, meaning in words.items()])


def _overview(claims: Sequence[Claim], groups: dict[str, list[Claim]]) -> str:
    names = {"reproduced": "reproduced", "conclusion": "conclusions that fall", "proof": "arguments that fall"}
    counts = [f"{len(groups[group])} {name}" for group, name in (names | {"open": "open at full size"}).items()]
    text = f"**{len(claims)} claims: {', '.join(counts)}.** Beside them {len(groups['slip'])} slips, listed last."
    rows = []
    for claim in claims:
        verdict = ", ".join(filter(None, (claim.verdict, claim.grade)))
        rows.append((f"[{claim.name}](#{anchor(claim.name)})", claim.source, verdict))
    return f"{text}\n\n{grid(('claim', 'in the paper', 'verdict, grade'), rows)}"


def _entry(claim: Claim, results: Results) -> str:
    shown = [link(results.root, name) for name in claim.evidence]
    grade = f" *({claim.grade})*" if claim.grade else ""
    again = ", ".join(f"`{one}`" for one in commands(claim.files(results), claim.notebooks, results))
    lines = [f"### {claim.name}", f"**Said** in {claim.source}: {claim.claim}"]
    lines.append(f"**{claim.verdict.capitalize()}**{grade}: {results.render(claim.finding)}")
    lines.append(f"**Shown** in {', '.join(shown)}.{f' **Again:** {again}' if again else ''}")
    return "\n\n".join(lines)


def _slips(claims: Sequence[Claim], results: Results) -> str:
    rows = []
    for claim in claims:
        shown = ", ".join(link(results.root, name) for name in claim.evidence)
        rows.append((f"{claim.name} ({claim.source})", claim.claim, results.render(claim.finding), shown))
    return grid(("slip", "printed", "right", "shown in"), rows)
