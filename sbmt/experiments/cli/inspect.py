"""``sbmt inspect`` and ``sbmt sample``: the masks of a trained model, and of block models in the plane."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from sbmt.errors import SbmtError, check_seed, choose
from sbmt.experiments.cli.terminal import check_targets, print_scores, print_table
from sbmt.experiments.tables import Table
from sbmt.experiments.training.run import SHIPPED, Run, load_run
from sbmt.experiments.training.tasks import GeneratedConfig, RepeatedTokensConfig
from sbmt.samplers import SAMPLERS, sample_edges


def inspect(
    run: Annotated[Path | None, typer.Argument(help="folder of a run; the shipped checkpoint if left out")] = None,
    output: Annotated[Path, typer.Option(help="where the figure goes")] = Path("inspect.png"),
    examples: Annotated[int | None, typer.Option(help="test examples to look at; 256 if left out")] = None,
    query: Annotated[int | None, typer.Option(help="texts: position of the query whose keys are underlined")] = None,
    seed: Annotated[int, typer.Option(help="seed of the masks, and of the sequence of repeated tokens")] = 0,
) -> None:
    """Show what a trained model does: settings, results, and the masks that it draws."""
    check_seed(seed)
    check_targets(figure=output)
    loaded = load_run(SHIPPED if run is None else run)
    title = "the shipped checkpoint" if run is None else str(run)
    console = Console(markup=False)
    if not isinstance(loaded.config, GeneratedConfig):
        _inspect_prepared(console, loaded, title, output, 256 if examples is None else examples, query, seed)
        return
    if not isinstance(loaded.config, RepeatedTokensConfig) or loaded.config.fresh_values:
        got = f"one on {loaded.config.task.replace('_', ' ')}, whose tokens have no order to show their mask in"
        raise SbmtError("a run on prepared examples or on repeated tokens with fixed values", got, "use sbmt evaluate")
    if (examples, query) != (None, None):
        raise SbmtError("--examples and --query only for a run on prepared examples", title, "leave them out")
    from sbmt.experiments.plots.repeated_tokens import draw_inspection

    _print_run(console, title, loaded)
    draw_inspection(loaded, output, seed)
    console.print(f"Figure: {output}", highlight=False)


def _print_run(console: Console, title: str, run: Run) -> None:
    """The settings that differ from the defaults, and the scores."""
    values = run.config.to_dict()
    values |= values.pop("options")
    defaults = {field.name: field.default for part in (run.config, run.config.options) for field in fields(part)}
    shown = {name: x for name, x in values.items() if x != defaults[name] or name in ("task", "attention")}
    rows = tuple((name, str(value)) for name, value in shown.items())
    print_table(console, Table("settings", f"Settings of {title}", ("setting", "value"), rows))
    print_scores(console, run.test, run.about)


def _inspect_prepared(
    console: Console, run: Run, title: str, output: Path, n_examples: int, query: int | None, seed: int
) -> None:
    """Settings, scores and densities of a run on prepared examples, and its figure."""
    from sbmt.experiments.plots.attended import draw_long_range_inspection, inspect_examples

    if query is not None and run.config.is_image:
        raise SbmtError("no --query for a task on images", query, "leave it out: their maps count all queries")
    inspection = inspect_examples(run, n_examples, seed=seed)
    _print_run(console, title, run)
    mean, deviation = inspection.moments()
    rows = [
        (str(layer), *(f"{m:.4f} ± {d:.4f}" for m, d in zip(mean[layer], deviation[layer], strict=True)))
        for layer in range(len(mean))
    ]
    title = f"Density on {len(inspection.densities):,} test examples: mean ± standard deviation over these inputs"
    headings = "layer", "mean of its heads", *(f"head {head}" for head in range(mean.shape[1] - 1))
    print_table(console, Table("densities", title, headings, tuple(rows)))
    draw_long_range_inspection(inspection, output, query)
    console.print(f"Figure: {output}", highlight=False)


def sample(
    case: Annotated[str, typer.Option(help="collapsed, separated, distant, or all")] = "all",
    n_tokens: Annotated[int, typer.Option(help="tokens in the plane")] = 48,
    sampler: Annotated[str, typer.Option(help="exact, bernoulli or fastrg")] = "exact",
    seed: Annotated[int, typer.Option(help="seed of the tokens and the draw")] = 0,
    output: Annotated[Path, typer.Option(help="where the figure goes")] = Path("sample.png"),
) -> None:
    """Draw masks from block models in the plane: the paper's Figure 3.

    Tokens and clusters close together give a dense mask, separated groups a block-diagonal one, clusters far from
    all tokens a sparse one.
    """
    from sbmt.experiments.plots.placements import PLACEMENTS, draw_placements, place

    check_targets(figure=output)
    check_seed(seed)
    choose("sampler", sampler, SAMPLERS)
    placements = [place(name, n_tokens, seed) for name in (PLACEMENTS if case == "all" else [case])]
    generator = torch.Generator().manual_seed(seed)
    edges = [sample_edges(placement.block_model, sampler, generator=generator) for placement in placements]
    rows = []
    for placement, drawn in zip(placements, edges, strict=True):
        expected, density = placement.block_model.expected_density().item(), drawn.density().item()
        rows.append((placement.name, f"{expected:.4f}", f"{density:.4f}", str(drawn.n_edges)))
    console = Console(markup=False)
    title = f"One draw by the {sampler} sampler, {n_tokens} tokens"
    print_table(console, Table("sample", title, ("case", "expected density", "density", "edges"), tuple(rows)))
    draw_placements(placements, edges, output)
    console.print(f"Figure: {output}", highlight=False)
