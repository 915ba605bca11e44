"""``sbmt cutoffs``: from which masks on edges are followed, as measured on this machine or built in."""

import warnings
from typing import Annotated

import typer
from rich.console import Console

from sbmt.errors import SbmtError
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.files import check_writable, write_json
from sbmt.experiments.tables import Table
from sbmt.kernels import cutoffs as kept


def cutoffs(
    measure: Annotated[
        bool, typer.Option("--measure", help="measure them on this machine, on an otherwise idle one, and keep them")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="delete what was measured: back to the built-in ones")
    ] = False,
) -> None:
    """Show where the library visits every pair of a mask instead of following its edges.

    Small or almost full masks are faster pair by pair. From where on they are not depends on the processor: the
    built-in numbers suit the machine of the published benchmarks. Values never depend on the choice, but for rounding.
    """
    console = Console(markup=False)
    path = kept.cutoffs_file()
    if path is None:
        raise SbmtError("platformdirs, which finds the cache folder", "none installed", "pip install 'sbmt[train]'")
    if measure and forget:
        raise SbmtError("--measure or --forget", "both", "leave one out")
    if forget:
        path.unlink(missing_ok=True)
    if measure:
        from sbmt.experiments.benchmarks import backends

        check_writable(path)
        with progress_bars(console) as progress:
            found = backends.run(backends.TO_CHOOSE, progress.track)
        best = {name: backends.best_cutoff(one["cells"]) for name, one in found.items()}
        write_json(path, {"machine": kept.this_machine(), "cutoffs": best})
    kept.cutoffs.cache_clear()
    with warnings.catch_warnings(record=True) as damage:
        warnings.simplefilter("always")
        now = kept.cutoffs()
    rows = [(name, f"{cutoff.cells:,}", f"{100 * cutoff.density:.3g} %") for name, cutoff in now.items()]
    title = "Built in" if now is kept.BUILT_IN else f"Measured here, kept in {path}"
    print_table(console, Table("cutoffs", title, ("pair by pair", "cells, at most", "density, at least"), tuple(rows)))
    if now is kept.BUILT_IN and path.exists():
        other = f"{path} was measured on another machine, or with other threads or another torch."
        console.print(f"{damage[0].message}." if damage else other)
    console.print(kept.this_machine(), highlight=False)
