"""What ``sbmt inspect`` shows of a run on prepared examples."""

from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sbmt.errors import SbmtError
from sbmt.experiments.plots.attended import Inspection, inspect_examples
from sbmt.experiments.plots.density_bars import density_moments
from sbmt.experiments.plots.difficulty import difficulty_measures, rank_correlations
from sbmt.experiments.plots.long_range import draw_long_range_inspection
from sbmt.experiments.plots.save import figure_format
from sbmt.experiments.training.sequence_config import SequenceConfig
from sbmt.experiments.training.task_runs import TaskRun

N_EXAMPLES = 256
"""Test examples that are looked at unless it is said how many."""


def inspect_long_range(
    console: Console,
    run: TaskRun,
    title: str,
    output: Path,
    *,
    n_examples: int | None = None,
    query: int | None = None,
    seed: int = 0,
) -> None:
    """Prints settings, scores, densities and rank correlations of a run, and draws its figure.

    Args:
        console: Where to print.
        run: What to show.
        title: Above the settings.
        output: Where the figure goes.
        n_examples: Test examples to look at; None means :data:`N_EXAMPLES`.
        query: Position of a query to single out in texts.
        seed: Seed of the masks.

    Raises:
        SbmtError: If the data are not there, an option does not fit the task, or the run has no labels to predict.
    """
    figure_format(output)
    if query is not None and run.config.is_image:
        raise SbmtError("no --query for a task on images", query, "leave it out: their maps count all queries")
    inspection = inspect_examples(run, n_examples or N_EXAMPLES, seed=seed)
    console.print(_settings(run.config, title))
    low, high = run.about["interval"]
    console.print(
        f"Test, {run.about['n_test']:,} examples: accuracy {run.test.accuracy:.4f}, 95 % interval {low:.3f} to "
        f"{high:.3f}, chance {run.about['chance']:.3f}  loss {run.test.loss:.4f}  density {run.test.density:.4f}"
    )
    console.print(_densities(inspection))
    _print_correlations(console, inspection)
    draw_long_range_inspection(inspection, output, query)
    console.print(f"Figure: {output}", highlight=False)


def _settings(config: SequenceConfig, title: str) -> Table:
    """Task, attention, and whatever differs from the defaults."""
    table = Table(title=title, show_header=False)
    defaults = {field.name: field.default for field in fields(config)}
    for name, value in config.to_dict().items():
        if name in ("task", "attention") or value != defaults[name]:
            table.add_row(name, str(value))
    return table


def _densities(inspection: Inspection) -> Table:
    densities = inspection.per_example.densities
    mean, deviation = density_moments(densities)
    n_heads = densities.shape[2]
    table = Table(title=f"Density on {len(densities):,} test examples: mean ± standard deviation over these inputs")
    for heading in ("layer", "mean of its heads", *(f"head {head}" for head in range(n_heads))):
        table.add_column(heading, justify="right")
    for layer in range(len(mean)):
        cells = [f"{m:.4f} ± {d:.4f}" for m, d in zip(mean[layer].tolist(), deviation[layer].tolist(), strict=True)]
        table.add_row(str(layer), *cells)
    return table


def _print_correlations(console: Console, inspection: Inspection) -> None:
    measures = difficulty_measures(inspection.per_example.extras, inspection.lengths)
    rows = rank_correlations(inspection.per_example.densities, measures)
    if not rows:
        console.print("Nothing is known of how difficult these examples are, so there is nothing to rank them by.")
        return
    if all(row.rho is None for row in rows):
        names = ", ".join(measures)
        console.print(f"Every example has the same density in every head: no rank correlation with {names}.")
        return
    table = Table(title="Spearman's rank correlation of density; each p-value is that of its row alone")
    for heading in ("with", "density of", "ρ", "p", "n"):
        table.add_column(heading, justify="right" if heading in "ρpn" else "left")
    for row in rows:
        numbers = ("constant", "") if row.rho is None else (f"{row.rho:+.3f}", f"{row.p_value:.2g}")
        table.add_row(row.measure, row.part, *numbers, f"{row.n:,}")
    console.print(table)
    attention = inspection.run.model.get_submodule("encoder.blocks.0.attention.attention")
    if "length" in measures and getattr(attention, "window", None) is not None:
        console.print("Edges that a window or self-loops make certain weigh less in longer inputs: 1/n for self-loops.")
