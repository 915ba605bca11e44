"""The results page: every result file with its question, its answer and where it comes from."""

from collections.abc import Sequence
from typing import Any

from results.tables.commands import command_of, read_questions
from results.tables.links import short_links
from results.tables.results import Results


def overview_page(results: Results) -> dict[str, str]:
    """The parts of the results page by name."""
    rows = read_questions(results.root)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    parts = [_group(name, [row for row in rows if row["group"] == name], results) for name in groups]
    return {"answers": "\n\n".join(parts), "origins": _origins(rows, results)}


def _group(name: str, rows: Sequence[dict[str, Any]], results: Results) -> str:
    lines = [f"## {name}", ""]
    for row in rows:
        told = short_links(results.root, row["pages"])
        answer = results.render(row["answer"]) if results.has(row["file"]) else "*Not measured yet.*"
        lines += [f"**{row['question']}** {answer}<br>", f"`{row['file']}.json` → {told}", ""]
    targets = [f"`{target}`" for target in dict.fromkeys(row["again"] for row in rows)]
    return "\n".join([*lines, f"To measure this again: {', '.join(targets)}."])


def _origins(rows: Sequence[dict[str, Any]], results: Results) -> str:
    """A sentence with what the files have in common, and a table with the rest."""
    found = [row["file"] for row in rows if results.has(row["file"])]
    places = list(dict.fromkeys(place for name in found if (place := _place(name, results))))
    heads = ("file", "again", "how much, how and when", *["on"] * (len(places) > 1))
    lines = ["Measured on " + "; or on ".join(f"{place}" for place in places) + "."]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in found:
        cells = [f"`{name}.json`", f"`{command_of(name, results)}`", _measured(_studies(name, results))]
        cells += [_place(name, results) or "any"] * (len(places) > 1)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _measured(studies: Sequence[dict[str, Any]]) -> str:
    """Seeds, runs, hours, threads and date, as far as a file records them."""
    runs = [run for study in studies for run in study.get("runs", [])]
    about = studies[0].get("manifest", {}) if studies else {}
    said = []
    if runs:
        hours = sum(run["seconds"] for run in runs) / 3600
        said += [_many(len({run["config"]["seed"] for run in runs}), "seed"), _many(len(runs), "run")]
        said += [f"{hours:.1f} core hours"]
    said += [_many(about["threads"], "thread"), about["date"]] if about else []
    return ", ".join(said) or "–"


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _studies(name: str, results: Results) -> list[dict[str, Any]]:
    """The parts of a result file that have a manifest; the theory's numbers have none and need none."""
    result = results.load(name)
    return list(result.values()) if name == "glue" else [] if name == "theory" else [result]


def _place(name: str, results: Results) -> str:
    """Machine and versions; empty if nothing depends on them."""
    about = next(iter(_studies(name, results)), {}).get("manifest", {})
    return f"{about['machine']}, with sbmt {about['sbmt']}, torch {about['torch']}" if about else ""
