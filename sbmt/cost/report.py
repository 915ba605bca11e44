"""The paper's Table 3 for this library: operations counted, memory measured, of every attention at every length."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sbmt.cost.claims import DENSITIES, TABLE_3
from sbmt.cost.memory import peak_memory
from sbmt.cost.methods import METHODS, REFERENCE, Case, build_case
from sbmt.cost.operations import OperationCount, count_operations
from sbmt.errors import SbmtError, choose
from sbmt.experiments.training.long_range import PAPER

OnMethod = Callable[[int, int], None]
"""Called with how many methods are measured, and how many there are."""


@dataclass(frozen=True)
class Column:
    """An input to compare on.

    Attributes:
        title: Of the column.
        n: Tokens per sequence.
        density: Of the masks, where they are drawn.
        task: Whose model reads it.
    """

    title: str
    n: int
    density: float
    task: str = "listops"


def paper_columns() -> tuple[Column, ...]:
    """The five tasks at their lengths, with the densities of the paper's models that λ = 1e-1 was trained with."""
    titles = {name: f"{name.capitalize()} {PAPER[name].length}" for name in DENSITIES} | {"listops": "ListOps 2048"}
    return tuple(Column(titles[name], PAPER[name].length, density, name) for name, density in DENSITIES.items())


def columns_of(lengths: Sequence[int], density: float) -> tuple[Column, ...]:
    """A column per length, all of one density."""
    return tuple(Column(f"n = {n:,}", n, density) for n in lengths)


def cost_report(
    methods: Sequence[str] = (),
    columns: Sequence[Column] | None = None,
    *,
    has_memory: bool = True,
    on_method: OnMethod = lambda done, total: None,
) -> dict[str, Any]:
    """Counts and measures.

    Args:
        methods: Names of :data:`~sbmt.cost.methods.METHODS`; all if empty. Full attention is always among them.
        columns: Inputs; :func:`paper_columns` if left out.
        has_memory: Whether to measure memory, some seconds per method; only Linux can.
        on_method: Called as the measurement of memory goes on.

    Returns:
        What JSON holds: ``columns``; ``operations``, for each method and column ``n_flops`` and ``n_elementwise`` of
        the ``attention`` alone and of the whole ``model``; ``memory``, see :func:`~sbmt.cost.memory.peak_memory`; and
        ``paper``, its Table 3.

    Raises:
        SbmtError: On unknown methods, or no columns.
    """
    columns = paper_columns() if columns is None else columns
    if not columns:
        raise SbmtError("at least one column", "none", "give a length")
    for name in methods:
        choose("attention", name, METHODS)
    names = [name for name in METHODS if not methods or name in (REFERENCE, *methods)]
    cases = {name: [Case(name, c.n, c.density, c.task) for c in columns] for name in names}
    result: dict[str, Any] = {"columns": [asdict(column) for column in columns]}
    result["operations"] = {name: [_operations(case) for case in mine] for name, mine in cases.items()}
    if has_memory:
        result["memory"] = {}
        on_method(0, len(names))
        for done, (name, mine) in enumerate(cases.items(), start=1):
            result["memory"][name] = _memory(mine)
            on_method(done, len(names))
    result["paper"] = {name: {"flops": list(both[0]), "memory": list(both[1])} for name, both in TABLE_3.items()}
    return result


def count_case(case: Case) -> OperationCount:
    """The operations of a case's model on one example."""
    return count_operations(build_case(case), case.n, density=case.density)


def _operations(case: Case) -> dict[str, dict[str, int]]:
    count = count_case(case)
    both = {"attention": count.attention(), "model": count}
    return {name: {"n_flops": one.n_flops, "n_elementwise": one.n_elementwise} for name, one in both.items()}


def _memory(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Measures alike cases once: where no mask is drawn, the density makes no difference."""
    keys = [(case.n, case.task == "retrieval", case.density if case.draws_mask else None) for case in cases]
    different = dict(zip(reversed(keys), reversed(cases), strict=True))
    found = dict(zip(different, peak_memory(list(different.values())), strict=True))
    return [found[key] for key in keys]
