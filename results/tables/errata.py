"""The errata page: what was found of every claim."""

from collections.abc import Sequence

from results.tables.claims import GROUPS, Claim, read_claims
from results.tables.commands import commands
from results.tables.grid import grid
from results.tables.links import anchor, short_links
from results.tables.results import Results


def errata_page(results: Results) -> dict[str, str]:
    """The parts of the errata page by name."""
    claims = read_claims(results.root)
    groups = {name: [claim for claim in claims if claim.group == name] for name in GROUPS}
    blocks = {f"errata-{name}": "\n\n".join(_entry(c, results) for c in of) for name, of in groups.items()}
    blocks["errata-slip"] = _slips(groups["slip"], results)
    files = dict.fromkeys(name for claim in claims for name in _files(claim, results))
    notebooks = sorted({number for claim in claims for number in claim.notebooks})
    blocks["errata-commands"] = "\n".join(["```bash", *commands(list(files), notebooks, results), "```"])
    return blocks | {"errata-overview": _overview(groups)}


def _files(claim: Claim, results: Results) -> list[str]:
    """Names of the result files behind a claim's finding and evidence."""
    return results.files_of(claim.finding) + ["theory"] * bool(claim.statements)


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
