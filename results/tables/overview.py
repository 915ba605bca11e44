"""The results page: every result file with its question, its answer and where it comes from, and a few pictures."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.tables.commands import command_of, read_questions
from results.tables.grid import grid
from results.tables.links import address, short_links
from results.tables.results import Results


def read_pictures(root: Path) -> dict[str, dict[str, str]]:
    """The pictures of ``results/questions.toml`` by the group of questions above whose table they stand."""
    rows = tomllib.loads((root / "results" / "questions.toml").read_text("utf-8"))["picture"]
    return {row["group"]: row for row in rows}


def overview_page(results: Results) -> dict[str, str]:
    """The parts of the results page by name."""
    rows = read_questions(results.root)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    pictures = read_pictures(results.root)
    parts = [_group(name, [row for row in rows if row["group"] == name], pictures, results) for name in groups]
    return {"answers": "\n\n".join(parts), "origins": _origins(rows, results)}


def _group(name: str, rows: Sequence[dict[str, Any]], pictures: dict[str, dict[str, str]], results: Results) -> str:
    lines = [f"## {name}"]
    if picture := pictures.get(name):
        lines.append(f"![{picture['caption']}](assets/{picture['file']})")
    answers = [results.render(row["answer"]) if results.has(row["file"]) else "*Not measured yet.*" for row in rows]
    questions = [f"[{row['question']}]({address(results.root, row['pages'][0])})" for row in rows]
    columns = {"question": questions, "answer": answers}
    if any(row["pages"][1:] for row in rows):
        columns["see also"] = [short_links(results.root, row["pages"][1:]) for row in rows]
    return "\n\n".join([*lines, grid(list(columns), zip(*columns.values(), strict=True))])


def _origins(rows: Sequence[dict[str, Any]], results: Results) -> str:
    """What the files have in common, which targets measure several of them, and a table with the rest."""
    found = [row["file"] for row in rows if results.has(row["file"])]
    places = Counter(place for name in found if (place := _place(name, results)))
    usual = max(places, key=places.__getitem__)
    targets = [f"`{one}`" for one, n_files in Counter(row["again"] for row in rows).items() if n_files > 1]
    lines = [f"Measured on {usual}{', unless a row says otherwise' if len(places) > 1 else ''}."]
    lines += [f"Many files at once are made again by {', '.join(targets)}.", ""]
    table = []
    for row in (row for row in rows if results.has(row["file"])):
        name = row["file"]
        measured, place = _measured(_studies(name, results)), _place(name, results)
        measured += f", on {place}" if place not in ("", usual) else ""
        table.append([row["question"], f"`{name}.json`", f"`{command_of(name, results)}`", measured])
    return "\n".join([*lines, grid(("question", "file", "again", "how much, how and when"), table)])


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
