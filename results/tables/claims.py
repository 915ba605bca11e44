"""The claims of the paper that were examined, from ``results/errata.toml``."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

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


def read_claims(root: Path) -> list[Claim]:
    """All claims, in the order of the file."""
    rows = tomllib.loads((root / "results" / "errata.toml").read_text("utf-8"))["claim"]
    return [Claim(**row | {"evidence": tuple(row["evidence"])}) for row in rows]
