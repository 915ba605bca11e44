"""The tables of the page on language tasks."""

from typing import Any

from results.tables.files import Files
from results.tables.grid import grid
from results.tables.long_range import full_size_table
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.studies.language import (
    TABLE_4,
    glue_accuracy_table,
    glue_f1_table,
    glue_layers_table,
    glue_runs_table,
    glue_settings_table,
    mlm_table,
)
from sbmt.experiments.tables import LEFT_OUT

FIGURE = "Perplexity after pre-training, and accuracy on each task, against the density of the masks"
FULL_SIZE = ("mlm", "mnli")  # of which one step was taken at full size


def language_page(files: Files) -> dict[str, str]:
    """The page's tables and figure by name."""
    tables = {"paper-table-4": paper_table()}
    if files.has("glue"):
        result = files.load("glue")
        found = [mlm_table(result["mlm"])]
        for table in (glue_accuracy_table, glue_f1_table, glue_runs_table, glue_layers_table, glue_settings_table):
            found.append(table(result))
        tables |= {table.name: table.markdown() for table in found}
        if (files.root / "results" / "glue.png").exists():
            tables["glue-figure"] = f"![{FIGURE}](assets/glue.png)"
    if files.has("mlm-edges"):
        result = files.load("mlm-edges")
        tables["mlm-edges"] = mlm_table(result).markdown()
        if files.has("paired_blocks"):
            tables["mlm-paired"] = behind_table(files.load("paired_blocks")["behind"], result["titles"])
    if files.has("window_coverage"):
        tables["window-coverage"] = window_coverage_table(files.load("window_coverage"))
    if files.has("full_size"):
        tables["glue-full-size"] = full_size_table(files.load("full_size"), FULL_SIZE)
    return tables


def paper_table() -> str:
    """The paper's Table 4."""
    rows = [(title, *(f"{score:.1f}" for score in scores)) for title, scores in TABLE_4.items()]
    return grid(("", *(task.folder for task in GLUE.values())), rows)


def behind_table(behind: dict[str, dict[str, dict[str, float]]], titles: dict[str, str]) -> str:
    """By how many nats each masked language model is behind full attention, the window, and random masks."""
    rows = [
        (title, *(_nats(behind[other].get(trial)) for other in ("full", "window", "random")))
        for trial, title in titles.items()
    ]
    return grid(("nats behind", "full attention", "the window", "random masks"), rows)


def _nats(difference: dict[str, float] | None) -> str:
    return LEFT_OUT if difference is None else f"{difference['mean']:.3f} ± {difference['error']:.3f}"


def window_coverage_table(result: dict[str, Any]) -> str:
    """The length of GLUE's examples, and what share of their pairs each window covers."""
    windows = list(next(iter(result["found"]["a full block"].values()))["pairs"])
    heads = ["test examples of", "at most", "cut", "median", *(f"window {w}, %" for w in windows)]
    heads.append(f"whole in {windows[-1]}, %")
    rows = []
    for name, by_length in result["found"].items():
        for length, found in by_length.items():
            cells = [name, length, f"{found['n_cut']:,}", f"{found['median']:.0f}"]
            cells += [f"{100 * found['pairs'][w]:.1f}" for w in windows]
            cells.append(f"{100 * found['whole'][windows[-1]]:.1f}")
            rows.append(cells)
    return grid(heads, rows)
