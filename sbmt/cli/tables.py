"""Tables of runs on the terminal."""

from collections.abc import Sequence
from statistics import median

from rich.table import Table

from sbmt.training.runs import Run
from sbmt.training.study import Trial


def study_table(title: str, trials: Sequence[Trial], runs: list[tuple[str, Run]]) -> Table:
    """Medians over seeds, a row per trial; with several seeds the least and the greatest accuracy too."""
    table = Table(title=f"Repeated tokens, unseen sequences: {title}")
    table.add_column("attention")
    for name in ("seeds", "accuracy", "density", "loss", "parameters", "seconds"):
        table.add_column(name, justify="right")
    for trial in trials:
        mine = [run for name, run in runs if name == trial.name]
        accuracy, density, loss = (
            median(getattr(run.test, name) for run in mine) for name in ("accuracy", "density", "loss")
        )
        shown = f"{accuracy:.3f}"
        if len(mine) > 1:
            shown += f" ({min(run.test.accuracy for run in mine):.3f}–{max(run.test.accuracy for run in mine):.3f})"
        parameters = sum(p.numel() for p in mine[0].model.parameters())
        seconds = median(run.seconds for run in mine)
        cells = (f"{len(mine)}", shown, f"{density:.3f}", f"{loss:.3f}", f"{parameters:,}", f"{seconds:.0f}")
        table.add_row(trial.title, *cells)
    return table
