"""Operations counted and memory measured, for every attention at every length of the paper's Table 3."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sbmt.cost import OperationCount, count_operations, uncounted
from sbmt.errors import SbmtError
from sbmt.experiments.costs.memory import peak_memory
from sbmt.experiments.costs.methods import METHODS, REFERENCE, Case, build_case, method_of
from sbmt.experiments.progress import Track, untracked
from sbmt.experiments.training.tasks import PAPER

TASKS = ("listops", "text", "retrieval", "image", "pathfinder")
DENSITIES = dict(zip(TASKS, (0.0115, 0.1062, 0.0249, 0.0133, 0.0261), strict=True))
"""Densities of the paper's models trained with λ = 1e-1 (Table 2), the models that its Table 3 describes."""


@dataclass(frozen=True)
class Column:
    """An input on which attentions are compared.

    Attributes:
        title: Heading of the column.
        n: Tokens per sequence.
        density: Density of the masks, for attentions that draw one.
        task: The task whose model reads the input.
    """

    title: str
    n: int
    density: float
    task: str = "listops"


def paper_columns() -> tuple[Column, ...]:
    """The five tasks at their lengths, with the densities of the paper's models."""
    titles = {name: f"{name.capitalize()} {PAPER[name].length}" for name in DENSITIES} | {"listops": "ListOps 2048"}
    return tuple(Column(titles[name], PAPER[name].length, density, name) for name, density in DENSITIES.items())


def columns_of(lengths: Sequence[int], density: float) -> tuple[Column, ...]:
    """A column per length, all with one density."""
    return tuple(Column(f"n = {n:,}", n, density) for n in lengths)


def cost_report(
    methods: Sequence[str] = (),
    columns: Sequence[Column] | None = None,
    *,
    has_memory: bool = True,
    track: Track = untracked,
) -> dict[str, Any]:
    """Counts operations and measures memory.

    Args:
        methods: Names in :data:`~sbmt.experiments.costs.methods.METHODS`, or of registered attentions; all of the
            former if empty. Full attention is always included.
        columns: Inputs; :func:`paper_columns` by default.
        has_memory: Whether to measure memory, which takes some seconds per method and works only on Linux.
        track: Shows the progress of measuring memory, such as the method ``track`` of rich's ``Progress``.

    Returns:
        A dictionary for JSON: ``columns``; ``operations``, with ``n_flops`` and ``n_elementwise`` of the ``attention``
        alone and of the whole ``model`` for each method and column, or ``missing`` with the reason; and ``memory``, see
        :func:`~sbmt.experiments.costs.memory.peak_memory`.

    Raises:
        SbmtError: On unknown methods, or without columns.
    """
    columns = paper_columns() if columns is None else columns
    if not columns:
        raise SbmtError("at least one column", "none", "give a length")
    for name in methods:
        method_of(name)
    names = [name for name in METHODS if not methods or name in (REFERENCE, *methods)]
    names += [name for name in dict.fromkeys(methods) if name not in METHODS]
    cases = {name: [Case(name, c.n, c.density, c.task) for c in columns] for name in names}
    result: dict[str, Any] = {"columns": [asdict(column) for column in columns]}
    result["operations"] = {name: [_operations(case) for case in mine] for name, mine in cases.items()}
    if has_memory:
        result["memory"] = {name: _memory(cases[name]) for name in track(names, description="memory")}
    return result


def count_case(case: Case) -> OperationCount:
    """The operations of a case's model on one example."""
    return count_operations(build_case(case), case.n, density=case.density)


def _operations(case: Case) -> dict[str, Any]:
    model = build_case(case)
    if uncounted(model):
        return {"missing": "not counted"}
    count = count_operations(model, case.n, density=case.density)
    both = {"attention": count.attention(), "model": count}
    return {name: {"n_flops": one.n_flops, "n_elementwise": one.n_elementwise} for name, one in both.items()}


def _memory(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Measures equal cases once; the density makes no difference to an attention that draws no mask."""
    keys = [(case.n, case.task == "retrieval", case.density if case.draws_mask else None) for case in cases]
    different = dict(zip(reversed(keys), reversed(cases), strict=True))
    found = dict(zip(different, peak_memory(list(different.values())), strict=True))
    return [found[key] for key in keys]
