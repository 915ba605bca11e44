"""``sbmt inspect`` and ``sbmt sample``: pictures of masks."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from sbmt.errors import SbmtError, check_seed, choose
from sbmt.experiments.training.any_run import load_any_run
from sbmt.experiments.training.runs import SHIPPED, Run
from sbmt.samplers import SAMPLERS, sample_edges


def inspect(
    run: Annotated[Path | None, typer.Argument(help="folder of a run; the shipped checkpoint if left out")] = None,
    output: Annotated[Path, typer.Option(help="where the figure goes")] = Path("inspect.png"),
    examples: Annotated[int | None, typer.Option(help="test examples to look at; 256 if left out")] = None,
    query: Annotated[int | None, typer.Option(help="texts: position of the query whose keys are underlined")] = None,
    seed: Annotated[int, typer.Option(help="seed of the masks, and of the sequence of repeated tokens")] = 0,
) -> None:
    """Show what a trained model does: settings, results, and the masks that it draws."""
    _check_seed(seed)
    folder = SHIPPED if run is None else run
    title = "the shipped checkpoint" if run is None else str(folder)
    loaded = load_any_run(folder)
    if isinstance(loaded, Run):
        for name, value in (("--examples", examples), ("--query", query)):
            if value is not None:
                raise SbmtError(f"no {name} for a run on repeated tokens", value, "leave it out")
        _inspect_repeated_tokens(Console(markup=False), loaded, title, output, seed)
        return
    from sbmt.experiments.cli.look_long_range import inspect_long_range

    if examples is not None and examples < 2:
        raise SbmtError("--examples ≥ 2", examples, "one example has no deviation")
    inspect_long_range(Console(markup=False), loaded, title, output, n_examples=examples, query=query, seed=seed)


def _inspect_repeated_tokens(console: Console, run: Run, title: str, output: Path, seed: int) -> None:
    """Prints settings and results, and draws a sampled mask beside its expectation."""
    from sbmt.experiments.plots.inspection import draw_inspection

    table = Table(title=title, show_header=False)
    shown = {name: value for name, value in run.config.to_dict().items() if value is not None}
    for name, value in shown.items():
        table.add_row(name, str(value))
    console.print(table)
    test = run.test
    console.print(f"Unseen sequences: accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}")
    draw_inspection(run, output, seed)
    console.print(f"Figure: {output}")


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

    _check_seed(seed)
    choose("sampler", sampler, SAMPLERS)
    cases = list(PLACEMENTS) if case == "all" else [case]
    placements = [place(name, n_tokens, seed) for name in cases]
    generator = torch.Generator().manual_seed(seed)
    edges = [sample_edges(p.block_model, sampler, generator=generator) for p in placements]
    table = Table(title=f"One draw by the {sampler} sampler")
    for heading in ("case", "tokens", "clusters", "expected density", "drawn density", "edges"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for placement, drawn in zip(placements, edges, strict=True):
        table.add_row(
            placement.name,
            str(n_tokens),
            str(placement.block_model.n_clusters),
            f"{placement.block_model.expected_density().item():.4f}",
            f"{drawn.density().item():.4f}",
            str(drawn.n_edges),
        )
    console = Console(markup=False)
    console.print(table)
    draw_placements(placements, edges, output)
    console.print(f"Figure: {output}")


def _check_seed(seed: int) -> None:
    check_seed(seed)
