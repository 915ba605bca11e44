"""Operations of the attentions in the paper's models, as in its Table 3."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from sbmt.cost import count_operations
from sbmt.errors import SbmtError, choose
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.tasks import PAPER, TASK_TITLES

DENSITIES = {"listops": 0.0115, "text": 0.1062, "retrieval": 0.0249, "image": 0.0133, "pathfinder": 0.0261}
"""Densities of the paper's models trained with λ = 1e-1 (Table 2), which its Table 3 describes."""
REFERENCE = "full"
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    REFERENCE: ("full attention", "full", {}),
    "linear": ("linear", "linear", {}),
    "reformer": ("Reformer", "reformer", {}),
    "performer": ("Performer", "performer", {}),
    "linformer": ("Linformer", "linformer", {}),
    "nystromformer": ("Nyströmformer", "nystromformer", {}),
    "sbm": ("SBM, exact law", "sbm", {"self_loops": False}),
    "sbm-algorithm-1": ("SBM, Algorithm 1", "sbm", {"preset": "faithful", "self_loops": False}),
    "random-mask": ("random mask", "random_mask", {}),
}
"""The rows of the tables: their titles, and the attentions of their models with options."""


@dataclass(frozen=True)
class Column:
    """One input: n tokens, and a density of masks in (0, 1), which attentions without masks ignore.

    The model is that of the paper's Table 7 for the task; that of ``retrieval`` reads two documents.
    """

    title: str
    n: int
    density: float
    task: str = "listops"

    def __post_init__(self) -> None:
        choose("task", self.task, PAPER)
        if not 0 < self.density < 1:
            raise SbmtError("density in (0, 1)", self.density, "give the share of the pairs that are edges")


def paper_columns() -> tuple[Column, ...]:
    """Returns a column for each of the five tasks, with its sequence length and the density of the paper's model."""
    titles = {name: f"{TASK_TITLES[name].split(':')[0]} {PAPER[name].length}" for name in DENSITIES}
    return tuple(Column(titles[name], PAPER[name].length, density, name) for name, density in DENSITIES.items())


def cost_report(methods: Sequence[str] = (), columns: Sequence[Column] = paper_columns()) -> dict[str, Any]:
    """Counts the operations of methods (all if none are named) and of full attention, for JSON."""
    names = dict.fromkeys((REFERENCE, *(methods or METHODS)))
    operations = {name: [_operations(name, column) for column in columns] for name in names}
    return {"columns": [asdict(column) for column in columns], "operations": operations}


def _operations(method: str, column: Column) -> dict[str, Any]:
    _, attention, options = choose("attention", method, METHODS)
    options = {"mask_density": column.density} | options  # which attentions without random masks ignore
    changes: dict[str, Any] = {"options": None, "option_defaults": tuple(options.items())}
    config = replace(PAPER[column.task], length=column.n, attention=attention, **changes)
    info = {"vocab_size": 256, "class_names": range(10), "n_documents": 1 + (column.task == "retrieval")}
    model = build_model(config, info).eval().requires_grad_(False)
    count = count_operations(model, column.n, density=column.density)
    return {"attention": {"n_flops": count.attention().n_flops}, "model": {"n_flops": count.n_flops}}


def cost_tables(report: dict[str, Any]) -> list[Table]:
    """FLOPs relative to full attention, from :func:`cost_report`."""
    headings = ("", *(f"{column['title']}, {100 * column['density']:.3g} %" for column in report["columns"]))
    tables = []
    for kind, title in (("attention", "FLOPs of the attention alone"), ("model", "FLOPs of the whole model")):
        flops = {name: [one[kind]["n_flops"] for one in found] for name, found in report["operations"].items()}
        table = Table(*headings, title=f"{title}, full attention = 1")
        for name, mine in flops.items():
            cells = (f"{x / full:.2f}" for x, full in zip(mine, flops[REFERENCE], strict=True))
            table.add_row(METHODS[name][0], *cells)
        tables.append(table)
    return tables
