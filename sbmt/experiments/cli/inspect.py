"""``sbmt inspect``: what a trained model does, and the masks that it draws."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sbmt.errors import SbmtError, check_seed
from sbmt.experiments.cli.evaluate import print_scores
from sbmt.experiments.cli.tables import print_whole
from sbmt.experiments.tables import LEFT_OUT
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.run import SHIPPED, Run, load_run
from sbmt.experiments.training.tasks import GeneratedConfig, RepeatedTokensConfig

if TYPE_CHECKING:
    from sbmt.experiments.plots.attended import Inspection

N_EXAMPLES = 256
"""Test examples to look at, unless the user says how many."""


def inspect(
    run: Annotated[Path | None, typer.Argument(help="folder of a run; the shipped checkpoint if left out")] = None,
    output: Annotated[Path, typer.Option(help="where the figure goes")] = Path("inspect.png"),
    examples: Annotated[int | None, typer.Option(help="test examples to look at; 256 if left out")] = None,
    query: Annotated[int | None, typer.Option(help="texts: position of the query whose keys are underlined")] = None,
    seed: Annotated[int, typer.Option(help="seed of the masks, and of the sequence of repeated tokens")] = 0,
) -> None:
    """Show what a trained model does: settings, results, and the masks that it draws."""
    check_seed(seed)
    loaded = load_run(SHIPPED if run is None else run)
    title = "the shipped checkpoint" if run is None else str(run)
    console = Console(markup=False)
    is_generated = isinstance(loaded.config, GeneratedConfig)
    if is_generated and (not isinstance(loaded.config, RepeatedTokensConfig) or loaded.config.fresh_values):
        got = f"one on {loaded.config.task.replace('_', ' ')}, whose tokens have no order to show their mask in"
        raise SbmtError("a run on prepared examples or on repeated tokens with fixed values", got, "use sbmt evaluate")
    if not is_generated:
        _inspect_prepared(console, loaded, title, output, N_EXAMPLES if examples is None else examples, query, seed)
        return
    for name, value in (("--examples", examples), ("--query", query)):
        if value is not None:
            raise SbmtError(f"no {name} for a run on repeated tokens", value, "leave it out")
    from sbmt.experiments.plots.repeated_tokens import draw_inspection

    _print_settings(console, title, {name: x for name, x in _flat(loaded.config).items() if x is not None})
    print_scores(console, loaded.test, {})
    draw_inspection(loaded, output, seed)
    console.print(f"Figure: {output}")


def _inspect_prepared(
    console: Console, run: Run, title: str, output: Path, n_examples: int, query: int | None, seed: int
) -> None:
    """Prints settings, scores, densities and rank correlations of a run on prepared examples, and draws its figure."""
    from sbmt.experiments.plots.attended import inspect_examples
    from sbmt.experiments.plots.long_range import draw_long_range_inspection
    from sbmt.experiments.plots.save import check_figure

    check_figure(output)
    if n_examples < 2:
        raise SbmtError("--examples ≥ 2", n_examples, "one example has no deviation")
    if query is not None and run.config.is_image:
        raise SbmtError("no --query for a task on images", query, "leave it out: their maps count all queries")
    inspection = inspect_examples(run, n_examples, seed=seed)
    shown = {"task": run.config.task, "attention": run.config.attention}
    defaults = {field.name: field.default for part in (run.config, run.config.options) for field in fields(part)}
    _print_settings(console, title, shown | {name: x for name, x in _flat(run.config).items() if x != defaults[name]})
    print_scores(console, run.test, run.about)
    print_whole(console, _densities(inspection))
    _print_correlations(console, inspection)
    draw_long_range_inspection(inspection, output, query)
    console.print(f"Figure: {output}", highlight=False)


def _flat(config: TrainingConfig) -> dict[str, Any]:
    """The fields of a configuration, with the attention's options among them."""
    values = config.to_dict()
    return values | values.pop("options")


def _print_settings(console: Console, title: str, values: dict[str, Any]) -> None:
    table = Table(title=title, show_header=False)
    for name, value in values.items():
        table.add_row(name, str(value))
    print_whole(console, table)


def _densities(inspection: "Inspection") -> Table:
    from sbmt.experiments.plots.densities import density_moments

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


def _print_correlations(console: Console, inspection: "Inspection") -> None:
    from sbmt.experiments.plots.densities import LEAST_TESTED, difficulty_measures, rank_correlations

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
        rho = "constant" if row.rho is None else f"{row.rho:+.3f}"
        p_value = "" if row.rho is None else LEFT_OUT if row.p_value is None else f"{row.p_value:.2g}"
        table.add_row(row.measure, row.part, rho, p_value, f"{row.n:,}")
    print_whole(console, table)
    if any(row.n < LEAST_TESTED for row in rows):
        console.print(f"{LEFT_OUT} fewer than {LEAST_TESTED} examples have no p-value.", highlight=False)
    attention = inspection.run.model.get_submodule("encoder.blocks.0.attention.attention")
    if "length" in measures and getattr(attention, "window", None) is not None:
        console.print("Edges that a window or self-loops make certain weigh less in longer inputs: 1/n for self-loops.")
